//! OpenAI's Responses route, served as a chat. Stored responses are in `stored_responses`.

use std::pin::pin;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::http::request::Parts;
use axum::response::Response;

use crate::auth::User;
use crate::inference::admission::RequestContext;
use crate::inference::background::accept::{BackgroundRequest, accept};
use crate::inference::received::reading;
use crate::inference::request::receiving::read;
use crate::inference::routes::tokens;
use crate::inference::stages::{complete_read, respond};
use crate::openapi::{InferenceErrors, WaitHeaders};
use crate::state::App;
use api_types::schemas::responses::ResponseRequest;
use api_types::schemas::responses_events::ResponseEvent;
use api_types::schemas::responses_response::ResponseObject;
use api_types::schemas::responses_stored::{CompactedResponse, ResponseTokens};
use dialect::{CHAT, Dialect, Teller, responses};
use edge::record;

/// Create a response (OpenAI's Responses)
///
/// The pool translates the request into a chat request, which every engine that generates text can answer. If the model is not
/// loaded, the pool loads it and the request waits. Unsupported fields are refused with a 400 that names them.
/// docs/reference/api.md lists what is supported. With `background: true`, the response is queued and read later by its id.
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
    let (Parts { headers, .. }, body) = request.into_parts();
    let context = RequestContext::taking(&app, user, headers);
    let work = pin!(async {
        let body = read(&app, body).await?;
        if context.user.batch.is_none()
            && let Some(background) = BackgroundRequest::read(&app, &body)
                .await
                .map_err(|failure| (None, failure))?
        {
            // Boxed because it is rare, and large within each request's future.
            return Box::pin(accept(&app, &context, body, background)).await;
        }
        complete_read(&app, &context, body, CHAT, Dialect::Responses).await
    });
    context.end(&app, work).await
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
/// The model writes a summary of the conversation. The response has the latest messages of the user and an item `compaction` with
/// the encrypted summary, to be sent as the beginning of the next `input`.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/responses/compact", tag = "chat", operation_id = "compact_response",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = ResponseRequest, example = json!({
        "model": "tiny-guide", "input": "What is a priority?"
    })),
    responses(
        (status = 200, description = "The shorter conversation", body = CompactedResponse, example = json!({
            "id": "resp_0198f6", "object": "response.compaction", "created_at": 1764000000,
            "output": [{"type": "compaction", "id": "cmp_0198f6", "encrypted_content": "mp1.AAAA"}],
            "usage": {"input_tokens": 12, "output_tokens": 6, "total_tokens": 18}
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn compact(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(async {
        let body = read(&app, request.into_body()).await?;
        let reading = reading(&app, &context, &body, Dialect::Responses).await?;
        let earlier = reading.desk.as_ref().map_or(0, |desk| desk.earlier().bytes);
        let (bytes, share) = (body.len() + earlier, record::share());
        let translate = move || responses::compact(&body, &reading);
        let translated = app.reading.run(bytes, translate).await;
        let mut translated = translated.map_err(|failure| (None, failure))?;
        translated.body = share.charge(translated.body);
        let translated = translated.with(|summary| Teller::Compaction(Box::new(summary)));
        Box::pin(respond(&app, &context, CHAT, translated)).await
    });
    context.end(&app, work).await
}
