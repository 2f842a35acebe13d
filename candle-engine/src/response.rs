//! Turns the batch's results into a response: one JSON object, or a stream of events.
//! One file because the object and the stream are two forms of the same response.

use crate::api_error::ApiError;
use crate::batch::{GenerationRequest, Outcome, ResponseEvent, Runs};
use crate::decoder_service::DecoderService;
use crate::ignored_fields::IgnoredFields;
use crate::loading::LoadedModel;
use crate::pieces::{Piece, ScoredToken};
use crate::reasoning::{ReasoningPiece, ReasoningReader};
use crate::response_json::{Choice, Delta, Envelope, Route, Usage, tool_call};
use crate::scores;
use crate::tools::{Part, ToolReader};
use axum::Json;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Interval of comments, which keep the connection of a waiting client alive through proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Header with the request fields that had no effect on this model.
const IGNORED: HeaderName = HeaderName::from_static("x-engine-ignored");

/// The form of a response.
#[derive(Debug)]
pub(crate) struct ResponseOptions {
    pub stream: bool,
    /// The request asks for token probabilities.
    pub shows_scores: bool,
    /// Choices computed per prompt, of which the `returned` likeliest are returned.
    pub computed: usize,
    pub returned: usize,
    /// One per choice, if the model may reason.
    pub thoughts: Vec<ReasoningReader>,
    /// One per choice, if the model may call tools.
    pub readers: Vec<ToolReader>,
    /// Include the usage so far in every chunk.
    pub continuous_usage: bool,
    /// Request fields that had no effect.
    pub ignored: IgnoredFields,
    pub prompt_tokens: usize,
}

/// A response in progress. Dropping it cancels the computation.
pub(crate) struct PendingResponse {
    runs: Runs,
    envelope: Envelope,
    usage: Usage,
    shape: ResponseOptions,
    choices: usize,
    model: Arc<LoadedModel>,
}

/// A computed choice.
#[derive(Default)]
struct ComputedChoice {
    text: String,
    tokens: Vec<ScoredToken>,
    outcome: Option<Outcome>,
}

impl PendingResponse {
    /// # Errors
    /// 429 if too many requests are waiting.
    pub fn start(
        ready: &DecoderService,
        envelope: Envelope,
        requests: Vec<GenerationRequest>,
        shape: ResponseOptions,
    ) -> Result<Self, ApiError> {
        let seats = ready.model.generator.concurrency;
        Ok(Self {
            choices: requests.iter().map(|request| request.responses).sum(),
            runs: Runs::start(Arc::clone(&ready.batch), seats, requests)?,
            envelope,
            usage: Usage {
                prompt_tokens: shape.prompt_tokens,
                completion_tokens: 0,
            },
            shape,
            model: Arc::clone(&ready.model),
        })
    }

    /// Returns a stream of events, or one JSON object after everything is computed.
    pub async fn into_http(self) -> Response {
        let ignored = self.shape.ignored.joined();
        let mut response = self.into_response().await;
        if let Ok(names) = HeaderValue::from_str(&ignored)
            && !ignored.is_empty()
        {
            response.headers_mut().insert(IGNORED, names);
        }
        response
    }

    async fn into_response(mut self) -> Response {
        if self.shape.stream {
            let chunks = Chunks {
                begun: vec![false; self.choices],
                calls: vec![0; self.choices],
                computed: vec![0; self.choices],
                response: self,
                ready: VecDeque::new(),
                ended: false,
            };
            let events = stream::unfold(chunks, |mut chunks| async {
                let event = chunks.next().await?;
                Some((Ok::<_, Infallible>(event), chunks))
            });
            return Sse::new(events)
                .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
                .into_response();
        }
        match self.collect().await {
            Ok(computed) => {
                let choices = computed.into_iter().enumerate();
                let choices = choices.map(|(index, computed)| self.choice(index, computed));
                let choices = choices.collect();
                Json(self.envelope.response_body(choices, self.usage)).into_response()
            }
            Err(error) => error.into_response(),
        }
    }

    /// Returns true if fewer choices are returned than computed, in which case all must be finished first.
    fn selects(&self) -> bool {
        self.shape.computed > self.shape.returned
    }

    /// Computes all choices, and keeps the ones to return.
    async fn collect(&mut self) -> Result<Vec<ComputedChoice>, ApiError> {
        let mut choices: Vec<ComputedChoice> = Vec::new();
        choices.resize_with(self.choices, ComputedChoice::default);
        while let Some(event) = self.runs.next().await {
            match event {
                ResponseEvent::Piece(index, piece) => {
                    choices[index].text += &piece.text;
                    choices[index].tokens.extend(piece.tokens);
                }
                ResponseEvent::Finished(index, outcome) => {
                    self.usage.completion_tokens += outcome.completion_tokens;
                    choices[index].outcome = Some(outcome);
                }
                ResponseEvent::Failed(error) => return Err(error),
                ResponseEvent::Ended => {}
            }
        }
        if self.selects() {
            choices = best(choices, self.shape.computed, self.shape.returned);
        }
        Ok(choices)
    }

    fn choice(&mut self, index: usize, computed: ComputedChoice) -> Choice {
        let logprobs = self.logprobs(&computed.tokens);
        let (reason, stop) = end_of(computed.outcome.as_ref());
        let ReasoningPiece { reasoning, text } = match self.shape.thoughts.get_mut(index) {
            None => ReasoningPiece {
                text: computed.text,
                ..ReasoningPiece::default()
            },
            Some(reader) => {
                let mut joined = reader.push(&computed.text);
                let rest = reader.finish();
                joined.reasoning += &rest.reasoning;
                joined.text += &rest.text;
                joined
            }
        };
        let Some(reader) = self.shape.readers.get_mut(index) else {
            return Choice {
                text,
                reasoning,
                logprobs,
                reason,
                stop,
                ..Choice::default()
            };
        };
        let mut choice = Choice {
            reasoning,
            logprobs,
            reason,
            stop,
            ..Choice::default()
        };
        let mut parts = reader.push(&text);
        parts.extend(reader.finish(reason == "length"));
        for part in parts {
            match part {
                Part::Text(text) => choice.text += &text,
                Part::Call(call) => choice.calls.push(tool_call(&call, None)),
            }
        }
        choice.reason = reason_with_calls(reason, !choice.calls.is_empty());
        choice
    }

    fn logprobs(&self, tokens: &[ScoredToken]) -> Value {
        let vocabulary = &self.model.tokenizer.token_texts;
        match (self.shape.shows_scores, self.envelope.route) {
            (false, _) => Value::Null,
            (true, Route::Chat) => scores::of_chat(tokens, vocabulary),
            (true, Route::Completion) => scores::of_completion(tokens, vocabulary),
        }
    }
}

/// The finish reason of a choice, and the client's stop condition that ended it.
fn end_of(outcome: Option<&Outcome>) -> (&'static str, Value) {
    let Some(outcome) = outcome else {
        return ("stop", Value::Null);
    };
    let stop = outcome.stop.as_ref().map_or(Value::Null, Value::from);
    (outcome.reason.as_str(), stop)
}

/// A truncated completion may lack calls, so `length` takes precedence over `tool_calls`.
fn reason_with_calls(reason: &'static str, has_calls: bool) -> &'static str {
    match reason {
        "stop" if has_calls => "tool_calls",
        _ => reason,
    }
}

/// For each `computed` choices of a prompt, the `returned` choices with the highest mean logprob, the best first.
fn best(choices: Vec<ComputedChoice>, computed: usize, returned: usize) -> Vec<ComputedChoice> {
    let mean = |choice: &ComputedChoice| {
        let outcome = choice.outcome.as_ref();
        outcome.map_or(f64::NEG_INFINITY, Outcome::mean_logprob)
    };
    let mut kept = Vec::new();
    let mut choices = choices.into_iter();
    loop {
        let mut row: Vec<ComputedChoice> = choices.by_ref().take(computed).collect();
        if row.is_empty() {
            return kept;
        }
        row.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        kept.extend(row.into_iter().take(returned));
    }
}

/// The events of a streamed response.
struct Chunks {
    response: PendingResponse,
    ready: VecDeque<Event>,
    /// Choices that have had their first chunk.
    begun: Vec<bool>,
    /// Number of tool calls of each choice so far.
    calls: Vec<usize>,
    /// Number of tokens of each choice so far.
    computed: Vec<usize>,
    ended: bool,
}

impl Chunks {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            if self.response.selects() {
                self.all_at_once().await;
            } else {
                self.advance().await;
            }
        }
    }

    async fn advance(&mut self) {
        match self.response.runs.next().await {
            Some(ResponseEvent::Piece(index, piece)) => self.piece(index, piece),
            Some(ResponseEvent::Finished(index, outcome)) => {
                self.response.usage.completion_tokens += outcome.completion_tokens;
                self.computed[index] = outcome.completion_tokens;
                self.finish(index, Some(&outcome));
            }
            Some(ResponseEvent::Failed(error)) => self.fail(&error),
            Some(ResponseEvent::Ended) => {}
            None => self.end(),
        }
    }

    /// Streams the selected choices after all are computed.
    async fn all_at_once(&mut self) {
        match self.response.collect().await {
            Ok(choices) => {
                for (index, computed) in choices.into_iter().enumerate() {
                    let outcome = computed.outcome.as_ref();
                    let piece = Piece {
                        text: computed.text,
                        tokens: computed.tokens,
                        computed: outcome.map_or(0, |outcome| outcome.completion_tokens),
                    };
                    self.piece(index, piece);
                    self.finish(index, computed.outcome.as_ref());
                }
                self.end();
            }
            Err(error) => self.fail(&error),
        }
    }

    fn piece(&mut self, index: usize, piece: Piece) {
        self.begin(index);
        self.computed[index] = self.computed[index].max(piece.computed);
        let mut delta = Delta {
            logprobs: self.response.logprobs(&piece.tokens),
            ..Delta::default()
        };
        let thought = match self.response.shape.thoughts.get_mut(index) {
            None => ReasoningPiece {
                text: piece.text,
                ..ReasoningPiece::default()
            },
            Some(reader) => reader.push(&piece.text),
        };
        self.thought(index, thought, &mut delta);
        if !is_empty(&delta) || !piece.tokens.is_empty() {
            self.push(&self.response.envelope.delta_chunk(index, delta));
        }
    }

    fn thought(&mut self, index: usize, thought: ReasoningPiece, delta: &mut Delta) {
        delta.reasoning += &thought.reasoning;
        match self.response.shape.readers.get_mut(index) {
            None => delta.text += &thought.text,
            Some(reader) => {
                let parts = reader.push(&thought.text);
                self.add(index, parts, delta);
            }
        }
    }

    fn add(&mut self, index: usize, parts: Vec<Part>, delta: &mut Delta) {
        for part in parts {
            match part {
                Part::Text(text) => delta.text += &text,
                Part::Call(call) => {
                    delta.calls.push(tool_call(&call, Some(self.calls[index])));
                    self.calls[index] += 1;
                }
            }
        }
    }

    fn finish(&mut self, index: usize, outcome: Option<&Outcome>) {
        let (reason, stop) = end_of(outcome);
        self.begin(index);
        let mut delta = Delta::default();
        let rest = self.response.shape.thoughts.get_mut(index);
        if let Some(rest) = rest.map(ReasoningReader::finish) {
            self.thought(index, rest, &mut delta);
        }
        if let Some(reader) = self.response.shape.readers.get_mut(index) {
            let parts = reader.finish(reason == "length");
            self.add(index, parts, &mut delta);
        }
        if !is_empty(&delta) {
            self.push(&self.response.envelope.delta_chunk(index, delta));
        }
        let reason = reason_with_calls(reason, self.calls[index] > 0);
        self.push(&self.response.envelope.finish_chunk(index, reason, stop));
    }

    fn fail(&mut self, error: &ApiError) {
        // The status has been sent already, so the error goes into the stream, without a final marker that would claim success.
        self.push(&error.body());
        self.ended = true;
    }

    fn end(&mut self) {
        if self.response.envelope.include_usage {
            self.push(&self.response.envelope.usage_chunk(self.response.usage));
        }
        self.ready.push_back(Event::default().data("[DONE]"));
        self.ended = true;
    }

    fn begin(&mut self, index: usize) {
        if !std::mem::replace(&mut self.begun[index], true)
            && let Some(chunk) = self
                .response
                .envelope
                .role_chunk(index, !self.response.shape.readers.is_empty())
        {
            self.push(&chunk);
        }
    }

    fn push(&mut self, chunk: &Value) {
        let has_choices = chunk["choices"]
            .as_array()
            .is_some_and(|choices| !choices.is_empty());
        let data = if !(self.response.shape.continuous_usage && has_choices) {
            chunk.to_string()
        } else {
            let usage = Usage {
                prompt_tokens: self.response.shape.prompt_tokens,
                completion_tokens: self.computed.iter().sum(),
            };
            let mut chunk = chunk.clone();
            chunk["usage"] = usage.json();
            chunk.to_string()
        };
        self.ready.push_back(Event::default().data(data));
    }
}

fn is_empty(delta: &Delta) -> bool {
    delta.text.is_empty() && delta.reasoning.is_empty() && delta.calls.is_empty()
}
