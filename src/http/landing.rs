//! The page for browsers at `/`: the models, example requests, and a form to try a model. The page calls the API as any client
//! does; no data of the pool is embedded.

use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use uuid::Uuid;

const PAGE: &str = include_str!("landing/index.html");

/// The page, with links below `base`, the configured base path.
pub(super) fn page(base: &str) -> Response {
    let nonce = Uuid::new_v4().simple().to_string();
    let policy = HeaderValue::from_str(&policy(&nonce));
    let policy = policy.expect("hexadecimal digits make a header");
    let fixed = HeaderValue::from_static;
    let headers = [
        (CONTENT_TYPE, fixed("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (X_FRAME_OPTIONS, fixed("DENY")),
        (REFERRER_POLICY, fixed("no-referrer")),
        // The nonce is only valid for one response.
        (CACHE_CONTROL, fixed("no-store")),
        (VARY, fixed("accept")),
    ];
    (headers, render(base, &nonce)).into_response()
}

/// Only allows the page's own script and style, and requests to this service.
fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; connect-src 'self'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// No escaping is needed: a base path consists of letters, digits, `/`, `-`, `.`, `_` and `~`.
fn render(base: &str, nonce: &str) -> String {
    PAGE.replace("{{nonce}}", nonce)
        .replace("{{base}}", base)
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
}

/// Returns true if `Accept` prefers HTML to JSON. Without a preference, as with `*/*` or no `Accept` header, the response is JSON.
pub(super) fn prefers_html(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).iter();
    let ranges: Vec<MediaRange<'_>> = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| split(line, ','))
        .filter_map(MediaRange::parse)
        .collect();
    quality(&ranges, "text", "html") > quality(&ranges, "application", "json")
}

/// The quality of a media type, in thousandths. The most specific range applies (RFC 9110, 12.5.1).
fn quality(ranges: &[MediaRange<'_>], kind: &str, subtype: &str) -> u16 {
    let matching = ranges.iter().filter_map(|range| {
        let specificity = range.specificity(kind, subtype)?;
        Some((specificity, range.quality))
    });
    matching.max().map_or(0, |(_, quality)| quality)
}

/// An element of `Accept`, such as `text/*;q=0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MediaRange<'a> {
    kind: &'a str,
    subtype: &'a str,
    /// In thousandths, 0 to 1000.
    quality: u16,
}

impl<'a> MediaRange<'a> {
    /// `None` for a malformed range, and for parameters that neither representation has.
    fn parse(text: &'a str) -> Option<MediaRange<'a>> {
        let mut parts = split(text, ';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut range = MediaRange {
            kind,
            subtype,
            quality: 1000,
        };
        for part in parts.filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            if name.eq_ignore_ascii_case("q") {
                range.quality = parse_quality(value)?;
                // Parameters after `q` are extensions, which RFC 9110 has removed.
                break;
            }
            let value = value.trim_matches('"');
            if !name.eq_ignore_ascii_case("charset") || !value.eq_ignore_ascii_case("utf-8") {
                return None;
            }
        }
        Some(range)
    }

    /// The specificity of the match with this type; `None` if the range does not match.
    fn specificity(&self, kind: &str, subtype: &str) -> Option<u8> {
        let has_kind = self.kind.eq_ignore_ascii_case(kind);
        match (self.kind, self.subtype) {
            ("*", "*") => Some(0),
            (_, "*") if has_kind => Some(1),
            (_, known) if has_kind && known.eq_ignore_ascii_case(subtype) => Some(2),
            _ => None,
        }
    }
}

/// Parses `0` to `1` with at most three decimals, in thousandths.
fn parse_quality(text: &str) -> Option<u16> {
    let (integer_part, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{decimals:0<3}").parse::<u16>().ok()?;
    match (integer_part, thousandths) {
        ("0", _) => Some(thousandths),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

/// Splits a header value at separators outside of quoted strings.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |letter: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match letter {
            _ if was_escaped => false,
            '\\' if is_quoted => {
                is_escaped = true;
                false
            }
            '"' => {
                is_quoted = !is_quoted;
                false
            }
            _ => letter == separator && !is_quoted,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefers(lines: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT, HeaderValue::from_str(line).unwrap());
        }
        prefers_html(&headers)
    }

    #[test]
    fn browsers_get_the_page_and_programs_get_json() {
        assert!(!prefers(&[]));
        for (accept, html) in [
            // Firefox, Chromium, Safari.
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                true,
            ),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
                true,
            ),
            // curl, fetch and most HTTP libraries.
            ("*/*", false),
            ("application/json", false),
            ("application/json, text/plain, */*", false),
            // w3m and lynx.
            ("text/html, text/*;q=0.5, image/*, application/*", false),
            ("text/html, text/plain, text/sgml, */*;q=0.01", true),
            ("", false),
        ] {
            assert_eq!(prefers(&[accept]), html, "{accept}");
        }
    }

    #[test]
    fn the_higher_quality_wins_and_a_tie_means_json() {
        for (accept, html) in [
            ("text/html", true),
            ("TEXT/HTML", true),
            ("text/*", true),
            ("text/html;q=0.001", true),
            ("text/html;q=0", false),
            ("text/html, application/json", false),
            ("application/json, text/html", false),
            ("application/json;q=0.9, text/html", true),
            ("application/json, text/html;q=0.9", false),
            ("text/html;Q=0.5,application/json;q=0.499", true),
            ("text/html;q=0.5,application/json;q=0.50", false),
            ("text/html ; q=0.8 , application/json ; q=0.7", true),
            ("application/xhtml+xml", false),
            ("image/*", false),
        ] {
            assert_eq!(prefers(&[accept]), html, "{accept}");
        }
    }

    #[test]
    fn the_most_specific_media_range_wins_in_any_order() {
        for (accept, html) in [
            ("text/html;q=0, */*", false),
            ("*/*, text/html;q=0.1", false),
            ("*/*;q=0.1, text/*;q=0.5", true),
            ("text/*;q=0.1, */*;q=0.5", false),
            ("text/*;q=0, text/html", true),
            ("application/*;q=0.2, */*;q=0.9", true),
            (
                "text/html;q=0.3, text/html;q=0.9, application/json;q=0.5",
                true,
            ),
        ] {
            assert_eq!(prefers(&[accept]), html, "{accept}");
        }
    }

    #[test]
    fn several_accept_headers_are_one_list() {
        assert!(prefers(&["application/json;q=0.5", "text/html"]));
        assert!(!prefers(&["text/html;q=0.5", "application/json"]));
    }

    #[test]
    fn malformed_ranges_are_ignored_and_the_others_count() {
        for (accept, html) in [
            ("text/html;q=2", false),
            ("text/html;q=1.001", false),
            ("text/html;q=0.1234", false),
            ("text/html;q=-1", false),
            ("text/html;q=NaN", false),
            ("text/html;q=", false),
            ("text/html;q", false),
            ("text", false),
            ("*/html", false),
            (",, ,text/html,", true),
            ("text/html;", true),
            ("text/html;q=1.", true),
            ("text/html;q=0.", false),
            ("text/html;q=x, text/html;q=0.5", true),
        ] {
            assert_eq!(prefers(&[accept]), html, "{accept}");
        }
    }

    #[test]
    fn an_html_range_with_other_parameters_does_not_match_the_page() {
        for (accept, html) in [
            ("text/html;charset=utf-8", true),
            ("text/html; Charset=\"UTF-8\"; q=0.5", true),
            ("text/html;charset=iso-8859-1", false),
            ("text/html;level=1", false),
            ("text/html;level=1, text/html;q=0.4", true),
            ("text/html;q=0.5;level=1", true),
            (r#"text/plain;x="a, text/html", */*"#, false),
            (r#"text/plain;x="a;b\",", text/html"#, true),
        ] {
            assert_eq!(prefers(&[accept]), html, "{accept}");
        }
    }

    #[test]
    fn every_placeholder_of_the_page_is_filled_and_its_nonce_matches_the_policy() {
        let response = page("/models/llm");
        let headers = response.headers();
        assert_eq!(headers[CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        let nonce = policy.split("script-src 'nonce-").nth(1).unwrap();
        let nonce = &nonce[..32];
        assert!(nonce.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let another = page("/models/llm");
        assert_ne!(another.headers()[CONTENT_SECURITY_POLICY], policy);

        let page = render("/models/llm", nonce);
        assert!(!page.contains("{{"), "a placeholder is left");
        assert!(page.contains("href=\"./models/llm/docs/\""));
        assert!(page.contains(env!("CARGO_PKG_VERSION")));
        for tag in ["script", "style"] {
            let with_nonce = format!("<{tag} nonce=\"{nonce}\">");
            assert_eq!(page.matches(&with_nonce).count(), 1, "{tag}");
            assert_eq!(page.matches(&format!("<{tag}")).count(), 1, "{tag}");
        }
    }

    #[test]
    fn the_page_has_nothing_that_its_policy_forbids() {
        for forbidden in [
            " style=",
            " onclick=",
            " onload=",
            "<img",
            "<iframe",
            "<base",
            "src=",
            "<link",
            "@import",
            "url(",
        ] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
        for unsafe_call in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!PAGE.contains(unsafe_call), "{unsafe_call}");
        }
    }
}
