//! OpenAI's Responses route, served as a chat. Stored responses are in `stored_responses`.

use std::pin::pin;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;

use crate::auth::User;
use crate::inference::admission::RequestContext;
use crate::inference::request::receiving::read;
use crate::inference::routes::tokens;
use crate::inference::stages::complete;
use crate::inference::understood::find;
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use api_types::schemas::responses::ResponseRequest;
use api_types::schemas::responses_events::ResponseEvent;
use api_types::schemas::responses_response::ResponseObject;
use api_types::schemas::responses_stored::ResponseTokens;
use dialect::CHAT;
use dialect::Dialect;

/// Create a response (OpenAI's Responses)
///
/// The pool translates the request into a chat request, which every engine that generates text can answer. If the model is not
/// loaded, the pool loads it and the request waits. Unsupported fields are refused with a 400 that names them.
/// docs/reference/api.md lists what is supported.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/responses", tag = "chat", operation_id = "create_response",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = ResponseRequest, examples(
        ("answer" = (summary = "An answer", value = json!({
            "model": "tiny-guide", "instructions": "Answer shortly.", "input": "What is a priority?", "max_output_tokens": 64
        }))),
        ("stream" = (summary = "As events", value = json!({
            "model": "tiny-guide", "stream": true, "max_output_tokens": 64,
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "What is a priority?"}]}]
        }))),
    )),
    responses(
        (status = 200, description = "The answer, or with `stream: true` its events", content(
            (ResponseObject = "application/json", example = json!({
                "id": "resp_0198f6", "object": "response", "created_at": 1764000000, "status": "completed",
                "model": "tiny-guide", "error": null, "incomplete_details": null,
                "output": [{"type": "message", "id": "msg_0198f6", "status": "completed", "role": "assistant",
                    "content": [{"type": "output_text", "text": "A priority is a number.", "annotations": [], "logprobs": []}]}],
                "usage": {"input_tokens": 12, "output_tokens": 6, "total_tokens": 18}
            })),
            (ResponseEvent = "text/event-stream", example = json!("event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"item_id\":\"msg_0198f6\",\"output_index\":0,\"content_index\":0,\"delta\":\"A\",\"logprobs\":[]}\n\n")),
        )),
        InferenceErrors,
    )
)]
pub async fn create(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    complete(app, user, request, CHAT, Dialect::Responses).await
}

/// Count the tokens of a conversation (OpenAI's Responses)
///
/// Takes the body of `POST /v1/responses`. Needs an engine with `/v1/tokenize`. If the model is not loaded, the pool loads it
/// and the request waits. Nothing is generated.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/responses/input_tokens", tag = "chat", operation_id = "count_response_tokens",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = ResponseRequest, example = json!({
        "model": "tiny-guide", "instructions": "Answer shortly.", "input": "What is a priority?"
    })),
    responses(
        (status = 200, description = "The number of tokens", body = ResponseTokens, example = json!({
            "object": "response.input_tokens", "input_tokens": 12
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn input_tokens(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    tokens::count_response(&app, user, request).await
}

/// Compact a conversation (OpenAI's Responses)
///
/// Not implemented: the pool returns 501. Clients such as Codex compact a conversation on their own: they request a summary from
/// the model with `POST /v1/responses`.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/responses/compact", tag = "chat", operation_id = "compact_response",
    security(("user_key" = [])),
    request_body(content = ResponseRequest, example = json!({
        "model": "tiny-guide", "input": "What is a priority?"
    })),
    responses(InferenceErrors)
)]
pub(crate) async fn compact(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(async {
        let body = read(&app, request.into_body()).await?;
        let (_, route) = find(&app, &context, body).await?;
        Err((Some(route.entry.name.clone()), not_compacted()))
    });
    context.end(&app, work).await
}

fn not_compacted() -> Failure {
    let message = "/v1/responses/compact is not supported: this server does not compact conversations. Request a summary from the model with POST /v1/responses and continue with it, or remove old items from `input`";
    Failure::new(ErrorKind::NotImplemented, "not_implemented", message)
}
