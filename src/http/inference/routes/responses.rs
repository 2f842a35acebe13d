//! OpenAI's Responses routes. An answer is made as a chat's is; none is kept, so that there is none to get or
//! to delete.

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;

use crate::auth::User;
use crate::dialect::Dialect;
use crate::error::{ErrorBody, Failure};
use crate::inference::gateway::complete;
use crate::inference::request::outgoing::CHAT;
use crate::openapi::InferenceErrors;
use crate::state::App;

/// Answer a conversation, in the words of the Responses API. Nothing of it is kept.
///
/// `store: true`, `previous_response_id`, `conversation`, `background: true`, tools that a server would call,
/// reasoning, and files or pictures at other addresses are refused with a 400 that names the field.
#[utoipa::path(
    post, path = "/v1/responses", tag = "inference",
    request_body(content = Object, description = "OpenAI's request for a response", example = json!({
        "model": "tiny-guide", "instructions": "Answer shortly.", "input": "What is a priority?", "max_output_tokens": 64
    })),
    responses(
        (status = 200, description = "A response, or a stream of events from `response.created` to `response.completed`, `response.incomplete` or `response.failed`"),
        InferenceErrors,
    )
)]
pub(crate) async fn create(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    complete(app, user, request, CHAT, Dialect::Responses).await
}

/// There is none: responses are not kept.
#[utoipa::path(get, path = "/v1/responses/{id}", tag = "inference",
    params(("id" = String, Path, description = "The id of a response", example = "resp_01")),
    responses((status = 401, description = "An API key is needed", body = ErrorBody),
        (status = 404, description = "Always: nothing is kept", body = ErrorBody)))]
pub(crate) async fn get(_user: User) -> Failure {
    not_kept()
}

/// There is none: responses are not kept.
#[utoipa::path(delete, path = "/v1/responses/{id}", tag = "inference",
    params(("id" = String, Path, description = "The id of a response", example = "resp_01")),
    responses((status = 401, description = "An API key is needed", body = ErrorBody),
        (status = 404, description = "Always: nothing is kept", body = ErrorBody)))]
pub(crate) async fn delete(_user: User) -> Failure {
    not_kept()
}

fn not_kept() -> Failure {
    Failure::not_found(
        "no response has this id: responses are not kept here; an answer is in the answer to its request",
    )
}
