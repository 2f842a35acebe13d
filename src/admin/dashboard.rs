//! The administrators' page at `/dashboard`: modules and styles from `dashboard/`, compressed at build time. It contains no data of
//! the pool; it calls the admin API with the session of the person who signs in.

use axum::Router;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use api_types::error::Failure;
use gateway::path_params::Path;
use gateway::state::App;

/// A file in plain and compressed form.
struct File {
    /// Relative to the dashboard's folder.
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Only allows files of this service, no inline code or styles, and no text that becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// A file's URL changes with its content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
const ASK_AGAIN: &str = "no-cache";

/// The routes of the page, relative to the base path. The page uses relative URLs and is therefore independent of the base path and
/// of a proxy's prefix.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/dashboard", get(page))
        .route("/dashboard/", get(without_slash))
        .route("/dashboard/{version}/{*name}", get(file))
}

/// Ignores `Accept`, because HTML is the only representation.
async fn page(headers: HeaderMap) -> Response {
    respond(&PAGE, ASK_AGAIN, &headers)
}

async fn without_slash() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(LOCATION, "../dashboard")]).into_response()
}

async fn file(
    State(app): State<App>,
    Path((version, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let found = FILES.iter().find(|file| file.name == name);
    match found.filter(|_| version == VERSION) {
        Some(file) => respond(file, FOR_EVER, &headers),
        None => {
            let message = format!(
                "the dashboard has no such file, or another version of it; load {}/dashboard again",
                app.base()
            );
            let mut response = Failure::not_found(message).into_response();
            let headers = response.headers_mut();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
    }
}

fn respond(file: &'static File, cache: &'static str, request: &HeaderMap) -> Response {
    let is_packed = takes_gzip(request);
    let form = if is_packed { "-gzip" } else { "" };
    let tag = HeaderValue::from_str(&format!("\"{VERSION}{form}\""));
    let tag = tag.expect("hexadecimal digits make a header");
    let fixed = HeaderValue::from_static;
    let mut headers = HeaderMap::from_iter([
        (CONTENT_TYPE, fixed(kind(file.name))),
        (CONTENT_SECURITY_POLICY, fixed(POLICY)),
        (X_FRAME_OPTIONS, fixed("DENY")),
        (REFERRER_POLICY, fixed("no-referrer")),
        (CACHE_CONTROL, fixed(cache)),
        (VARY, fixed("accept-encoding")),
    ]);
    let is_known = knows(request, tag.to_str().unwrap_or_default());
    headers.insert(ETAG, tag);
    if is_known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    if is_packed {
        headers.insert(CONTENT_ENCODING, fixed("gzip"));
        return (headers, file.gzip).into_response();
    }
    (headers, file.plain).into_response()
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Returns true if `Accept-Encoding` allows gzip. An explicit entry takes precedence over `*`.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let mut any = false;
    for coding in lines.flat_map(|line| line.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let is_allowed =
            quality.is_none_or(|text| text.trim().parse().is_ok_and(|value: f32| value > 0.0));
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return is_allowed;
        }
        any |= name == "*" && is_allowed;
    }
    any
}

/// Returns true if the client has this version already (weak comparison, RFC 9110, 13.1.2).
fn knows(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(IF_NONE_MATCH).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    })
}

#[cfg(test)]
mod tests;
