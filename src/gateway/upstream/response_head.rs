//! HTTP/1.1 heads: serializes request heads for engines and parses response heads.

use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use bytes::BytesMut;
use thiserror::Error;

use crate::upstream::framing::Framing;

/// Limits of a response head.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

/// Serializes the head of a request with a body of `length` bytes. Its URI is the path, and it has a `host` header.
pub(crate) fn of_request(parts: &Parts, length: usize) -> Vec<u8> {
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut head = Vec::with_capacity(512);
    let mut push = |texts: &[&[u8]]| texts.iter().for_each(|text| head.extend_from_slice(text));
    push(&[parts.method.as_str().as_bytes(), b" "]);
    push(&[path.as_bytes(), b" HTTP/1.1\r\n"]);
    for (name, value) in &parts.headers {
        push(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    let has_length = parts.headers.contains_key(header::CONTENT_LENGTH);
    if !has_length && (length > 0 || parts.method != Method::GET) {
        let length = length.to_string();
        push(&[b"content-length: ", length.as_bytes(), b"\r\n"]);
    }
    push(&[b"\r\n"]);
    head
}

/// An invalid response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BadHead {
    #[error(
        "it is longer than {} KiB, or has more than {} headers",
        HEAD_BYTES_MAX >> 10,
        HEADERS_MAX
    )]
    TooLong,
    #[error("its status line is not that of HTTP/1.1")]
    Status,
    #[error("a header is malformed")]
    Header,
    #[error("its content-length is invalid or ambiguous")]
    Length,
}

/// A parsed response head.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub framing: Framing,
    /// The connection may carry another request after the body.
    pub keeps: bool,
}

impl ResponseHead {
    /// Removes a complete head from `received`, or returns `None` if it is incomplete. Skips informational responses such as `100
    /// Continue`. Headers are written into `map`.
    pub fn take(
        received: &mut BytesMut,
        map: &mut HeaderMap,
    ) -> Result<Option<ResponseHead>, BadHead> {
        while let Some(length) = head_end(received) {
            if length > HEAD_BYTES_MAX {
                return Err(BadHead::TooLong);
            }
            map.clear();
            let text = received.split_to(length).freeze();
            let head = ResponseHead::read(&text, std::mem::take(map))?;
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Some(head));
            }
        }
        if received.len() > HEAD_BYTES_MAX {
            Err(BadHead::TooLong)
        } else {
            Ok(None)
        }
    }

    /// The headers' values are slices of `text`.
    fn read(text: &Bytes, mut headers: HeaderMap) -> Result<ResponseHead, BadHead> {
        let mut lines = Lines { text, at: 0 };
        let (is_1_1, status) = status_of(&lines.next().unwrap_or_default())?;
        for line in lines {
            if line.is_empty() {
                break;
            }
            if headers.len() >= HEADERS_MAX {
                return Err(BadHead::TooLong);
            }
            let (name, value) = header_of(&line).ok_or(BadHead::Header)?;
            headers.append(name, value);
        }
        let framing = framing_of(status, &headers)?;
        let keeps = if is_1_1 {
            !has_word(&headers, header::CONNECTION, "close")
        } else {
            has_word(&headers, header::CONNECTION, "keep-alive")
        };
        Ok(ResponseHead {
            status,
            headers,
            framing,
            keeps: keeps
                && framing != Framing::UntilClose
                && status != StatusCode::SWITCHING_PROTOCOLS,
        })
    }
}

/// The length of a complete head with its empty line. Lines may end with LF or CRLF.
fn head_end(received: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', received).find_map(|at| {
        let lines = &received[..=at];
        let is_end = lines.ends_with(b"\n\n") || lines.ends_with(b"\n\r\n");
        is_end.then_some(at + 1)
    })
}

/// The lines of a head, without line ends.
struct Lines<'a> {
    text: &'a Bytes,
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let rest = &self.text[self.at..];
        let length = memchr::memchr(b'\n', rest)?;
        let line = rest[..length]
            .strip_suffix(b"\r")
            .unwrap_or(&rest[..length]);
        let line = self.text.slice(self.at..self.at + line.len());
        self.at += length + 1;
        Some(line)
    }
}

/// Returns whether the version is HTTP/1.1 rather than 1.0, and the status.
fn status_of(line: &[u8]) -> Result<(bool, StatusCode), BadHead> {
    let read = || {
        let (version, rest) = line.split_at_checked(b"HTTP/1.1 ".len())?;
        let is_1_1 = match version {
            b"HTTP/1.1 " => true,
            b"HTTP/1.0 " => false,
            _ => return None,
        };
        let (code, reason) = rest.split_at_checked(3)?;
        let ends = reason.is_empty() || reason.starts_with(b" ");
        let status = StatusCode::from_bytes(code).ok().filter(|_| ends)?;
        Some((is_1_1, status))
    };
    read().ok_or(BadHead::Status)
}

fn header_of(line: &Bytes) -> Option<(HeaderName, HeaderValue)> {
    let colon = memchr::memchr(b':', line)?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    let value = line[colon + 1..].trim_ascii();
    let value = if value.is_empty() {
        HeaderValue::from_static("")
    } else {
        HeaderValue::from_maybe_shared(line.slice_ref(value)).ok()?
    };
    Some((name, value))
}

/// Returns true if a list header contains this word.
fn has_word(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter();
    let mut words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

fn framing_of(status: StatusCode, headers: &HeaderMap) -> Result<Framing, BadHead> {
    let has_no_body = status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    if has_no_body {
        return Ok(Framing::Length(0));
    }
    // Takes precedence over `content-length`.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(if has_word(headers, header::TRANSFER_ENCODING, "chunked") {
            Framing::CHUNKED
        } else {
            Framing::UntilClose
        });
    }
    let mut length = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        let text = value.to_str().unwrap_or_default();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| text.parse::<u64>().ok()).flatten();
        let number = number.ok_or(BadHead::Length)?;
        if length.is_some_and(|known| known != number) {
            return Err(BadHead::Length);
        }
        length = Some(number);
    }
    Ok(length.map_or(Framing::UntilClose, Framing::Length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> Result<Option<ResponseHead>, BadHead> {
        ResponseHead::take(&mut BytesMut::from(text), &mut HeaderMap::new())
    }

    #[test]
    fn a_request_is_written_with_its_length_and_headers() {
        let request = axum::http::Request::post("/v1/x?a=b")
            .header("host", "localhost")
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        assert_eq!(
            String::from_utf8(of_request(&parts, 2)).unwrap(),
            "POST /v1/x?a=b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n"
        );
        let (parts, ()) = axum::http::Request::get("/").body(()).unwrap().into_parts();
        assert_eq!(of_request(&parts, 0), b"GET / HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn framing_and_keep_alive_are_read_from_the_head() {
        for (head, framing, keeps) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
                Framing::Length(5),
                true,
            ),
            (
                "HTTP/1.1 200\r\ntransfer-encoding:chunked\r\n",
                Framing::CHUNKED,
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\nContent-Length: 5\r\n",
                Framing::CHUNKED,
                true,
            ),
            ("HTTP/1.1 200 OK\r\n", Framing::UntilClose, false),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n",
                Framing::Length(5),
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n",
                Framing::Length(5),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, close\r\n",
                Framing::Length(5),
                false,
            ),
            ("HTTP/1.1 204 No Content\r\n", Framing::Length(0), true),
            (
                "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 5\nx:\n",
                Framing::Length(5),
                true,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 Oh\r\nContent-Length: 0\r\n",
                Framing::Length(0),
                true,
            ),
        ] {
            let end = if head.contains('\r') { "\r\n" } else { "\n" };
            let mut received = BytesMut::from(format!("{head}{end}rest").as_str());
            let taken = ResponseHead::take(&mut received, &mut HeaderMap::new());
            let taken = taken.unwrap().unwrap();
            assert_eq!((taken.framing, taken.keeps), (framing, keeps), "{head}");
            assert_eq!(received, "rest", "{head}");
        }
    }

    #[test]
    fn headers_are_parsed_and_an_incomplete_head_is_awaited() {
        let head = "HTTP/1.1 404 Not Found\r\nContent-Type: application/json \r\nx-a:  b\r\nX-A: c\r\nx-empty:\r\n\r\n";
        let taken_head = taken(head).unwrap().unwrap();
        assert_eq!(taken_head.status, StatusCode::NOT_FOUND);
        assert_eq!(taken_head.headers["content-type"], "application/json");
        assert_eq!(taken_head.headers["x-empty"], "");
        let values: Vec<_> = taken_head.headers.get_all("x-a").into_iter().collect();
        assert_eq!(values, ["b", "c"]);
        for length in 0..head.len() {
            assert!(taken(&head[..length]).unwrap().is_none(), "{length}");
        }
    }

    #[test]
    fn a_head_ends_at_the_first_empty_line_with_any_line_ending() {
        let head = "HTTP/1.1 200 OK\nContent-Length: 8\n\r\n";
        let mut received = BytesMut::from(format!("{head}\r\n\r\nbody").as_str());
        let taken = ResponseHead::take(&mut received, &mut HeaderMap::new());
        assert_eq!(taken.unwrap().unwrap().framing, Framing::Length(8));
        assert_eq!(received, "\r\n\r\nbody");
        assert!(self::taken(&head[..head.len() - 1]).unwrap().is_none());
    }

    #[test]
    fn invalid_heads_are_refused() {
        for (head, bad) in [
            ("HTTP/2 200 OK\r\n\r\n", BadHead::Status),
            ("HTTP/1.1 2000 OK\r\n\r\n", BadHead::Status),
            ("SSH-2.0\r\n\r\n", BadHead::Status),
            ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", BadHead::Header),
            ("HTTP/1.1 200 OK\r\na b: c\r\n\r\n", BadHead::Header),
            (
                "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\n\r\n",
                BadHead::Header,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
                BadHead::Length,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
                BadHead::Length,
            ),
        ] {
            assert_eq!(taken(head).unwrap_err(), bad, "{head}");
        }
        let long = "x".repeat(HEAD_BYTES_MAX + 1);
        assert_eq!(taken(&long).unwrap_err(), BadHead::TooLong);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
        assert_eq!(taken(&many).unwrap_err(), BadHead::TooLong);
    }
}
