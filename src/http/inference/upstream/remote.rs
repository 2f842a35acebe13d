//! What differs in answers of a remote endpoint: its refusal of the pool's key is not the client's, a redirect is not
//! followed, and nothing that it repeats of the key is passed on.

use std::ops::Range;

use axum::body::Bytes;
use axum::http::StatusCode;

use crate::error::Failure;
use controller::Lease;
use engine::{Endpoint, Remote};

pub(crate) fn of(lease: &Lease) -> Option<&Remote> {
    match lease.endpoint() {
        Endpoint::Remote(remote) => Some(remote),
        Endpoint::Unix(_) | Endpoint::Tcp(_) | Endpoint::Node(_) => None,
    }
}

/// An answer that must not reach the client as it is.
pub(crate) fn misplaced(lease: &Lease, model: &str, status: StatusCode) -> Option<Failure> {
    let remote = of(lease)?;
    let number = status.as_u16();
    let why = match number {
        401 | 403 => format!(
            "{remote} answered {number} to the pool's own key; an administrator has to look at the key of this model"
        ),
        300..=399 => format!(
            "{remote} answered {number}, a redirect, and the pool follows none; an administrator has to correct engine_config.url"
        ),
        _ => return None,
    };
    Some(Failure::engine(model, why))
}

/// No server was reached; otherwise the lease's own engine has the reason.
pub(crate) fn unreached(
    lease: &Lease,
    model: &str,
    error: &(dyn std::error::Error + 'static),
) -> Option<Failure> {
    let remote = of(lease)?;
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(Failure::engine(model, format!("{remote}: {cause}")))
}

/// An event of a stream, with the model called as the pool calls it.
pub(crate) fn renamed(lease: &Lease, model: &str, event: Vec<u8>) -> Vec<u8> {
    match of(lease).and_then(|_| model_in(&event)) {
        None => event,
        Some(place) => {
            let name = serde_json::Value::from(model).to_string();
            [&event[..place.start], name.as_bytes(), &event[place.end..]].concat()
        }
    }
}

/// Where the string of the outermost `"model"` stands, with its quotes. One pass, nothing is parsed.
fn model_in(event: &[u8]) -> Option<Range<usize>> {
    let string_end = |start: usize| {
        let mut at = start + 1;
        while *event.get(at)? != b'"' {
            at += if event[at] == b'\\' { 2 } else { 1 };
        }
        Some(at + 1)
    };
    let past_spaces = |mut at: usize| {
        while event.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        at
    };
    let (mut depth, mut at) = (0_u32, 0);
    while at < event.len() {
        match event[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = string_end(at)?;
                let colon = past_spaces(end);
                if depth == 1 && &event[at..end] == b"\"model\"" && event.get(colon) == Some(&b':')
                {
                    let value = past_spaces(colon + 1);
                    let is_string = event.get(value) == Some(&b'"');
                    return is_string.then_some(value..string_end(value)?);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// An error's body without what it repeats of the key.
pub(crate) fn masked(lease: &Lease, body: Bytes) -> Bytes {
    match of(lease) {
        None => body,
        Some(remote) => remote.masked(&String::from_utf8_lossy(&body)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(event: &str) -> Option<&str> {
        model_in(event.as_bytes()).map(|place| &event[place])
    }

    #[test]
    fn the_model_of_an_event_is_found_outermost_and_in_no_text() {
        for (event, model) in [
            (
                r#"data: {"id":"a","model":"theirs","choices":[]}"#,
                Some(r#""theirs""#),
            ),
            (r#"data: {"model" : "a\"b"}"#, Some(r#""a\"b""#)),
            (
                r#"data: {"x":{"model":"inner"},"model":"outer"}"#,
                Some(r#""outer""#),
            ),
            (r#"data: {"text":"\"model\":\"said\""}"#, None),
            (r#"data: {"role":"model"}"#, None),
            (r#"data: {"model":null}"#, None),
            (r#"data: {"model":"unended"#, None),
            (": a comment", None),
            ("data: [DONE]", None),
        ] {
            assert_eq!(found(event), model, "{event}");
        }
    }
}
