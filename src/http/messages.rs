//! Anthropic's Messages routes: an answer is made as a chat's is, and told in their words.

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;

use super::auth::User;
use super::dialect::Dialect;
use super::gateway::complete;
use super::openapi::InferenceErrors;
use super::outgoing::CHAT;
use super::state::App;
use super::tokens;

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
        InferenceErrors,
    )
)]
pub(super) async fn create(State(app): State<App>, user: User, request: Request<Body>) -> Response {
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
        InferenceErrors,
    )
)]
pub(super) async fn count_tokens(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    tokens::count(&app, user, request).await
}
