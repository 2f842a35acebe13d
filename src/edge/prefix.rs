//! The path prefix that a trusted proxy removes from URLs: `X-Forwarded-Prefix`.

use axum::http::HeaderMap;
use axum::http::request::Parts;

const HEADER: &str = "x-forwarded-prefix";
const BYTES_MAX: usize = 200;

/// The prefix of a request as named by a trusted proxy. Begins with `/` and does not end with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedPrefix(String);

impl ForwardedPrefix {
    /// `None` for a prefix that could be read as another URL.
    pub fn read(headers: &HeaderMap) -> Option<ForwardedPrefix> {
        let mut values = headers.get_all(HEADER).iter();
        let (first, second) = (values.next()?, values.next());
        let text = first.to_str().ok()?.trim().trim_end_matches('/');
        let path = text.strip_prefix('/')?;
        let plain = |segment: &str| {
            let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !matches!(segment, "" | "." | "..") && segment.bytes().all(letter)
        };
        let is_plain = second.is_none() && text.len() <= BYTES_MAX && path.split('/').all(plain);
        is_plain.then(|| ForwardedPrefix(text.to_owned()))
    }
}

/// The prefix of this request, or an empty string.
pub fn forwarded_prefix(parts: &Parts) -> &str {
    let prefix = parts.extensions.get::<ForwardedPrefix>();
    prefix.map_or("", |prefix| &prefix.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    #[test]
    fn only_a_plain_path_is_accepted_as_a_prefix() {
        let read = |values: &[&str]| {
            let values = values.iter();
            let line = |value: &&str| (HeaderName::from_static(HEADER), value.parse().unwrap());
            let headers = HeaderMap::from_iter(values.map(line));
            ForwardedPrefix::read(&headers).map(|prefix| prefix.0)
        };
        for (value, prefix) in [("/ai", "/ai"), ("/ai/", "/ai"), ("/a/b-1", "/a/b-1")] {
            assert_eq!(read(&[value]).as_deref(), Some(prefix));
        }
        for value in [
            "",
            "/",
            "ai",
            "//evil.example",
            "/a/../b",
            "/a;b",
            "/a, /b",
            "/a\\b",
            "/<b>",
        ] {
            assert_eq!(read(&[value]), None, "{value}");
        }
        assert_eq!(read(&["/a", "/b"]), None);
        assert_eq!(read(&[]), None);
    }
}
