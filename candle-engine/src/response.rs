//! Turns the batch's results into a response: one JSON object, or a stream of events.

mod chunks;

use crate::api_error::ApiError;
use crate::batch::{GenerationRequest, Outcome, ResponseEvent, Runs};
use crate::decoder_service::DecoderService;
use crate::loading::LoadedModel;
use crate::pieces::ScoredToken;
use crate::reasoning::{ReasoningPiece, ReasoningReader};
use crate::response_json::{Choice, Envelope, Route, Usage, tool_call};
use crate::scores;
use crate::tools::{Part, ToolReader};
use axum::Json;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use chunks::Chunks;
use futures_util::stream;
use reading::IgnoredFields;
use serde_json::Value;
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
            let events = stream::unfold(Chunks::new(self), |mut chunks| async {
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
