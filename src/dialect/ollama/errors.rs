//! Translates errors of the pool and of engines into Ollama's form, `{"error": "…"}`, on its routes. The status and retry headers
//! stay the same.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use super::super::translation::error_in;

/// Maximum size of an error body in bytes.
const ERROR_MAX: usize = 1 << 20;

/// Field names in engine errors, and the client's names for them.
const FIELDS: [(&str, &str); 9] = [
    ("`response_format`", "`format`"),
    ("`max_tokens`", "`options.num_predict`"),
    ("`repetition_penalty`", "`options.repeat_penalty`"),
    ("`temperature`", "`options.temperature`"),
    ("`top_p`", "`options.top_p`"),
    ("`top_k`", "`options.top_k`"),
    ("`min_p`", "`options.min_p`"),
    ("`seed`", "`options.seed`"),
    ("`stop`", "`options.stop`"),
];

/// Returns true if the path belongs to Ollama's API, with or without the base path.
pub fn is_route(path: &str, base: &str) -> bool {
    let below = path.strip_prefix(base).unwrap_or(path);
    below.starts_with("/api/")
}

/// Translates an error response; passes other responses through.
pub async fn retold(response: Response) -> Response {
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
    let translated = json!({"error": message_of(&error)});
    head.headers.remove(header::CONTENT_LENGTH);
    let json = HeaderValue::from_static("application/json");
    head.headers.insert(header::CONTENT_TYPE, json);
    Response::from_parts(head, Body::from(translated.to_string()))
}

/// The message of an OpenAI error object. For an unknown model it begins as Ollama's message does, which clients match.
pub fn message_of(error: &Value) -> String {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let message = text("message");
    let unknown = message.strip_prefix("no model is called ");
    let unknown = unknown.filter(|_| text("code") == "model_not_found");
    match unknown.and_then(|rest| rest.split_once("; ")) {
        Some((name, hint)) => {
            let hint = hint.replace("GET /v1/models", "GET /api/tags");
            let hint = hint.replace(", and so does `admin-client models`", "");
            format!("model '{name}' not found; {hint}")
        }
        None if message.is_empty() => "the request failed without a message".to_owned(),
        None => FIELDS
            .iter()
            .fold(message.to_owned(), |text, (field, sent)| {
                text.replace(field, sent)
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_types::error::Failure;

    #[test]
    fn an_unknown_model_is_reported_with_ollamas_message() {
        let translated = |closest: &[&str]| {
            let closest: Vec<String> = closest.iter().map(|name| (*name).to_owned()).collect();
            message_of(&json!(Failure::unknown_model("a", &closest).body.error))
        };
        assert_eq!(
            translated(&[]),
            "model 'a' not found; GET /api/tags lists all models"
        );
        assert_eq!(translated(&["b"]), "model 'a' not found; the closest is b");
        assert_eq!(
            translated(&["b", "c"]),
            "model 'a' not found; the closest are: b, c"
        );
        assert_eq!(message_of(&json!({"message": "no room"})), "no room");
        assert!(!message_of(&json!({})).is_empty());
        let of_engine = json!({"message": "`response_format` cannot be followed"});
        assert_eq!(message_of(&of_engine), "`format` cannot be followed");
    }

    #[test]
    fn only_ollama_routes_use_ollamas_error_format() {
        for (path, is) in [
            ("/api/chat", true),
            ("/llm/api/tags", true),
            ("/llm/api/nothing", true),
            ("/api", false),
            ("/llm/v1/api/chat", false),
            ("/v1/chat/completions", false),
        ] {
            assert_eq!(is_route(path, "/llm"), is, "{path}");
        }
    }
}
