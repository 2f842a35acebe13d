//! Remembers, by replica, which engines refuse streams. Requests to all other engines are streams with usage and need no look-up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use serde_json::Value;

use dialect::error_in;
use pool::ReplicaId;

/// The streaming fields of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With `stream` and `stream_options`.
    Streamed,
    /// With `stream` only.
    WithoutOptions,
    Plain,
}

/// A refusal of streams, by the refused field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamRefusal {
    /// `stream_options`.
    Options,
    /// `stream`.
    Stream,
    /// Possibly the combination of a stream with another field.
    Combination,
}

/// Longer refusals are not searched.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

impl StreamRefusal {
    /// Reads an engine's error. `None` if it is not about streams.
    pub fn read(status: StatusCode, body: &[u8]) -> Option<StreamRefusal> {
        if !matches!(status.as_u16(), 400 | 405 | 415 | 422 | 501) || body.len() > REFUSAL_BYTES_MAX
        {
            return None;
        }
        let text = String::from_utf8_lossy(body).to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if has(&["stream_options"]) {
            return Some(StreamRefusal::Options);
        }
        let error = error_in(&text);
        if error.get("param").and_then(Value::as_str) == Some("stream")
            || has(&["\"stream\"", "'stream'", "`stream`"])
        {
            return Some(StreamRefusal::Stream);
        }
        has(&["stream"]).then_some(StreamRefusal::Combination)
    }

    /// The form for the next attempt. `wants_stream`: the client requested a stream.
    pub fn next(self, wants_stream: bool) -> Option<Form> {
        match (self, wants_stream) {
            (StreamRefusal::Options, true) => Some(Form::WithoutOptions),
            // The client's own error.
            (StreamRefusal::Combination, true) => None,
            _ => Some(Form::Plain),
        }
    }
}

/// Number of replicas remembered. Later replicas have higher ids.
const REPLICAS_MAX: usize = 1024;

/// The refusals of each replica.
#[derive(Debug, Default)]
pub(crate) struct StreamSupport {
    has_any: AtomicBool,
    refused: Mutex<BTreeMap<ReplicaId, Refused>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    options: bool,
    stream: bool,
}

impl StreamSupport {
    /// The form that the replica accepts. `wants_stream`: the client requested a stream.
    pub fn form(&self, replica: ReplicaId, wants_stream: bool) -> Form {
        if !self.has_any.load(Ordering::Relaxed) {
            return Form::Streamed;
        }
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match refused.get(&replica) {
            None => Form::Streamed,
            Some(Refused { stream: true, .. }) => Form::Plain,
            Some(_) if !wants_stream => Form::Plain,
            Some(_) => Form::WithoutOptions,
        }
    }

    pub fn note(&self, replica: ReplicaId, refusal: StreamRefusal) {
        if refusal == StreamRefusal::Combination {
            return;
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let known = refused.entry(replica).or_default();
        match refusal {
            StreamRefusal::Options => known.options = true,
            _ => known.stream = true,
        }
        while refused.len() > REPLICAS_MAX {
            refused.pop_first();
        }
        self.has_any.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_refusals_of_each_engine_are_recognized() {
        for (status, body, refusal) in [
            (
                400,
                r#"{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options')}]"}"#,
                Some(StreamRefusal::Options),
            ),
            (
                422,
                r#"{"detail":[{"loc":["body","stream_options"],"msg":"extra fields not permitted"}]}"#,
                Some(StreamRefusal::Options),
            ),
            (
                400,
                r#"{"error":{"message":"not supported by this model","param":"stream"}}"#,
                Some(StreamRefusal::Stream),
            ),
            (
                422,
                r#"{"detail":[{"loc":["body","stream"],"msg":"unexpected"}]}"#,
                Some(StreamRefusal::Stream),
            ),
            (
                400,
                r#"{"error":"best_of is not supported with streaming"}"#,
                Some(StreamRefusal::Combination),
            ),
            (
                501,
                "Streaming is not implemented",
                Some(StreamRefusal::Combination),
            ),
            (
                400,
                r#"{"error":{"message":"temperature must be at most 2"}}"#,
                None,
            ),
            (500, r#"{"error":{"param":"stream"}}"#, None),
            (429, "too many streams", None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(
                StreamRefusal::read(status, body.as_bytes()),
                refusal,
                "{body}"
            );
        }
    }

    #[test]
    fn a_replica_is_sent_the_form_it_accepts_and_the_memory_is_bounded() {
        let support = StreamSupport::default();
        let forms =
            |id: u64| [true, false].map(|wants_stream| support.form(ReplicaId(id), wants_stream));
        support.note(ReplicaId(1), StreamRefusal::Combination);
        assert_eq!(forms(1), [Form::Streamed; 2]);
        support.note(ReplicaId(1), StreamRefusal::Options);
        assert_eq!(forms(1), [Form::WithoutOptions, Form::Plain]);
        support.note(ReplicaId(1), StreamRefusal::Stream);
        assert_eq!(forms(1), [Form::Plain; 2]);
        assert_eq!(forms(2), [Form::Streamed; 2]);
        for id in 2..2 + REPLICAS_MAX as u64 {
            support.note(ReplicaId(id), StreamRefusal::Stream);
        }
        assert_eq!(forms(1), [Form::Streamed; 2], "the oldest is forgotten");
    }
}
