//! One run of a background response: its request takes the route of ordinary requests, and its events are read to the end.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode};
use bytes::BytesMut;
use http_body_util::{BodyExt, Limited};
use memchr::memmem;
use serde_json::Value;

use super::holder;
use crate::inference::admission::RequestContext;
use crate::inference::background_run;
use crate::inference::stages::complete_read;
use crate::open_background::Entry;
use crate::state::App;
use api_types::error::{ENGINE_CRASHED, ErrorKind};
use dialect::responses::BackgroundRun;
use dialect::{CHAT, Dialect};
use edge::operation::operation;
use edge::record;
use store::BackgroundResponse;

/// Largest event. The last one contains the complete response.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// Largest body of an error.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Codes of refusals after a wait in a stream that has begun; another try may be served.
const PASSING: [&str; 12] = [
    "cooling_down",
    "fetch_ended",
    "load_failed",
    "no_devices",
    "no_room",
    "not_ready",
    "not_saved",
    "overloaded",
    "program_missing",
    "quarantined",
    "queue_timeout",
    "shutting_down",
];
/// Codes of refusals that only a change of the model's file can end.
const LASTING: [&str; 3] = ["model_file_broken", "never_fits", "weights_damaged"];

/// The end of a run.
#[derive(Debug)]
pub(super) enum RunEnd {
    /// The response has its result, or has ended otherwise.
    Settled,
    /// The request cannot succeed.
    Failed {
        code: &'static str,
        message: String,
        /// The failed response, if it had begun.
        response: Option<Value>,
    },
    /// The pool cannot serve the request at present.
    Later,
    /// The engine failed.
    Crashed {
        message: String,
        response: Option<Value>,
        has_begun: bool,
    },
}

/// The events of a run as far as they were read.
#[derive(Default)]
struct Events {
    rest: BytesMut,
    /// Events so far.
    count: u64,
    is_complete: bool,
}

/// Runs a response until it ends or is stopped.
pub(super) async fn run(app: &App, entry: &Entry, found: &BackgroundResponse) -> RunEnd {
    tokio::select! {
        biased;
        () = entry.stop.cancelled() => RunEnd::Settled,
        end = attempt(app, entry, found) => end,
    }
}

async fn attempt(app: &App, entry: &Entry, found: &BackgroundResponse) -> RunEnd {
    let user = match holder::user_of(&found.holder, app) {
        Ok(user) => user,
        Err(message) => {
            return RunEnd::Failed {
                code: "server_error",
                message,
                response: None,
            };
        }
    };
    let Some(record) = entry.record.clone() else {
        return RunEnd::Later;
    };
    let key = (user.key, user.account.description());
    let run = Arc::new(BackgroundRun::again(
        found.id.clone(),
        found.created.0 / 1000,
        found.runs,
        entry.settlement.clone(),
    ));
    let context = RequestContext::new(app, user, &HeaderMap::new());
    let work = async {
        record::note(|facts| {
            facts.key = Some(key);
            facts.operation = operation("/v1/responses");
        });
        let Ok(share) = app.edge.more_memory(found.request.len()).await else {
            return RunEnd::Later;
        };
        let body = share.charge(found.request.clone().into_bytes());
        let work = pin!(complete_read(app, &context, body, CHAT, Dialect::Responses));
        let response = context.end(app, work).await;
        let status = response.status();
        if status.is_success() {
            read(app, entry, &run, response.into_body()).await
        } else {
            refused(status, response.into_body()).await
        }
    };
    let work = background_run::within(Arc::clone(&run), work);
    // Boxed because it contains the future of a request.
    Box::pin(record::within(record, work)).await
}

/// Reads the events of a response, keeps them for clients, and returns the end.
async fn read(app: &App, entry: &Entry, run: &BackgroundRun, mut body: Body) -> RunEnd {
    let mut events = Events::default();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            break;
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        events.rest.extend_from_slice(&data);
        while let Some(event) = events.next() {
            if !event.starts_with(b"event:") {
                continue;
            }
            if events.count == 0
                && let Err(fault) = app.handle.store().count_background_run(&run.id).await
            {
                tracing::warn!(%fault, "a run of a background response cannot be counted");
            }
            let number = run.first_event() + events.count;
            events.count += 1;
            events.is_complete |= is_last(&event);
            // A failed run may be repeated; its last event is written by the caller.
            let is_failure = event.starts_with(b"event: response.failed\n");
            if let Some(log) = entry.events.as_ref().filter(|_| !is_failure) {
                log.push(number, event);
            }
        }
        if events.rest.len() > EVENT_BYTES_MAX {
            break;
        }
    }
    let has_begun = events.count > 0;
    match run.take_failure() {
        Some(failure) => {
            let text = |name: &str| failure.error[name].as_str().unwrap_or_default();
            let (code, message) = (text("code"), text("message").to_owned());
            // A response without output that failed only waited.
            let waited = failure.response["output"]
                .as_array()
                .is_none_or(Vec::is_empty);
            let response = Some(failure.response);
            match text("type") {
                "rate_limit_error" => RunEnd::Later,
                "server_error" if waited && PASSING.contains(&code) => RunEnd::Later,
                "server_error" if LASTING.contains(&code) => RunEnd::Failed {
                    code: "server_error",
                    message,
                    response,
                },
                "invalid_request_error" | "BadRequestError" => RunEnd::Failed {
                    code: "invalid_prompt",
                    message,
                    response,
                },
                _ => RunEnd::Crashed {
                    message,
                    response,
                    has_begun,
                },
            }
        }
        None if events.is_complete => RunEnd::Settled,
        None => RunEnd::Crashed {
            message: "the response ended before it was complete".to_owned(),
            response: None,
            has_begun,
        },
    }
}

fn is_last(event: &[u8]) -> bool {
    let lasts: [&[u8]; 2] = [
        b"event: response.completed\n",
        b"event: response.incomplete\n",
    ];
    lasts.iter().any(|last| event.starts_with(last))
}

/// The end of a run whose request was refused.
async fn refused(status: StatusCode, body: Body) -> RunEnd {
    let body = Limited::new(body, ERROR_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let message = body["error"]["message"].as_str();
    let message = message.map_or_else(|| format!("status {status}"), str::to_owned);
    let code = body["error"]["code"].as_str().unwrap_or_default();
    let failed = |code, message| RunEnd::Failed {
        code,
        message,
        response: None,
    };
    match ErrorKind::of_status(status) {
        _ if LASTING.contains(&code) => failed("server_error", message),
        Some(ErrorKind::TooMany | ErrorKind::Unavailable | ErrorKind::TooSlow)
            if code != ENGINE_CRASHED =>
        {
            RunEnd::Later
        }
        _ if status.is_server_error() => RunEnd::Crashed {
            message,
            response: None,
            has_begun: false,
        },
        _ => failed("invalid_prompt", message),
    }
}

impl Events {
    /// Takes the next complete event, with its empty line.
    fn next(&mut self) -> Option<Bytes> {
        let end = memmem::find(&self.rest, b"\n\n")? + 2;
        Some(self.rest.split_to(end).freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_one_by_one_however_their_bytes_arrive() {
        let mut events = Events::default();
        let text = ": waiting\n\nevent: response.created\ndata: {}\n\nevent: response.completed\ndata: {}\n\nrest";
        let mut found = Vec::new();
        for byte in text.bytes() {
            events.rest.extend_from_slice(&[byte]);
            found.extend(std::iter::from_fn(|| events.next()));
        }
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], ": waiting\n\n");
        assert!(!is_last(&found[1]) && is_last(&found[2]));
        assert_eq!(&events.rest[..], b"rest");
    }

    #[tokio::test]
    async fn a_refusal_is_tried_again_later_unless_the_request_is_wrong() {
        let body = || Body::from(r#"{"error":{"message":"no"}}"#);
        for status in [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ] {
            assert!(matches!(refused(status, body()).await, RunEnd::Later));
        }
        let end = refused(StatusCode::BAD_REQUEST, body()).await;
        assert!(matches!(end, RunEnd::Failed { message, .. } if message == "no"));
        let end = refused(StatusCode::BAD_GATEWAY, body()).await;
        assert!(matches!(end, RunEnd::Crashed { .. }));
        for (code, is_crash) in [("engine_crashed", true), ("never_fits", false)] {
            let body = Body::from(format!("{{\"error\":{{\"code\":\"{code}\"}}}}"));
            let end = refused(StatusCode::SERVICE_UNAVAILABLE, body).await;
            assert_eq!(matches!(end, RunEnd::Crashed { .. }), is_crash, "{code}");
            assert_eq!(matches!(end, RunEnd::Failed { .. }), !is_crash, "{code}");
        }
    }
}
