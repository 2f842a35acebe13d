//! Special handling of remote endpoints: a refusal of the pool's key is not the client's error, redirects are not followed, and
//! responses never contain the key.

use std::ops::Range;

use axum::body::Bytes;
use axum::http::StatusCode;

use api_types::error::Failure;
use controller::Lease;
use engine::{Endpoint, Remote};

pub(crate) fn of_lease(lease: &Lease) -> Option<&Remote> {
    match lease.endpoint() {
        Endpoint::Remote(remote) => Some(remote),
        Endpoint::Unix(_) | Endpoint::Tcp(_) | Endpoint::Node(_) => None,
    }
}

/// The error for a response that must not reach the client.
pub(crate) fn misplaced(lease: &Lease, model: &str, status: StatusCode) -> Option<Failure> {
    let remote = of_lease(lease)?;
    let number = status.as_u16();
    let why = match number {
        401 | 403 => format!(
            "{remote} returned {number} for the pool's own key; an administrator must check the key of this model"
        ),
        300..=399 => format!(
            "{remote} returned {number}, a redirect, which is not followed; an administrator must correct engine_config.url"
        ),
        _ => return None,
    };
    Some(Failure::engine(model, why))
}

/// The error if no server was reached. `None` for local engines, whose lease has the reason.
pub(crate) fn unreached(
    lease: &Lease,
    model: &str,
    error: &(dyn std::error::Error + 'static),
) -> Option<Failure> {
    let remote = of_lease(lease)?;
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(Failure::engine(model, format!("{remote}: {cause}")))
}

/// Replaces the model's name in a stream event by the pool's name.
pub(crate) fn renamed(lease: &Lease, model: &str, event: Vec<u8>) -> Vec<u8> {
    match of_lease(lease).and_then(|_| model_in(&event)) {
        None => event,
        Some(place) => {
            let name = serde_json::Value::from(model).to_string();
            [&event[..place.start], name.as_bytes(), &event[place.end..]].concat()
        }
    }
}

/// Returns the range of the outermost `"model"` string, including its quotes. Scans once without parsing.
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

/// Removes the key from an error's body.
pub(crate) fn masked(lease: &Lease, body: Bytes) -> Bytes {
    match of_lease(lease) {
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
    fn the_model_of_an_event_is_found_only_at_the_top_level() {
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
