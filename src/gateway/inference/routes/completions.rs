//! OpenAI's routes for chats and completions, served by the gateway.

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;

use crate::auth::User;
use crate::inference::stages::complete;
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use api_types::schemas::chat::ChatCompletionRequest;
use api_types::schemas::chat_response::{ChatCompletion, ChatCompletionChunk};
use api_types::schemas::completions::{Completion, CompletionRequest};
use dialect::Dialect;
use dialect::{CHAT, COMPLETIONS};

/// Create a chat completion
///
/// The model answers the last message. If it is not loaded, the pool loads it and the request waits. With `stream: true` the
/// response is sent as server-sent events. While the request waits, the stream has comments such as `: waiting position=1
/// stage=loading`, which clients ignore. An error after the first event ends the stream with an event that holds an error object.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "chat", operation_id = "create_chat_completion",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = ChatCompletionRequest, examples(
        ("answer" = (summary = "An answer", value = json!({
            "model": "tiny-guide", "messages": [{"role": "user", "content": "What is a priority?"}]
        }))),
        ("stream" = (summary = "In pieces", value = json!({
            "model": "tiny-guide", "messages": [{"role": "user", "content": "What is a priority?"}],
            "stream": true, "stream_options": {"include_usage": true}
        }))),
        ("json" = (summary = "JSON that matches a schema", value = json!({
            "model": "tiny-guide", "messages": [{"role": "user", "content": "Is keep-hot a time?"}], "max_tokens": 64,
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {
                "type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]
            }}}
        }))),
    )),
    responses(
        (status = 200, description = "The answer, or with `stream: true` its pieces", content(
            (ChatCompletion = "application/json", example = json!({
                "id": "chatcmpl-9f1c", "object": "chat.completion", "created": 1764000000, "model": "tiny-guide",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "A priority is a number.", "refusal": null},
                    "logprobs": null, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18}
            })),
            (ChatCompletionChunk = "text/event-stream", example = json!("data: {\"id\":\"chatcmpl-9f1c\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"tiny-guide\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"The\"},\"logprobs\":null,\"finish_reason\":null}]}\n\ndata: [DONE]\n\n")),
        )),
        InferenceErrors,
    )
)]
pub async fn chat_completions(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    complete(app, user, request, CHAT, Dialect::OpenAi).await
}

/// Create a completion
///
/// The model continues the prompt, without a chat template. If it is not loaded, the pool loads it and the request waits. With
/// `stream: true` the response is sent as server-sent events.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/completions", tag = "completions", operation_id = "create_completion",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = CompletionRequest, examples(
        ("text" = (summary = "A text", value = json!({
            "model": "tiny-chat", "prompt": "A priority is", "max_tokens": 16
        }))),
        ("stream" = (summary = "Two texts, in pieces", value = json!({
            "model": "tiny-chat", "prompt": ["A priority is", "A model is"], "max_tokens": 16, "stream": true
        }))),
    )),
    responses(
        (status = 200, description = "The continued texts, or with `stream: true` their pieces", content(
            (Completion = "application/json", example = json!({
                "id": "cmpl-41d0", "object": "text_completion", "created": 1764000000, "model": "tiny-chat",
                "choices": [{"index": 0, "text": " a number.", "logprobs": null, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
            })),
            (Completion = "text/event-stream", example = json!("data: {\"id\":\"cmpl-41d0\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"tiny-chat\",\"choices\":[{\"index\":0,\"text\":\" a\",\"logprobs\":null,\"finish_reason\":null}]}\n\ndata: [DONE]\n\n")),
        )),
        InferenceErrors,
    )
)]
pub async fn completions(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    complete(app, user, request, COMPLETIONS, Dialect::OpenAi).await
}
