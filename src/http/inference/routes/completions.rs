//! OpenAI's routes for chats and completed texts. What becomes of a request is the gateway's.

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;

use crate::auth::User;
use crate::dialect::Dialect;
use crate::inference::gateway::complete;
use crate::inference::request::outgoing::{CHAT, COMPLETIONS};
use crate::openapi::InferenceErrors;
use crate::state::App;

/// Chat with a model. A model that is not ready is loaded; the request waits for it.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "inference",
    request_body(content = Object, description = "OpenAI's chat completion request", example = json!({
        "model": "tiny-guide", "messages": [{"role": "user", "content": "What is a priority?"}], "stream": false
    })),
    responses(
        (status = 200, description = "A chat.completion, or a stream of chat.completion.chunk events; while the model loads, a stream carries comments such as `: waiting position=1 stage=loading`"),
        InferenceErrors,
    )
)]
pub(crate) async fn chat_completions(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    complete(app, user, request, CHAT, Dialect::OpenAi).await
}

/// Complete a text.
#[utoipa::path(
    post, path = "/v1/completions", tag = "inference",
    request_body(content = Object, description = "OpenAI's completion request", example = json!({
        "model": "tiny-chat", "prompt": "A priority is", "max_tokens": 16
    })),
    responses(
        (status = 200, description = "A text_completion, or a stream of them"),
        InferenceErrors,
    )
)]
pub(crate) async fn completions(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    complete(app, user, request, COMPLETIONS, Dialect::OpenAi).await
}
