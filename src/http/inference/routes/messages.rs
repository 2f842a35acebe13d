//! Anthropic's Messages routes: an answer is made as a chat's is, and told in their words.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use utoipa::IntoResponses;
use utoipa::openapi::{Content, RefOr, Response as Described, ResponseBuilder, Schema};

use crate::auth::User;
use crate::dialect::{Dialect, anthropic};
use crate::inference::gateway::complete;
use crate::inference::request::outgoing::CHAT;
use crate::inference::routes::tokens;
use crate::openapi::InferenceErrors;
use crate::state::App;

/// Answer a conversation, in the words of Anthropic's Messages API.
///
/// The key goes as `x-api-key` or as a bearer. Thinking, tools that a server would call, documents, and pictures
/// at other addresses are refused with a 400 that names the field. Errors have Anthropic's form.
#[utoipa::path(
    post, path = "/v1/messages", tag = "inference",
    request_body(content = Object, description = "Anthropic's request for a message", example = json!({
        "model": "tiny-guide", "max_tokens": 64, "messages": [{"role": "user", "content": "What is a priority?"}]
    })),
    responses(
        (status = 200, description = "A message, or a stream of events from `message_start` to `message_stop`"),
        MessageErrors,
    )
)]
pub(crate) async fn create(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    complete(app, user, request, CHAT, Dialect::Anthropic).await
}

/// How many tokens a message would have. The model is loaded if it is not ready.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", tag = "inference",
    request_body(content = Object, description = "Anthropic's request for a message, without what concerns its answer", example = json!({
        "model": "tiny-guide", "messages": [{"role": "user", "content": "What is a priority?"}]
    })),
    responses(
        (status = 200, description = "The number of tokens", example = json!({"input_tokens": 12})),
        MessageErrors,
    )
)]
pub(crate) async fn count_tokens(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    tokens::count(&app, user, request).await
}

/// What every inference route may answer, in the form that these have.
struct MessageErrors;

impl IntoResponses for MessageErrors {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        let all = InferenceErrors::responses().into_iter();
        let told = all.filter_map(|(status, response)| {
            let RefOr::T(response) = response else {
                return None;
            };
            let RefOr::T(content) = response.content.into_values().next()? else {
                return None;
            };
            let example = content.example?;
            let code = StatusCode::from_bytes(status.as_bytes()).ok();
            let error = anthropic::error_of(&example["error"], code, Some("req-1"));
            let mut content = Content::new::<RefOr<Schema>>(None);
            content.example = Some(error);
            let described = ResponseBuilder::new()
                .description(response.description)
                .content("application/json", content)
                .build();
            Some((status, RefOr::T(described)))
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_described_in_their_form() {
        let all = serde_json::to_value(MessageErrors::responses()).unwrap();
        let wanted = serde_json::to_value(InferenceErrors::responses()).unwrap();
        assert_eq!(
            all.as_object().unwrap().len(),
            wanted.as_object().unwrap().len()
        );
        for (status, response) in all.as_object().unwrap() {
            let example = &response["content"]["application/json"]["example"];
            assert_eq!(example["type"], "error", "{status}");
            assert!(example["error"]["message"].is_string(), "{status}");
        }
    }
}
