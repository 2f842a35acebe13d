//! Converts the marks of a request into spans:
//!
//! ```text
//! POST /v1/chat/completions            the complete request
//! ├── queue                            from no free seat to the seat, or to the refusal
//! │   └── load                         the load during the wait
//! │       ├── fetch                    weights that were not on this machine
//! │       ├── make_room                victims leave, memory becomes free
//! │       └── start                    the engine, from its start until it is ready; its stages are events
//! └── inference                        the engine has the request
//!     ├── first_token
//!     └── answer                       from the first token to the end
//! ```

use std::sync::Arc;

use super::request::{Attempt, Marks, TraceEnd, Wait};
use crate::operation::operation;
use controller::{LoadTimeline, LoadTimes};
use pool::{ReplicaId, Time};
use telemetry::{Attribute, Ids, PROVIDER, Span, SpanEvent, SpanId, SpanKind, TraceId, attribute};

const NANOS_PER_MILLISECOND: u64 = 1_000_000;

pub(super) struct Tree<'a> {
    pub trace: TraceId,
    pub state: Option<Arc<str>>,
    pub ids: &'a Ids,
    pub loads: &'a LoadTimeline,
    /// The end of the request. All times are Unix times in nanoseconds.
    pub until: u64,
}

pub(super) struct Root {
    pub id: SpanId,
    /// The client's span.
    pub parent: Option<SpanId>,
    pub name: &'static str,
    pub from: u64,
}

/// The attributes of a request in OpenTelemetry's conventions for generative AI.
fn gen_ai(path: &str, model: &str) -> Vec<Attribute> {
    let mut attributes = vec![
        attribute("gen_ai.provider.name", PROVIDER),
        attribute("gen_ai.request.model", model),
    ];
    attributes.extend(operation(path).map(|name| attribute("gen_ai.operation.name", name)));
    attributes
}

impl Tree<'_> {
    pub fn spans(&self, root: &Root, marks: &Marks, end: &TraceEnd) -> Vec<Span> {
        let mut spans = vec![self.root(root, marks, end)];
        for (nth, wait) in marks.waits.iter().enumerate() {
            let next = marks.waits.get(nth + 1).map(|wait| wait.from);
            let until = wait.seated.map(|(at, _)| at).or(next);
            self.queue(
                &mut spans,
                root.id,
                wait,
                until.unwrap_or(self.until),
                marks,
            );
        }
        for (nth, attempt) in marks.attempts.iter().enumerate() {
            let next = marks.attempts.get(nth + 1).map(|attempt| attempt.from);
            self.inference(&mut spans, root.id, attempt, next, end);
        }
        spans
    }

    fn span(
        &self,
        parent: SpanId,
        name: &'static str,
        (from, until): (u64, u64),
        attributes: Vec<Attribute>,
    ) -> Span {
        Span {
            trace: self.trace,
            id: self.ids.span(),
            parent: Some(parent),
            has_remote_parent: false,
            state: self.state.clone(),
            name: name.into(),
            kind: SpanKind::Internal,
            start_unix_nanos: from,
            end_unix_nanos: until.max(from),
            attributes,
            events: Vec::new(),
            error: None,
        }
    }

    fn root(&self, root: &Root, marks: &Marks, end: &TraceEnd) -> Span {
        let mut attributes = vec![
            attribute("http.request.method", "POST"),
            attribute("url.path", end.path.as_str()),
            attribute("model_pool.request.id", end.request_id.as_str()),
        ];
        if let Some(status) = end.status {
            attributes.push(attribute("http.response.status_code", u64::from(status)));
        }
        let result = end.result_status.or(end.status);
        if result != end.status
            && let Some(status) = result
        {
            let key = "model_pool.result.status_code";
            attributes.push(attribute(key, u64::from(status)));
        }
        if let Some(model) = &end.model {
            attributes.extend(gen_ai(&end.path, model));
        }
        if let Some(key) = &end.key {
            attributes.push(attribute("model_pool.key.id", key.as_str()));
        }
        let code = marks.refused.as_ref().map(|(code, _)| (*code).to_owned());
        let is_failed = result.is_some_and(|code| code >= 400);
        if let Some(status) = result.filter(|_| is_failed) {
            let kind = code.unwrap_or_else(|| status.to_string());
            attributes.push(attribute("error.type", kind));
        }
        // A server's span is only marked as failed for server errors.
        let error = match (result, &marks.refused) {
            (Some(500..), Some((code, message))) => Some(format!("{code}: {message}")),
            (Some(status @ 500..), None) => Some(format!("status {status}")),
            _ => None,
        };
        if !end.is_complete {
            // The client disconnected: not an error, but the response is incomplete.
            attributes.push(attribute("model_pool.response.is_cut", true));
        }
        Span {
            id: root.id,
            parent: root.parent,
            has_remote_parent: root.parent.is_some(),
            kind: SpanKind::Server,
            error,
            ..self.span(root.id, root.name, (root.from, self.until), attributes)
        }
    }

    fn queue(&self, spans: &mut Vec<Span>, parent: SpanId, wait: &Wait, until: u64, marks: &Marks) {
        let mut attributes = vec![attribute("gen_ai.request.model", wait.model.as_str())];
        if let Some((_, replica)) = wait.seated {
            attributes.push(replica_attribute(replica));
        }
        let mut queue = self.span(parent, "queue", (wait.from, until), attributes);
        if let (None, Some((code, message))) = (wait.seated, &marks.refused) {
            queue.error = Some(format!("{code}: {message}"));
        }
        let id = queue.id;
        spans.push(queue);
        self.load(spans, id, &wait.model, (wait.from, until));
    }

    /// The fetches and loads within this time. A load that began earlier is included with its remaining part.
    fn load(&self, spans: &mut Vec<Span>, parent: SpanId, model: &str, within: (u64, u64)) {
        let [from, until] = [within.0, within.1].map(|time| Time(time / NANOS_PER_MILLISECOND));
        let mut loads = self.loads.steps(model, from, until);
        // Drops loads that were abandoned before their engine was started, which have no end.
        if loads
            .iter()
            .any(|load| matches!(load.ended, Some((_, Ok(())))))
        {
            loads.retain(|load| load.launched_at.is_some() || load.ended.is_some());
        }
        let Some(first) = loads.first() else { return };
        let began = loads.iter().map(|load| nanos(load.began_at)).min();
        let ended = loads.iter().map(|load| ended_of(load, within.1)).max();
        let whole = (began.unwrap_or(within.0), ended.unwrap_or(within.1));
        let is_joined = whole.0 + NANOS_PER_MILLISECOND < within.0;
        let attributes = vec![
            attribute("gen_ai.request.model", model),
            attribute("model_pool.load.reason", first.reason.as_str()),
            attribute("model_pool.load.began_before", is_joined),
        ];
        let load = self.span(parent, "load", clipped(whole, within), attributes);
        let id = load.id;
        spans.push(load);
        for load in &loads {
            self.stages(spans, id, load, within);
        }
    }

    fn stages(&self, spans: &mut Vec<Span>, parent: SpanId, load: &LoadTimes, within: (u64, u64)) {
        let (began, ended) = (nanos(load.began_at), ended_of(load, within.1));
        let launched = load.launched_at.map(nanos);
        let attributes = || {
            let mut attributes = Vec::new();
            attributes.extend(load.replica.map(|replica| replica_attribute(replica.0)));
            if !load.devices.is_empty() {
                attributes.push(attribute("model_pool.devices", load.devices.clone()));
            }
            attributes
        };
        let mut add = |name, (from, until): (u64, u64), events: Vec<SpanEvent>, is_last: bool| {
            if until < within.0 || from > within.1 {
                return;
            }
            let mut span = self.span(parent, name, clipped((from, until), within), attributes());
            span.events = events;
            if let (Some((_, Err(why))), true) = (&load.ended, is_last) {
                span.error = Some(why.clone());
            }
            spans.push(span);
        };
        if load.is_fetch() {
            add("fetch", (began, ended), Vec::new(), true);
            return;
        }
        let made_room = launched.unwrap_or(ended);
        if made_room > began || launched.is_none() {
            add(
                "make_room",
                (began, made_room),
                Vec::new(),
                launched.is_none(),
            );
        }
        if let Some(launched) = launched {
            let mut events: Vec<SpanEvent> = load
                .stages
                .iter()
                .map(|(stage, at)| event(stage.to_string(), nanos(*at)))
                .collect();
            if let Some((at, Ok(()))) = &load.ended {
                events.push(event("ready".to_owned(), nanos(*at)));
            }
            add("start", (launched, ended), events, true);
        }
    }

    fn inference(
        &self,
        spans: &mut Vec<Span>,
        parent: SpanId,
        attempt: &Attempt,
        next: Option<u64>,
        end: &TraceEnd,
    ) {
        let until = next.unwrap_or(self.until);
        let mut attributes = vec![
            attribute("url.path", attempt.path.as_str()),
            replica_attribute(attempt.replica),
        ];
        if let Some(model) = &end.model {
            attributes.extend(gen_ai(&end.path, model));
            attributes.push(attribute("gen_ai.response.model", model.as_str()));
        }
        if let Some(first) = attempt.first_token {
            let seconds = (first - attempt.from) as f64 / 1e9;
            let key = "gen_ai.server.time_to_first_token";
            attributes.push(attribute(key, seconds));
        }
        let is_last = next.is_none();
        if is_last && end.prompt_tokens + end.completion_tokens > 0 {
            let (input, output) = (end.prompt_tokens, end.completion_tokens);
            attributes.push(attribute("gen_ai.usage.input_tokens", input));
            attributes.push(attribute("gen_ai.usage.output_tokens", output));
        }
        let span = self.span(parent, "inference", (attempt.from, until), attributes);
        let id = attempt.id;
        spans.push(Span {
            id,
            kind: SpanKind::Client,
            ..span
        });
        if let Some(first) = attempt.first_token {
            spans.push(self.span(id, "first_token", (attempt.from, first), Vec::new()));
            spans.push(self.span(id, "answer", (first, until), Vec::new()));
        }
    }
}

fn replica_attribute(replica: u64) -> Attribute {
    attribute("model_pool.replica.id", ReplicaId(replica).to_string())
}

fn event(name: String, at_unix_nanos: u64) -> SpanEvent {
    SpanEvent {
        name: name.into(),
        at_unix_nanos,
        attributes: Vec::new(),
    }
}

pub(super) fn nanos(time: Time) -> u64 {
    time.0.saturating_mul(NANOS_PER_MILLISECOND)
}

fn ended_of(load: &LoadTimes, otherwise: u64) -> u64 {
    let ended = load.ended.as_ref().map(|(at, _)| nanos(*at));
    ended.unwrap_or(otherwise)
}

/// The part of an interval within another one.
fn clipped((from, until): (u64, u64), within: (u64, u64)) -> (u64, u64) {
    let clip = |time: u64| time.clamp(within.0, within.1.max(within.0));
    (clip(from), clip(until))
}
