//! Refuses malformed requests for all routes: unknown methods, odd targets, encoded bodies, and keys in URLs. Errors have OpenAI's
//! form and are sent before any of the body is read.

use axum::extract::Query;
use axum::http::request::Parts;
use axum::http::{Uri, Version, header};

use api_types::error::{ErrorKind, Failure};

/// Parameter names that are used for keys, without `-` and `_`.
const KEY_NAMES: &[&str] = &["apikey", "key", "xapikey", "accesstoken", "token"];
const PATH_BYTES_MAX: usize = 2048;
/// Largest request head; in HTTP/2, the largest header list.
pub(super) const HEAD_BYTES_MAX: u32 = 64 << 10;

/// Refuses a request regardless of its route. The documentation is below `base`.
pub(super) fn check(parts: &Parts, base: &str) -> Result<(), Failure> {
    // The router checks the methods of each route. Targets without a path, as in `CONNECT` and `OPTIONS *`, have no route.
    if !parts.uri.path().starts_with('/') {
        let method: String = parts.method.as_str().chars().take(32).collect();
        return Err(Failure::new(
            ErrorKind::MethodNotAllowed,
            "method_not_allowed",
            format!("no route accepts {method}; the routes are listed at {base}/docs"),
        ));
    }
    // hyper reads somewhat more than its limit before it checks it.
    if bytes_of_head(parts) > HEAD_BYTES_MAX as usize {
        return Err(Failure::new(
            ErrorKind::HeadTooLarge,
            "head_too_large",
            format!(
                "the request's head has more than {HEAD_BYTES_MAX} bytes; send fewer or shorter headers"
            ),
        ));
    }
    let is_absolute = parts.uri.authority().is_some() && parts.version < Version::HTTP_2;
    if is_absolute || is_odd(parts.uri.path()) {
        return Err(Failure::not_found(format!(
            "there is nothing at an address like this; the routes are listed at {base}/docs"
        )));
    }
    if let Some(name) = key_in(&parts.uri) {
        let message = format!(
            "`{name}` in the URL: do not send keys there, because proxies and logs record URLs; send the key as `Authorization: Bearer …`, and create a new one if it was real"
        );
        let mut failure = Failure::invalid(name, message);
        failure.body.error.code = Some("key_in_address");
        return Err(failure);
    }
    let mut codings = parts.headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Failure::new(
            ErrorKind::UnsupportedMedia,
            "unsupported_content_encoding",
            "encoded bodies are not supported; send the body without Content-Encoding",
        ));
    }
    Ok(())
}

/// The size as written in HTTP/1.1, without the method and the version.
fn bytes_of_head(parts: &Parts) -> usize {
    let target = parts
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    let lines = parts.headers.iter();
    target
        + lines
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
            .sum::<usize>()
}

/// Returns true for paths that servers and proxies may interpret differently. Model names may contain an encoded slash.
fn is_odd(path: &str) -> bool {
    path.split('/').any(is_dots)
        || path.len() > PATH_BYTES_MAX
        || !path.starts_with('/')
        || path.contains("//")
        || path.contains('\\')
        || (path.contains('%') && has_odd_code(path))
}

/// One or two dots, encoded or not.
fn is_dots(segment: &str) -> bool {
    let (mut rest, mut dots) = (segment.as_bytes(), 0_usize);
    while let [b'.', after @ ..] | [b'%', b'2', b'e' | b'E', after @ ..] = rest {
        rest = after;
        dots += 1;
    }
    rest.is_empty() && (1..=2).contains(&dots)
}

/// Returns true if an encoded character changes the meaning of the path.
fn has_odd_code(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    if lower.contains("%5c") || lower.contains("%00") {
        return true;
    }
    if lower.contains("/v1/models/") {
        lower.replace("%2f", "/").contains("/../")
    } else {
        lower.contains("%2f")
    }
}

/// The name of a query parameter that looks like a key.
fn key_in(uri: &Uri) -> Option<String> {
    uri.query()?;
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    let names = pairs.0.into_iter().map(|(name, _)| name);
    let mut names = names.filter(|name| name.len() <= 32);
    names.find(|name| {
        let plain = name.to_ascii_lowercase().replace(['-', '_'], "");
        KEY_NAMES.contains(&plain.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn status(request: axum::http::request::Builder) -> u16 {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts, "/llm").map_or_else(|failure| failure.status().as_u16(), |()| 200)
    }

    #[test]
    fn a_request_head_is_refused_only_above_its_limit() {
        let with = |bytes: usize| {
            let request = Request::get("/a").header("x", "y".repeat(bytes));
            status(request)
        };
        // The target, the header's name, and the separators of name, value and line.
        let room = HEAD_BYTES_MAX as usize - "/a".len() - "x".len() - 4;
        assert_eq!(with(room), 200);
        assert_eq!(with(room + 1), 431);
    }

    #[test]
    fn invalid_targets_and_methods_are_refused() {
        for (method, target, expected) in [
            ("GET", "/v1/models", 200),
            ("HEAD", "/v1/models", 200),
            ("GET", "/v1/models/org%2Fname", 200),
            ("GET", "/v1/models/..%2f..%2fetc", 404),
            ("GET", "/v1/models/a/../b", 404),
            ("GET", "/v1/%2e%2e/x", 404),
            ("GET", "/v1/.%2E/x", 404),
            ("GET", "/v1/%2e", 404),
            ("GET", "/v1/.../x", 200),
            ("GET", "/v1/..x/%2e.y", 200),
            ("GET", "/V1/MODELS/a%2Fb", 200),
            ("GET", "//v1/models", 404),
            ("GET", "/v1%2fmodels", 404),
            ("GET", "/v1/models%5c", 404),
            ("GET", "/v1/models/%00", 404),
            ("GET", "http://evil.example/v1/models", 404),
            ("TRACE", "/v1/models", 200),
            ("OPTIONS", "*", 405),
            ("CONNECT", "evil.example:443", 405),
            ("BREW", "/v1/models", 200),
        ] {
            let request = Request::builder().method(method).uri(target);
            assert_eq!(status(request), expected, "{method} {target}");
        }
    }

    #[test]
    fn a_key_in_an_address_is_refused_without_repeating_it() {
        for query in [
            "api_key=mp-secret",
            "a=b&KEY=mp-secret",
            "access-token=mp-secret",
            "token",
            "api%5fkey=mp-secret",
            "a=b&%61%70i%4B%65y=mp-secret",
        ] {
            let request = Request::get(format!("/v1/models?{query}"));
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let failure = check(&parts, "/llm").unwrap_err();
            assert_eq!(failure.kind, ErrorKind::Invalid, "{query}");
            assert!(!failure.json().contains("mp-secret"), "{}", failure.json());
        }
        let fine = Request::get("/llm/admin/models?model=key&monkey=1");
        assert_eq!(status(fine), 200);
    }

    #[test]
    fn a_body_with_a_content_encoding_is_refused() {
        let coded = |coding: &str| {
            let request = Request::post("/v1/completions");
            status(request.header(header::CONTENT_ENCODING, coding))
        };
        assert_eq!(coded("gzip"), 415);
        assert_eq!(coded("identity, gzip"), 415);
        assert_eq!(coded("Identity"), 200);
    }
}
