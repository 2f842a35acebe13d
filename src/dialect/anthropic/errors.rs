//! Translates errors of the pool and of engines into Anthropic's form on its routes. Authentication, limits, queue, routing and
//! engines all produce such errors. The status and retry headers stay the same.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use super::super::translation::error_in;
use crate::overflow::{self, Overflow};

/// Clients that read this code continue without threads.
pub(super) const NO_THREADS: &str = "thread_unsupported_request";
/// Maximum size of an error body in bytes.
const ERROR_MAX: usize = 1 << 20;

/// Returns true if the path belongs to the Messages API.
pub fn is_route(path: &str) -> bool {
    let at = path.find("/v1/messages");
    let rest = at.map(|at| &path[at + "/v1/messages".len()..]);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Adds Anthropic's `request-id` header, and translates an error body.
pub async fn retold(mut response: Response, id: &HeaderValue) -> Response {
    response.headers_mut().insert("request-id", id.clone());
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = match Limited::new(body, ERROR_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => error.to_string().into(),
    };
    let error = error_in(&String::from_utf8_lossy(&body));
    let translated = error_of(&error, Some(status), id.to_str().ok());
    head.headers.remove(header::CONTENT_LENGTH);
    let json = HeaderValue::from_static("application/json");
    head.headers.insert(header::CONTENT_TYPE, json);
    Response::from_parts(head, Body::from(translated.to_string()))
}

/// Translates an OpenAI error object. Without a status (in a stream), the type comes from the error itself.
pub fn error_of(error: &Value, status: Option<StatusCode>, id: Option<&str>) -> Value {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let kind = match status.map(|status| status.as_u16()) {
        Some(401) => "authentication_error",
        Some(403) => "permission_error",
        Some(404) => "not_found_error",
        Some(413) => "request_too_large",
        Some(429) => "rate_limit_error",
        Some(503 | 529) => "overloaded_error",
        Some(504) => "timeout_error",
        Some(501 | 400..=499) => "invalid_request_error",
        Some(_) => "api_error",
        None => match (text("type"), text("code")) {
            ("rate_limit_error", _) => "rate_limit_error",
            (_, "engine_error" | "engine_crashed" | "internal_error") => "api_error",
            // Refusals by the pool.
            ("server_error", code) if !code.is_empty() => "overloaded_error",
            ("invalid_request_error" | "BadRequestError", _) => "invalid_request_error",
            _ => "api_error",
        },
    };
    let overflow = (text("code") == overflow::CODE)
        .then(|| Overflow::from_error(error))
        .flatten();
    let message = overflow.map(|overflow| overflow.message_of_anthropic());
    let message = message.unwrap_or_else(|| text("message").to_owned());
    let mut inner = json!({"type": kind, "message": message});
    if text("code") == NO_THREADS {
        inner["details"] = json!({"error_code": NO_THREADS, "unsupported": ["thread"]});
    }
    json!({"type": "error", "error": inner, "request_id": id})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_routes_use_anthropics_error_format() {
        for (path, is) in [
            ("/v1/messages", true),
            ("/llm/v1/messages/count_tokens", true),
            ("/v1/messages/batches", true),
            ("/v1/messagesx", false),
            ("/v1/chat/completions", false),
        ] {
            assert_eq!(is_route(path), is, "{path}");
        }
    }

    #[test]
    fn every_status_and_stream_error_maps_to_an_anthropic_error_type() {
        let error = json!({"message": "m", "type": "server_error", "code": "no_room"});
        for (status, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (405, "invalid_request_error"),
            (413, "request_too_large"),
            (429, "rate_limit_error"),
            (501, "invalid_request_error"),
            (502, "api_error"),
            (503, "overloaded_error"),
        ] {
            let translated = error_of(&error, StatusCode::from_u16(status).ok(), Some("req-1"));
            let expected = json!({"type": "error", "error": {"type": kind, "message": "m"}, "request_id": "req-1"});
            assert_eq!(translated, expected);
        }
        assert_eq!(
            error_of(&error, None, None)["error"]["type"],
            "overloaded_error"
        );
        let thread = json!({"message": "m", "type": "invalid_request_error", "code": NO_THREADS});
        let translated = error_of(&thread, Some(StatusCode::BAD_REQUEST), None);
        assert_eq!(translated["error"]["details"]["error_code"], NO_THREADS);
        let long = json!({"message": "the prompt has 600 tokens; this model's maximum context length is 512 tokens: shorten the prompt",
            "type": "invalid_request_error", "code": overflow::CODE});
        let translated = error_of(&long, Some(StatusCode::BAD_REQUEST), None);
        let wanted = json!({"type": "invalid_request_error", "message": "prompt is too long: 600 tokens > 512 maximum"});
        assert_eq!(translated["error"], wanted);
        let crashed = json!({"message": "m", "type": "server_error", "code": "engine_crashed"});
        assert_eq!(error_of(&crashed, None, None)["error"]["type"], "api_error");
    }
}
