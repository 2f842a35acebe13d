//! A streamed response as a sequence of events.

use super::{PendingResponse, end_of, reason_with_calls};
use crate::api_error::ApiError;
use crate::batch::{Outcome, ResponseEvent};
use crate::pieces::Piece;
use crate::reasoning::{ReasoningPiece, ReasoningReader};
use crate::response_json::{Delta, Usage, tool_call};
use crate::tools::Part;
use axum::response::sse::Event;
use serde_json::Value;
use std::collections::VecDeque;

/// The events of a streamed response.
pub(super) struct Chunks {
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
    pub fn new(response: PendingResponse) -> Self {
        let choices = response.choices;
        Self {
            response,
            ready: VecDeque::new(),
            begun: vec![false; choices],
            calls: vec![0; choices],
            computed: vec![0; choices],
            ended: false,
        }
    }

    pub async fn next(&mut self) -> Option<Event> {
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
