//! OpenTelemetry traces of requests: sampling and trace context. A request records marks (`request`); when it is over, the marks
//! become spans (`spans`), which the exporter sends. Tracing never delays a request.

pub mod request;
mod spans;

use std::sync::Arc;

use axum::http::Method;
use axum::http::request::Parts;

use self::request::RequestTrace;
use controller::{Clock, LoadTimeline};
use telemetry::{Exporter, ExporterCounts, Ids, ParentContext, ratio_keeps};

/// Prefixes of the routes of OpenAI, Ollama and older systems. `POST` requests to them are traced.
const TRACED: [&str; 5] = ["/v1/", "/api/", "/query/", "/stream/", "/run"];
/// Span names by route; the longest match counts. Other paths are named by their method alone, because clients may send any path.
const ROUTES: [(&str, &str); 31] = [
    ("/v1/chat/completions", "POST /v1/chat/completions"),
    ("/v1/completions", "POST /v1/completions"),
    ("/v1/responses", "POST /v1/responses"),
    (
        "/v1/responses/input_tokens",
        "POST /v1/responses/input_tokens",
    ),
    ("/v1/responses/compact", "POST /v1/responses/compact"),
    ("/v1/conversations", "POST /v1/conversations"),
    ("/v1/messages", "POST /v1/messages"),
    (
        "/v1/messages/count_tokens",
        "POST /v1/messages/count_tokens",
    ),
    ("/v1/messages/batches", "POST /v1/messages/batches"),
    ("/v1/files", "POST /v1/files"),
    ("/v1/batches", "POST /v1/batches"),
    ("/v1/embeddings", "POST /v1/embeddings"),
    ("/v1/rerank", "POST /v1/rerank"),
    ("/v1/score", "POST /v1/score"),
    ("/v1/tokenize", "POST /v1/tokenize"),
    ("/v1/detokenize", "POST /v1/detokenize"),
    ("/v1/audio/transcriptions", "POST /v1/audio/transcriptions"),
    ("/v1/audio/translations", "POST /v1/audio/translations"),
    ("/v1/audio/speech", "POST /v1/audio/speech"),
    ("/v1/images/generations", "POST /v1/images/generations"),
    ("/v1/images/edits", "POST /v1/images/edits"),
    ("/v1/images/variations", "POST /v1/images/variations"),
    ("/v1/infill", "POST /v1/infill"),
    ("/v1/completion", "POST /v1/completion"),
    ("/api/chat", "POST /api/chat"),
    ("/api/generate", "POST /api/generate"),
    ("/api/embed", "POST /api/embed"),
    ("/api/embeddings", "POST /api/embeddings"),
    ("/query/", "POST /query/{model}"),
    ("/stream/", "POST /stream/{model}"),
    ("/run", "POST /run"),
];

/// State shared by all traces.
#[derive(Debug)]
pub struct Traces {
    exporter: Exporter,
    ids: Ids,
    /// Sampling ratio of requests without a client trace.
    ratio: f64,
    loads: LoadTimeline,
    clock: Clock,
    base: String,
}

impl Traces {
    pub fn new(
        exporter: Exporter,
        ratio: f64,
        loads: LoadTimeline,
        clock: Clock,
        base: &str,
    ) -> Traces {
        Traces {
            exporter,
            ids: Ids::default(),
            ratio,
            loads,
            clock,
            base: base.to_owned(),
        }
    }

    /// Sends the remaining spans at shutdown.
    pub async fn finish(&self) {
        self.exporter.finish().await;
    }

    pub fn counts(&self) -> ExporterCounts {
        self.exporter.counts()
    }

    /// The trace of a request, if it is traced. A client's sampling decision is respected.
    pub fn begin(self: &Arc<Traces>, parts: &Parts) -> Option<Box<RequestTrace>> {
        let name = self.name_of(&parts.method, parts.uri.path())?;
        let text = |name: &str| {
            let value = parts.headers.get(name)?;
            value.to_str().ok()
        };
        let states = parts.headers.get_all("tracestate").iter();
        let states = states.filter_map(|state| state.to_str().ok());
        let parent = ParentContext::parse(text("traceparent"), states);
        let trace = match &parent {
            Some(context) => context.parent.trace,
            None => self.ids.trace(),
        };
        let is_sampled = match &parent {
            Some(context) => context.parent.is_sampled,
            None => ratio_keeps(trace, self.ratio),
        };
        let trace = RequestTrace::new(self, name, trace, parent, is_sampled);
        Some(Box::new(trace))
    }

    /// The span name; `None` if the request is not traced.
    pub fn name_of(&self, method: &Method, path: &str) -> Option<&'static str> {
        let below = path.strip_prefix(&self.base).unwrap_or(path);
        let is_traced =
            method == Method::POST && TRACED.iter().any(|prefix| below.starts_with(prefix));
        let is_it = |route: &&(&str, &str)| {
            if route.0.ends_with('/') {
                below.starts_with(route.0)
            } else {
                below == route.0
            }
        };
        let known = ROUTES.iter().find(is_it);
        is_traced.then_some(known.map_or("POST", |(_, name)| *name))
    }
}

#[cfg(test)]
mod tests;
