//! One run of a background response: its request takes the route of ordinary requests, and its events are read to the end.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::Response;
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
use dialect::responses::{BackgroundRun, RunFailure};
use dialect::{CHAT, Dialect};
use edge::operation::operation;
use edge::record;
use pool::Span;
use store::{BackgroundResponse, StoredResponse};

/// Largest event. The last one contains the complete response.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// Largest body of an error.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Codes of errors of the pool in a stream that has begun, after a wait or when the pool has stopped the engine. Another try may be
/// served.
const PASSING: [&str; 14] = [
    "cooling_down",
    "fetch_ended",
    "load_failed",
    "no_devices",
    "no_room",
    "not_ready",
    "not_saved",
    "overloaded",
    "preempted",
    "program_missing",
    "quarantined",
    "queue_timeout",
    "shutting_down",
    "unloaded",
];
/// Codes of refusals that only a change of the model's file can end.
const LASTING: [&str; 3] = ["model_file_broken", "never_fits", "weights_damaged"];

/// The end of a run.
#[derive(Debug)]
pub(super) enum RunEnd {
    /// The response is complete, and not stored yet.
    Complete {
        result: Box<StoredResponse>,
        last_event: Bytes,
    },
    /// The response has ended otherwise.
    Gone,
    /// The request cannot succeed.
    Failed {
        code: &'static str,
        message: String,
        /// The failed response, if it had begun.
        response: Option<Value>,
    },
    /// The pool cannot serve the request at present.
    Later { retry_after: Option<Span> },
    /// The engine failed.
    Crashed {
        message: String,
        response: Option<Value>,
    },
}

/// The end of a run, and whether an engine had begun to respond.
#[derive(Debug)]
pub(super) struct RunReport {
    pub end: RunEnd,
    pub has_begun: bool,
}

impl From<RunEnd> for RunReport {
    fn from(end: RunEnd) -> RunReport {
        RunReport {
            end,
            has_begun: false,
        }
    }
}

/// The events of a run as far as they were read.
#[derive(Default)]
struct Events {
    rest: BytesMut,
    /// Events so far.
    count: u64,
}

/// Runs a response until it ends. A run counts as cut from its first event on, until its caller has settled it.
pub(super) async fn run(app: &App, entry: &Entry, found: &BackgroundResponse) -> RunReport {
    let later = || RunReport::from(RunEnd::Later { retry_after: None });
    let user = match holder::user_of(&found.holder, found.person.as_deref(), app) {
        Ok(user) => user,
        Err(message) => return failed("server_error", message, None).into(),
    };
    let Some(record) = entry.record.clone() else {
        return later();
    };
    let key = (user.key, user.account.description());
    // A run in the same process continues the numbers of the run before.
    let first_event = BackgroundRun::first_event_after(found.runs);
    let first_event = entry
        .events
        .as_ref()
        .map_or(first_event, |log| log.next_number(first_event));
    let created_seconds = found.created.0 / 1000;
    let run = BackgroundRun::again(found.id.clone(), created_seconds, first_event);
    let run = Arc::new(run);
    let context = RequestContext::new(app, user, &HeaderMap::new());
    let work = async {
        record::note(|facts| {
            facts.key = Some(key);
            facts.operation = operation("/v1/responses");
        });
        let Ok(share) = app.edge.more_memory(found.request.len()).await else {
            return later();
        };
        let body = share.charge(found.request.clone().into_bytes());
        let work = pin!(complete_read(app, &context, body, CHAT, Dialect::Responses));
        let response = context.end(app, work).await;
        if response.status().is_success() {
            read(app, entry, found, &run, response.into_body()).await
        } else {
            refused(response).await.into()
        }
    };
    let work = background_run::within(Arc::clone(&run), work);
    // Boxed because it contains the future of a request.
    Box::pin(record::within(record, work)).await
}

/// Reads the events of a response, keeps them for clients, and returns the end.
async fn read(
    app: &App,
    entry: &Entry,
    found: &BackgroundResponse,
    run: &BackgroundRun,
    mut body: Body,
) -> RunReport {
    let mut events = Events::default();
    let (mut has_begun, mut last_event) = (false, None);
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
            // Without a seat, the events only report a failure.
            if !has_begun && entry.has_seat() {
                if let Some(log) = &entry.events {
                    log.save().await;
                }
                let (runs, cuts) = (found.runs + 1, found.cuts + 1);
                match app
                    .handle
                    .store()
                    .set_background_runs(&run.id, runs, cuts)
                    .await
                {
                    Ok(true) => has_begun = true,
                    Ok(false) => return RunEnd::Gone.into(),
                    Err(fault) => {
                        tracing::warn!(%fault, "a run of a background response cannot be counted; trying again");
                        return RunEnd::Later { retry_after: None }.into();
                    }
                }
            }
            let number = run.first_event + events.count;
            events.count += 1;
            if is_last(&event) {
                // Shown when the result is on disk.
                last_event = Some(event);
                continue;
            }
            // A failed run may be repeated; its last event is written by the caller.
            let is_failure = event.starts_with(b"event: response.failed\n");
            if let Some(log) = entry.events.as_ref().filter(|_| has_begun && !is_failure) {
                log.record(number, event).await;
            }
        }
        if events.rest.len() > EVENT_BYTES_MAX {
            break;
        }
    }
    let end = match (run.take_failure(), run.take_result(), last_event) {
        (Some(failure), _, _) => failed_run(failure),
        (None, Some(result), Some(last_event)) => RunEnd::Complete {
            result: Box::new(result),
            last_event,
        },
        _ => RunEnd::Crashed {
            message: "the response ended before it was complete".to_owned(),
            response: None,
        },
    };
    RunReport { end, has_begun }
}

pub(super) fn failed(code: &'static str, message: String, response: Option<Value>) -> RunEnd {
    RunEnd::Failed {
        code,
        message,
        response,
    }
}

/// The end of a run whose stream ended with an error.
fn failed_run(failure: RunFailure) -> RunEnd {
    let text = |name: &str| failure.error[name].as_str().unwrap_or_default();
    let (code, message) = (text("code"), text("message").to_owned());
    match text("type") {
        "rate_limit_error" => RunEnd::Later { retry_after: None },
        "server_error" if PASSING.contains(&code) => RunEnd::Later { retry_after: None },
        "server_error" if LASTING.contains(&code) => {
            failed("server_error", message, Some(failure.response))
        }
        "invalid_request_error" | "BadRequestError" => {
            failed("invalid_prompt", message, Some(failure.response))
        }
        _ => RunEnd::Crashed {
            message,
            response: Some(failure.response),
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
async fn refused(response: Response) -> RunEnd {
    let status = response.status();
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    let retry_after = retry_after.map(Span::from_secs);
    let body = Limited::new(response.into_body(), ERROR_BYTES_MAX);
    let body = body.collect().await.map(|body| body.to_bytes());
    let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let message = body["error"]["message"].as_str();
    let message = message.map_or_else(|| format!("status {status}"), str::to_owned);
    let code = body["error"]["code"].as_str().unwrap_or_default();
    match ErrorKind::of_status(status) {
        _ if LASTING.contains(&code) => failed("server_error", message, None),
        Some(ErrorKind::TooMany) => RunEnd::Later { retry_after },
        // A wait in the pool's queue can begin again: a seat may become free earlier than expected.
        Some(ErrorKind::Unavailable | ErrorKind::TooSlow) if code != ENGINE_CRASHED => {
            RunEnd::Later { retry_after: None }
        }
        _ if status.is_server_error() => RunEnd::Crashed {
            message,
            response: None,
        },
        _ => failed("invalid_prompt", message, None),
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
    use axum::http::StatusCode;
    use serde_json::json;

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

    async fn refusal(status: StatusCode, code: &str, retry_after: Option<&str>) -> RunEnd {
        let body = json!({"error": {"message": "no", "code": code}}).to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        if let Some(seconds) = retry_after {
            let seconds = seconds.parse().expect("a header");
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        refused(response).await
    }

    #[tokio::test]
    async fn a_refusal_is_tried_again_later_unless_the_request_is_wrong() {
        for status in [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::REQUEST_TIMEOUT,
        ] {
            let is_limit = status == StatusCode::TOO_MANY_REQUESTS;
            for (header, expected) in [
                (None, None),
                (Some("7"), is_limit.then(|| Span::from_secs(7))),
                (Some("soon"), None),
            ] {
                let end = refusal(status, "queue_full", header).await;
                assert!(
                    matches!(end, RunEnd::Later { retry_after } if retry_after == expected),
                    "{end:?}"
                );
            }
        }
        let end = refusal(StatusCode::BAD_REQUEST, "x", None).await;
        assert!(matches!(end, RunEnd::Failed { message, .. } if message == "no"));
        let end = refusal(StatusCode::BAD_GATEWAY, "x", None).await;
        assert!(matches!(end, RunEnd::Crashed { .. }));
        for (code, is_crash) in [("engine_crashed", true), ("never_fits", false)] {
            let end = refusal(StatusCode::SERVICE_UNAVAILABLE, code, None).await;
            assert_eq!(matches!(end, RunEnd::Crashed { .. }), is_crash, "{code}");
            assert_eq!(matches!(end, RunEnd::Failed { .. }), !is_crash, "{code}");
        }
    }

    #[test]
    fn only_the_failure_of_an_engine_is_a_crash_and_no_wait_is() {
        let end = |kind: &str, code: &str, output: &Value| {
            failed_run(RunFailure {
                error: json!({"type": kind, "code": code, "message": "no"}),
                response: json!({"output": output}),
            })
        };
        // The pool may stop an engine after it has begun to respond.
        for output in [json!([]), json!([{"id": "msg_1"}])] {
            for code in PASSING {
                let end = end("server_error", code, &output);
                assert!(matches!(end, RunEnd::Later { .. }), "{code}: {end:?}");
            }
            let limited = end("rate_limit_error", "queue_full", &output);
            assert!(matches!(limited, RunEnd::Later { .. }), "{limited:?}");
            for code in [ENGINE_CRASHED, "engine_error", ""] {
                let end = end("server_error", code, &output);
                assert!(matches!(end, RunEnd::Crashed { .. }), "{code}: {end:?}");
            }
            for code in LASTING {
                let end = end("server_error", code, &output);
                assert!(matches!(end, RunEnd::Failed { .. }), "{code}: {end:?}");
            }
            let wrong = end("invalid_request_error", "x", &output);
            assert!(
                matches!(wrong, RunEnd::Failed { code, .. } if code == "invalid_prompt"),
                "{output}"
            );
        }
    }
}
