//! Refuses keyless requests that a web page sends through a visitor's browser. The client address is the visitor's and says nothing
//! about the page, but the headers that the browser itself writes do.

use axum::http::request::Parts;
use axum::http::{HeaderName, Method, header};

use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use config::{CorsSection, WebOrigin};
use edge::record;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Routes with form bodies; their parser refuses other types.
const FORMS: [&str; 4] = [
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/edits",
    "/v1/images/variations",
];
const SHOWN_MAX: usize = 200;

/// Checks whether a request may be served without the protection of a key. `server.cors` lists the allowed pages.
pub fn check(parts: &Parts, app: &App) -> Result<(), Failure> {
    if is_of_page(parts) {
        let config = app.config();
        check_page(parts, config.server.cors.as_ref(), app.edge.has_tls())?;
        check_name(parts, |authority| app.edge.is_certain(authority))?;
    }
    if is_of_page(parts) || is_of_browser(parts) {
        return check_type(parts);
    }
    Ok(())
}

/// Returns true for a browser that may not name the page, because it is old or a proxy removed its headers. Other programs do not
/// send these headers. They may omit the body's type, and `curl -d` calls it a form.
fn is_of_browser(parts: &Parts) -> bool {
    let agent = parts.headers.get(header::USER_AGENT);
    let is_named = agent.is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"));
    is_named
        || parts.headers.contains_key(header::REFERER)
        || parts.headers.contains_key(header::COOKIE)
}

/// Returns true if the browser's headers say that a page sent the request.
fn is_of_page(parts: &Parts) -> bool {
    let mut names = parts.headers.keys();
    names.any(|name| *name == header::ORIGIN || *name == FETCH_SITE)
}

fn text(parts: &Parts, name: HeaderName) -> Option<&str> {
    let value = parts.headers.get(name)?;
    Some(value.to_str().unwrap_or("\u{fffd}"))
}

/// A page whose name was bound to 127.0.0.1 has our origin (DNS rebinding). On other interfaces, the client's address grants
/// nothing.
fn check_name(parts: &Parts, is_certain: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let host = authority(parts).unwrap_or_default();
    if !is_of_page(parts) || !record::from_loopback() || is_certain(host) {
        return Ok(());
    }
    let host: String = host.chars().take(SHOWN_MAX).collect();
    Err(Failure::forbidden(
        "cross_site",
        format!(
            "a browser on this machine requests {host} without a key, and this name may belong to another site; an administrator can list it in server.hosts, or send a key with the request"
        ),
    ))
}

/// Sessions are only for pages of this service; pages in `server.cors` must send a key. `does` describes the page's action for the
/// message.
pub fn check_own(parts: &Parts, has_tls: bool, does: &str) -> Result<(), Failure> {
    if is_own_page(parts, has_tls) {
        return Ok(());
    }
    Err(Failure::forbidden(
        "cross_site",
        format!(
            "a web page of {} {does}, and only pages of this service may; open this service's own page, or send a key as `Authorization: Bearer mp-…`",
            page_of(parts)
        ),
    ))
}

fn is_own_page(parts: &Parts, has_tls: bool) -> bool {
    match (text(parts, FETCH_SITE), text(parts, header::ORIGIN)) {
        (None, None) => true,
        // Current browsers compare origins themselves, even if a proxy has changed the Host header.
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            authority(parts).is_some_and(|authority| is_own(origin, authority, has_tls))
        }
    }
}

fn page_of(parts: &Parts) -> String {
    match text(parts, header::ORIGIN) {
        Some(origin) => origin.chars().take(SHOWN_MAX).collect(),
        None => "another site".to_owned(),
    }
}

pub(crate) fn check_page(
    parts: &Parts,
    cors: Option<&CorsSection>,
    has_tls: bool,
) -> Result<(), Failure> {
    let origin = text(parts, header::ORIGIN);
    let is_listed = cors.is_some_and(|cors| cors.allows(origin.unwrap_or_default()));
    if is_listed || is_own_page(parts, has_tls) {
        return Ok(());
    }
    let page = page_of(parts);
    let remedy = match origin.and_then(|text| text.parse::<WebOrigin>().ok()) {
        Some(origin) => format!(
            "an administrator can list it (server.cors: {{origins: [\"{origin}\"]}}), or send a key with the request"
        ),
        // A sandboxed page, a local file, or a browser that does not name the page cannot be listed.
        None => "send a key with the request".to_owned(),
    };
    Err(Failure::forbidden(
        "cross_site",
        format!(
            "a web page of {page} sent no key, and only pages of this service may omit it; {remedy}"
        ),
    ))
}

/// Requires a body type that pages of other origins can only send after a preflight request.
pub fn check_type(parts: &Parts) -> Result<(), Failure> {
    let has_body = matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    let kind = parts.headers.get(header::CONTENT_TYPE);
    if !has_body || kind.is_some_and(|kind| kind.as_bytes() == b"application/json") {
        return Ok(());
    }
    let path = parts.uri.path();
    if FORMS.iter().any(|form| path.ends_with(form)) {
        return Ok(());
    }
    let kind = kind.map_or("", |kind| kind.to_str().unwrap_or("\u{fffd}"));
    if is_json(kind) {
        return Ok(());
    }
    let problem = match kind {
        "" => "has no content type".to_owned(),
        kind => format!(
            "has the content type {}",
            kind.chars().take(SHOWN_MAX).collect::<String>()
        ),
    };
    Err(Failure::new(
        ErrorKind::UnsupportedMedia,
        "unsupported_content_type",
        format!(
            "a browser without a key must mark the body as JSON, and this body {problem}; send `Content-Type: application/json` (curl: -H 'Content-Type: application/json')"
        ),
    ))
}

/// Accepts types such as `application/json` and `application/problem+json; charset=utf-8`.
fn is_json(kind: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let Some((above, below)) = essence.split_once('/') else {
        return false;
    };
    let ending = below.rsplit_once('+').map_or(below, |(_, ending)| ending);
    above.eq_ignore_ascii_case("application") && ending.eq_ignore_ascii_case("json")
}

/// The host and port to which the request was addressed.
pub fn authority(parts: &Parts) -> Option<&str> {
    let target = parts.uri.authority().map(|target| target.as_str());
    target.or_else(|| parts.headers.get(header::HOST)?.to_str().ok())
}

/// Returns true if the page has the same host and port as this request. A proxy may have terminated TLS; if TLS ends here, pages
/// without TLS are not ours.
fn is_own(origin: &str, authority: &str, has_tls: bool) -> bool {
    let Some((scheme, host)) = origin.split_once("://") else {
        return false;
    };
    let standard = match scheme {
        "https" => ":443",
        "http" if !has_tls => ":80",
        _ => return false,
    };
    let bare = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.strip_suffix(standard)
            .map_or(text.clone(), str::to_owned)
    };
    !host.is_empty() && bare(host) == bare(authority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn cors(origins: &[&str]) -> CorsSection {
        let origins = origins
            .iter()
            .map(|origin| origin.parse().unwrap())
            .collect();
        CorsSection {
            origins,
            max_age: config::Length::from_secs(60),
        }
    }

    fn parts(lines: &[(&str, &str)]) -> Parts {
        let request = Request::post("/v1/chat/completions");
        let request = lines.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn fetch_metadata_decides_and_otherwise_the_origin_is_compared_with_the_host() {
        let host = ("host", "127.0.0.1:8080");
        let own = ("origin", "http://127.0.0.1:8080");
        let evil = ("origin", "https://evil.example");
        let listed = ("origin", "https://lab.example.org");
        for (lines, passes) in [
            (vec![host], true),
            (vec![host, own], true),
            (vec![host, evil], false),
            (vec![host, ("origin", "null")], false),
            (vec![host, ("origin", "http://127.0.0.1:8081")], false),
            (vec![host, ("origin", "http://localhost:8080")], false),
            (vec![host, ("origin", "127.0.0.1:8080")], false),
            (vec![host, listed], true),
            (vec![host, ("sec-fetch-site", "cross-site")], false),
            (vec![host, ("sec-fetch-site", "same-site")], false),
            (vec![host, ("sec-fetch-site", "same-origin")], true),
            (vec![host, ("sec-fetch-site", "none")], true),
            (vec![host, own, ("sec-fetch-site", "cross-site")], false),
            (vec![host, listed, ("sec-fetch-site", "cross-site")], true),
            // Behind a proxy that changes the Host header, the browser's own header is more reliable.
            (vec![host, evil, ("sec-fetch-site", "same-origin")], true),
        ] {
            let checked = check_page(
                &parts(&lines),
                Some(&cors(&["https://lab.example.org"])),
                false,
            );
            assert_eq!(checked.is_ok(), passes, "{lines:?}");
        }
        let any = check_page(&parts(&[host, evil]), Some(&cors(&["*"])), false);
        assert!(any.is_ok());
    }

    #[test]
    fn following_the_advice_of_a_refusal_makes_the_page_pass() {
        for origin in [
            "https://lab.example.org:8443",
            "http://localhost:5173",
            "app://obsidian.md",
            "chrome-extension://abcdefghijklmnop",
            "vscode-webview://1aq2",
            "tauri://localhost",
        ] {
            let page = parts(&[("host", "127.0.0.1:8080"), ("origin", origin)]);
            let failure = check_page(&page, None, false).unwrap_err();
            let message = &failure.body.error.message;
            let (_, rest) = message.split_once("origins: [\"").expect(message);
            let (advised, _) = rest.split_once('"').expect(message);
            assert!(check_page(&page, Some(&cors(&[advised])), false).is_ok());
        }
        let null = parts(&[("host", "127.0.0.1:8080"), ("origin", "null")]);
        let failure = check_page(&null, None, false).unwrap_err();
        assert!(!failure.body.error.message.contains("server.cors"));
    }

    #[test]
    fn an_origin_is_same_origin_with_or_without_the_default_port() {
        for (origin, authority, has_tls, own) in [
            ("http://llm.example.org", "llm.example.org", false, true),
            ("http://llm.example.org", "LLM.example.org:80", false, true),
            ("https://llm.example.org", "llm.example.org", false, true),
            ("https://llm.example.org", "llm.example.org:443", true, true),
            ("http://llm.example.org", "llm.example.org", true, false),
            (
                "https://llm.example.org",
                "llm.example.org:8443",
                true,
                false,
            ),
            ("http://[::1]:8080", "[::1]:8080", false, true),
            ("app://llm.example.org", "llm.example.org", false, false),
            ("http://", "", false, false),
        ] {
            assert_eq!(
                is_own(origin, authority, has_tls),
                own,
                "{origin} {authority}"
            );
        }
    }

    #[test]
    fn only_json_content_types_are_accepted() {
        for (kind, json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/vnd.api+JSON", true),
            ("application/a+b+json", true),
            ("application/json+xml", false),
            ("application/jsonl", false),
            ("", false),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("multipart/form-data; boundary=x", false),
            ("text/plain; application/json", false),
            ("text/json", false),
        ] {
            assert_eq!(is_json(kind), json, "{kind}");
            let lines = [("content-type", kind)];
            let checked = check_type(&parts(&lines));
            let status = checked.map_or_else(|failure| failure.status().as_u16(), |()| 200);
            assert_eq!(status, if json { 200 } else { 415 }, "{kind}");
        }
    }
}
