//! Runs one request of a batch through the route that it names, with the present rights of its holder.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::auth::User;
use crate::batch_seat::NO_SEAT;
use crate::inference::routes::{completions, embeddings, messages, responses};
use crate::state::App;
use api_types::error::ErrorKind;
use batch::{Endpoint, RequestLine};
use controller::{CutReason, CutSignal};
use dialect::anthropic;
use edge::operation::operation;
use edge::record::{self, Record};

/// Largest response to a batch request.
const RESPONSE_MAX: usize = 64 << 20;

/// The end of one run of a request.
pub(super) enum LineEnd {
    /// The response, as JSON.
    Responded { status: u16, body: Box<RawValue> },
    /// An error without a response.
    Failed { code: &'static str, message: String },
    /// An interactive request needs the seat, or the replica leaves.
    LostSeat,
    /// The engine ended.
    Crashed { message: String },
    /// The pool cannot serve the model at present.
    Later,
}

/// A request that has a seat, or that fails before it needs one.
pub(super) struct Line {
    pub app: App,
    pub user: User,
    pub text: Vec<u8>,
    pub request_id: HeaderValue,
    /// Fires when the seat is lost.
    pub cut: CancellationToken,
    /// The reason why the seat is lost.
    pub seat_cut: Option<CutSignal>,
}

impl Line {
    pub async fn run(self) -> LineEnd {
        let Line {
            app,
            user,
            text,
            request_id,
            cut,
            seat_cut,
        } = self;
        let request = match request(&text) {
            Ok(request) => request,
            Err(message) => {
                return LineEnd::Failed {
                    code: "invalid_request",
                    message,
                };
            }
        };
        drop(text);
        let (endpoint, request) = request;
        let now = app.handle.clock().now();
        let id = request_id.clone();
        let record = Arc::new(Record::new(request_id, None, now, None));
        let key = (user.key, user.account.description());
        let work = async {
            record::note(|facts| {
                facts.key = Some(key);
                facts.operation = operation(endpoint.path());
            });
            let response = respond(app, user, endpoint, request).await;
            let status = response.status();
            let body = Limited::new(response.into_body(), RESPONSE_MAX);
            (status, body.collect().await.map(|body| body.to_bytes()))
        };
        let ended = tokio::select! {
            biased;
            ended = record::within(record, work) => Some(ended),
            () = cut.cancelled() => None,
        };
        let crash = seat_cut.as_ref().and_then(|cut| match cut.why() {
            Some(CutReason::Crashed(message)) => Some(message.clone()),
            _ => None,
        });
        let read = |status, body: &[u8]| match read(status, body) {
            LineEnd::Responded { status, body } if endpoint == Endpoint::Messages => {
                LineEnd::Responded {
                    status,
                    body: as_message_error(status, body, &id),
                }
            }
            end => end,
        };
        match (ended, crash) {
            (Some((status, Ok(body))), _) if status.is_success() => read(status, &body),
            (_, Some(message)) => LineEnd::Crashed { message },
            (None, None) => LineEnd::LostSeat,
            (Some((status, Ok(body))), None) => read(status, &body),
            (Some((_, Err(error))), None) => LineEnd::Failed {
                code: "response_too_large",
                message: format!("the response cannot be read: {error}"),
            },
        }
    }
}

/// Builds the request of a line.
fn request(text: &[u8]) -> Result<(Endpoint, Request<Body>), String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let line = RequestLine::parse(text).map_err(|error| error.message)?;
    let body = Bytes::copy_from_slice(line.body.get().as_bytes());
    let request = Request::builder()
        .method(Method::POST)
        .uri(line.endpoint.path())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .map_err(|error| error.to_string())?;
    Ok((line.endpoint, request))
}

async fn respond(app: App, user: User, endpoint: Endpoint, request: Request<Body>) -> Response {
    let app = State(app);
    match endpoint {
        Endpoint::ChatCompletions => {
            Box::pin(completions::chat_completions(app, user, request)).await
        }
        Endpoint::Completions => Box::pin(completions::completions(app, user, request)).await,
        Endpoint::Embeddings => Box::pin(embeddings::embeddings(app, user, request)).await,
        Endpoint::Responses => Box::pin(responses::create(app, user, request)).await,
        Endpoint::Messages => Box::pin(messages::create(app, user, request)).await,
    }
}

/// Translates an error to Anthropic's form. Other bodies stay.
fn as_message_error(status: u16, body: Box<RawValue>, id: &HeaderValue) -> Box<RawValue> {
    let Ok(status) = StatusCode::from_u16(status) else {
        return body;
    };
    let read: Option<serde_json::Value> = serde_json::from_str(body.get()).ok();
    let error = read.as_ref().and_then(|read| read.get("error"));
    match error.filter(|_| !status.is_success()) {
        Some(error) => {
            let error = anthropic::error_of(error, Some(status), id.to_str().ok());
            RawValue::from_string(error.to_string()).unwrap_or(body)
        }
        None => body,
    }
}

/// The code of an error object.
fn code_of(body: &str) -> Option<String> {
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    Some(body.get("error")?.get("code")?.as_str()?.to_owned())
}

fn read(status: StatusCode, body: &[u8]) -> LineEnd {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let Ok(body) = serde_json::from_str::<&RawValue>(text.trim()) else {
        return LineEnd::Failed {
            code: "invalid_response",
            message: format!("the engine responded with {status} and a body that is not JSON"),
        };
    };
    let code = code_of(body.get());
    if code.as_deref() == Some(NO_SEAT) {
        return LineEnd::LostSeat;
    }
    let kind = ErrorKind::of_status(status);
    if matches!(kind, Some(ErrorKind::TooMany | ErrorKind::Unavailable)) {
        return LineEnd::Later;
    }
    if status.is_server_error() {
        return LineEnd::Crashed {
            message: body.get().chars().take(1_000).collect(),
        };
    }
    LineEnd::Responded {
        status: status.as_u16(),
        body: body.to_owned(),
    }
}
