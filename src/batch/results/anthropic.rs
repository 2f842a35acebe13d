//! Translates a stored result into a line of Anthropic's batch results.

use std::borrow::Cow;
use std::io::{self, ErrorKind};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

const FIRST_ERROR_STATUS: u16 = 400;

#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(borrow)]
    custom_id: Cow<'a, str>,
    #[serde(borrow)]
    response: Option<StoredResponse<'a>>,
    #[serde(borrow)]
    error: Option<StoredError<'a>>,
}

#[derive(Deserialize)]
struct StoredResponse<'a> {
    status_code: u16,
    #[serde(borrow)]
    body: &'a RawValue,
}

#[derive(Deserialize)]
struct StoredError<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

#[derive(Serialize)]
struct Line<'a> {
    custom_id: &'a str,
    result: Outcome<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Outcome<'a> {
    Succeeded { message: &'a RawValue },
    Errored { error: Failure<'a> },
    Expired,
    Canceled,
}

#[derive(Serialize)]
struct Failure<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    error: Cow<'a, RawValue>,
}

#[derive(Serialize)]
struct Cause<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
}

/// Translates a stored line, with or without its `\n`, to a line without one.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if the line is not a result.
pub fn anthropic_line(stored: &[u8]) -> io::Result<Vec<u8>> {
    let stored: Stored = serde_json::from_slice(stored).map_err(invalid)?;
    let result = match (&stored.response, &stored.error) {
        (_, Some(error)) => match error.code.as_ref() {
            "batch_expired" => Outcome::Expired,
            "batch_cancelled" => Outcome::Canceled,
            _ => errored("api_error", &error.message)?,
        },
        (Some(response), None) if response.status_code >= FIRST_ERROR_STATUS => {
            match error_in(response.body) {
                Some(error) => Outcome::Errored {
                    error: failure(Cow::Borrowed(error)),
                },
                None => errored(
                    kind_of(response.status_code),
                    &format!("the request failed with status {}", response.status_code),
                )?,
            }
        }
        (Some(response), None) => Outcome::Succeeded {
            message: response.body,
        },
        (None, None) => return Err(invalid("the line has neither a response nor an error")),
    };
    let line = Line {
        custom_id: &stored.custom_id,
        result,
    };
    serde_json::to_vec(&line).map_err(invalid)
}

/// Returns the error object of a body. Bodies of both formats have it under the same name.
fn error_in(body: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        error: &'a RawValue,
    }
    let body: Body = serde_json::from_str(body.get()).ok()?;
    body.error.get().starts_with('{').then_some(body.error)
}

fn errored<'a>(kind: &'static str, message: &str) -> io::Result<Outcome<'a>> {
    let cause = to_raw_value(&Cause { kind, message }).map_err(invalid)?;
    Ok(Outcome::Errored {
        error: failure(Cow::Owned(cause)),
    })
}

fn failure(error: Cow<'_, RawValue>) -> Failure<'_> {
    Failure {
        kind: "error",
        error,
    }
}

/// The type that Anthropic's API has for a status.
fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(rest: &str) -> String {
        let stored = format!(r#"{{"id":"batch_req_0","custom_id":"a\"é",{rest}}}"#);
        let line = anthropic_line(format!("{stored}\n").as_bytes()).expect("a result");
        assert_eq!(anthropic_line(stored.as_bytes()).expect("a result"), line);
        let line = String::from_utf8(line).expect("UTF-8");
        let result = line.strip_prefix(r#"{"custom_id":"a\"é","result":"#);
        let result = result.and_then(|result| result.strip_suffix('}'));
        result.expect("a result").to_owned()
    }

    #[test]
    fn each_kind_of_result_has_its_type() {
        let response = |status: u16, body: &str| {
            format!(
                r#""response":{{"status_code":{status},"request_id":"r","body":{body}}},"error":null"#
            )
        };
        let error =
            |code: &str| format!(r#""response":null,"error":{{"code":"{code}","message":"m\n"}}"#);
        let cases = [
            (
                response(200, r#"{"id": 1.0}"#),
                r#"{"type":"succeeded","message":{"id": 1.0}}"#,
            ),
            (
                response(
                    400,
                    r#"{"type":"error","error":{"type":"invalid_request_error","message":"x"}}"#,
                ),
                r#"{"type":"errored","error":{"type":"error","error":{"type":"invalid_request_error","message":"x"}}}"#,
            ),
            (
                response(429, r#"{"error":"slow down"}"#),
                r#"{"type":"errored","error":{"type":"error","error":{"type":"rate_limit_error","message":"the request failed with status 429"}}}"#,
            ),
            (
                response(502, "[]"),
                r#"{"type":"errored","error":{"type":"error","error":{"type":"api_error","message":"the request failed with status 502"}}}"#,
            ),
            (
                error("model_gone"),
                r#"{"type":"errored","error":{"type":"error","error":{"type":"api_error","message":"m\n"}}}"#,
            ),
            (error("batch_expired"), r#"{"type":"expired"}"#),
            (error("batch_cancelled"), r#"{"type":"canceled"}"#),
        ];
        for (stored, expected) in cases {
            assert_eq!(translated(&stored), expected, "{stored}");
        }
    }

    #[test]
    fn other_lines_are_invalid() {
        for line in [
            "",
            "{}",
            "7",
            r#"{"custom_id":"a","response":null,"error":null}"#,
        ] {
            let error = anthropic_line(line.as_bytes()).expect_err(line);
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{line}");
        }
    }
}
