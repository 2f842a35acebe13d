//! The marks of a request: its events with their times. Their number is limited, and a request that is not sampled has none.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::HeaderValue;
use axum::http::header::{HeaderMap, HeaderName};

use super::Traces;
use super::spans;
use pool::Time;
use telemetry::{ParentContext, Span, SpanId, TraceId, TraceParent};

/// A request waits once, and a second time if its engine ends before the first token.
const WAITS_MAX: usize = 4;
/// Requests to engines, including an adapter's load.
const ATTEMPTS_MAX: usize = 8;
const MESSAGE_BYTES_MAX: usize = 300;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

#[derive(Debug)]
pub struct RequestTrace {
    traces: Arc<Traces>,
    name: &'static str,
    trace: TraceId,
    root: SpanId,
    parent: Option<ParentContext>,
    is_sampled: bool,
    began: u64,
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
pub(super) struct Marks {
    pub waits: Vec<Wait>,
    pub attempts: Vec<Attempt>,
    /// The error's code and message.
    pub refused: Option<(&'static str, String)>,
}

/// A stay in a model's queue. Times are Unix times in nanoseconds.
#[derive(Debug)]
pub(super) struct Wait {
    pub model: String,
    pub from: u64,
    /// Time and replica of the seat.
    pub seated: Option<(u64, u64)>,
}

/// A request to an engine.
#[derive(Debug)]
pub(super) struct Attempt {
    pub id: SpanId,
    pub path: String,
    pub replica: u64,
    pub from: u64,
    pub first_token: Option<u64>,
}

/// The end of a request, as in the access log.
#[derive(Clone, Debug, Default)]
pub struct TraceEnd {
    /// `None` if the client disconnected before the response.
    pub status: Option<u16>,
    /// The final status, which differs if a stream that began with 200 ends with an error.
    pub result_status: Option<u16>,
    pub is_complete: bool,
    pub path: String,
    pub request_id: String,
    pub key: Option<String>,
    pub model: Option<String>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

/// The trace headers for an engine.
#[derive(Debug)]
pub struct OutgoingContext {
    pub traceparent: HeaderValue,
    pub tracestate: Option<HeaderValue>,
}

impl OutgoingContext {
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, self.traceparent.clone());
        if let Some(state) = &self.tracestate {
            headers.insert(TRACESTATE, state.clone());
        }
    }
}

impl RequestTrace {
    pub(super) fn new(
        traces: &Arc<Traces>,
        name: &'static str,
        trace: TraceId,
        parent: Option<ParentContext>,
        is_sampled: bool,
    ) -> RequestTrace {
        RequestTrace {
            traces: Arc::clone(traces),
            name,
            trace,
            root: traces.ids.span(),
            parent,
            is_sampled,
            began: traces.clock.unix_nanos(),
            marks: Mutex::default(),
        }
    }

    #[cfg(test)]
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    fn mark(&self, write: impl FnOnce(&mut Marks, u64)) {
        if self.is_sampled {
            let now = self.traces.clock.unix_nanos();
            let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
            write(&mut marks, now);
        }
    }

    /// Marks the start of the wait for a seat. `since` is the time before the request was handed to the pool, which may start the
    /// load earlier than this call.
    pub fn queued(&self, model: &str, since: Time) {
        self.mark(|marks, now| {
            if marks.waits.len() < WAITS_MAX {
                marks.waits.push(Wait {
                    model: model.to_owned(),
                    from: spans::nanos(since).max(self.began).min(now),
                    seated: None,
                });
            }
        });
    }

    /// Marks the end of the wait, if the request waited.
    pub fn seated(&self, replica: u64) {
        self.mark(|marks, now| {
            if let Some(wait) = marks.waits.last_mut() {
                wait.seated.get_or_insert((now, replica));
            }
        });
    }

    /// Marks a request to an engine and returns the headers for it.
    pub fn attempt(&self, path: &str, replica: u64) -> OutgoingContext {
        let id = if self.is_sampled {
            self.traces.ids.span()
        } else {
            self.root
        };
        self.mark(|marks, now| {
            if marks.attempts.len() < ATTEMPTS_MAX {
                marks.attempts.push(Attempt {
                    id,
                    path: path.to_owned(),
                    replica,
                    from: now,
                    first_token: None,
                });
            }
        });
        let traceparent = TraceParent {
            trace: self.trace,
            span: id,
            is_sampled: self.is_sampled,
        };
        let state = self
            .parent
            .as_ref()
            .and_then(|parent| parent.state.as_deref());
        OutgoingContext {
            traceparent: HeaderValue::from_str(&traceparent.to_string())
                .expect("hexadecimal digits make a header"),
            tracestate: state.and_then(|state| HeaderValue::from_str(state).ok()),
        }
    }

    pub fn first_token(&self) {
        self.mark(|marks, now| {
            if let Some(attempt) = marks.attempts.last_mut() {
                attempt.first_token.get_or_insert(now);
            }
        });
    }

    /// Marks the error that the client gets.
    pub fn refused(&self, code: &'static str, message: &str) {
        self.mark(|marks, _| {
            let end = message.floor_char_boundary(MESSAGE_BYTES_MAX.min(message.len()));
            marks.refused = Some((code, message[..end].to_owned()));
        });
    }

    /// Ends the request and hands its spans to the exporter.
    pub fn finish(&self, end: impl FnOnce() -> TraceEnd) {
        if self.is_sampled {
            self.traces.exporter.send(self.spans(&end()));
        }
    }

    pub(super) fn spans(&self, end: &TraceEnd) -> Vec<Span> {
        let marks = std::mem::take(&mut *self.marks.lock().unwrap_or_else(PoisonError::into_inner));
        let state = self
            .parent
            .as_ref()
            .and_then(|parent| parent.state.as_deref());
        let tree = spans::Tree {
            trace: self.trace,
            state: state.map(Arc::from),
            ids: &self.traces.ids,
            loads: &self.traces.loads,
            until: self.traces.clock.unix_nanos(),
        };
        let root = spans::Root {
            id: self.root,
            parent: self.parent.as_ref().map(|parent| parent.parent.span),
            name: self.name,
            from: self.began,
        };
        tree.spans(&root, &marks, end)
    }
}
