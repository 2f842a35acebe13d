//! Anthropic's Messages routes: the request is translated into a chat, and the response is translated back.

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;

use crate::auth::User;
use crate::inference::routes::tokens;
use crate::inference::stages::complete;
use crate::openapi::{MessageErrors, WaitHeaders};
use crate::state::App;
use api_types::schemas::messages::{CountTokensRequest, MessageRequest};
use api_types::schemas::messages_response::{Message, MessageEvent};
use api_types::schemas::tokens::MessageTokens;
use dialect::CHAT;
use dialect::Dialect;

/// Create a message (Anthropic's Messages)
///
/// The pool translates the request into a chat request, which every engine that generates text can answer. If the model is not
/// loaded, the pool loads it and the request waits. Clients may send the key as `x-api-key` instead. Any `anthropic-version` is
/// accepted. Errors have Anthropic's form. docs/reference/api.md lists what is supported.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/messages", tag = "chat", operation_id = "create_message",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = MessageRequest, examples(
        ("answer" = (summary = "An answer", value = json!({
            "model": "tiny-guide", "max_tokens": 64, "messages": [{"role": "user", "content": "What is a priority?"}]
        }))),
        ("stream" = (summary = "As events", value = json!({
            "model": "tiny-guide", "max_tokens": 64, "stream": true, "system": "Answer shortly.",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "What is a priority?"}]}]
        }))),
    )),
    responses(
        (status = 200, description = "The answer, or with `stream: true` its events", content(
            (Message = "application/json", example = json!({
                "id": "msg_0198f6", "type": "message", "role": "assistant", "model": "tiny-guide",
                "content": [{"type": "text", "text": "A priority is a number."}],
                "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 12, "output_tokens": 6}
            })),
            (MessageEvent = "text/event-stream", example = json!("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"A\"}}\n\n")),
        )),
        MessageErrors,
    )
)]
pub async fn create(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    complete(app, user, request, CHAT, Dialect::Anthropic).await
}

/// Count the tokens of a conversation (Anthropic's Messages)
///
/// Needs an engine with `/v1/tokenize`. If the model is not loaded, the pool loads it and the request waits. Nothing is
/// generated. Errors have Anthropic's form.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", tag = "chat", operation_id = "count_message_tokens",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = CountTokensRequest, example = json!({
        "model": "tiny-guide", "messages": [{"role": "user", "content": "What is a priority?"}]
    })),
    responses(
        (status = 200, description = "The number of tokens", body = MessageTokens, example = json!({"input_tokens": 12})),
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
