//! The completions of a beam search in progress. Nothing is sent before the search has ended.

use super::client::{Client, RowOutcome};
use crate::api_error::ApiError;
use crate::batch::request::{FinishReason, GenerationRequest, Outcome, StopReason};
use crate::decoding::{BeamSettings, Beams, Extension};
use crate::grammar::Constraint;
use crate::pieces::{Piece, ResponseText};
use crate::sampling::{Penalties, log_softmax, no_finite_logits};
use crate::stop::StopMatcher;
use crate::tokenizer::ModelTokenizer;

/// One beam: an unfinished completion.
#[derive(Clone)]
struct Beam {
    /// Sum of the logprobs of its tokens.
    sum: f64,
    emitted: String,
    text: ResponseText,
    penalties: Penalties,
    constraint: Option<Constraint>,
}

enum BeamEnd {
    No,
    /// The text withheld by the stop matcher belongs to the stop string.
    ByStopString(String),
    ByGrammar,
}

impl Beam {
    /// Returns the text after the last token.
    fn finish(self, tokenizer: &ModelTokenizer) -> Result<String, ApiError> {
        Ok(self.emitted + &self.text.finish(tokenizer)?.piece.text)
    }

    /// Adds a token. Reports if the completion ended with it, by a stop string or its grammar.
    fn push(&mut self, token: u32, tokenizer: &ModelTokenizer) -> Result<BeamEnd, ApiError> {
        self.penalties.note(token);
        let step = self.text.push(tokenizer, token, None)?;
        self.emitted += &step.piece.text;
        if let Some(stop) = step.stopped {
            return Ok(BeamEnd::ByStopString(stop));
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token)?;
            if constraint.is_complete() {
                return Ok(BeamEnd::ByGrammar);
            }
        }
        Ok(BeamEnd::No)
    }
}

pub(crate) struct Search {
    pub client: Client,
    request: GenerationRequest,
    settings: BeamSettings,
    ends: Vec<u32>,
    running: Vec<Beam>,
    /// The logprobs of the next token, for the beams whose rows have arrived.
    rows: Vec<Vec<f32>>,
    found: Beams<(String, Outcome)>,
    tokens: usize,
}

impl Search {
    pub fn new(
        mut request: GenerationRequest,
        settings: BeamSettings,
        stops: StopMatcher,
        client: Client,
        tokenizer: &ModelTokenizer,
    ) -> Self {
        let first = Beam {
            sum: 0.0,
            emitted: String::new(),
            text: ResponseText::new(stops, 0),
            penalties: Penalties::new(&request.sampling, &request.prompt),
            constraint: request
                .constraint
                .take()
                .map(|constraint| constraint.apart()),
        };
        Self {
            client,
            settings,
            ends: request.ending.tokens(tokenizer),
            running: vec![first],
            rows: Vec::new(),
            found: Beams::new(settings),
            tokens: 0,
            request,
        }
    }

    pub fn end_at_once(&mut self, tokenizer: &ModelTokenizer) -> Result<bool, ApiError> {
        let ends = self.request.max_tokens == 0;
        if ends {
            self.end(tokenizer)?;
        }
        Ok(ends)
    }

    /// Takes the row of the next beam; the last row advances all beams.
    pub fn row(
        &mut self,
        logits: &mut [f32],
        tokenizer: &ModelTokenizer,
    ) -> Result<RowOutcome, ApiError> {
        if !logits.iter().any(|logit| logit.is_finite()) {
            return Err(no_finite_logits());
        }
        let beam = &mut self.running[self.rows.len()];
        beam.penalties.apply(logits);
        log_softmax(logits);
        // Masked after the softmax, not before: a beam must not become likely because its grammar leaves it only unlikely tokens.
        if let Some(constraint) = &mut beam.constraint {
            constraint.mask(logits, &self.ends)?;
        }
        let ending = &self.request.ending;
        ending.ban(&self.ends, self.tokens, logits);
        self.rows.push(logits.to_vec());
        if self.rows.len() == self.running.len() {
            self.advance(tokenizer)
        } else {
            Ok(RowOutcome::Wait)
        }
    }

    fn advance(&mut self, tokenizer: &ModelTokenizer) -> Result<RowOutcome, ApiError> {
        let rows = std::mem::take(&mut self.rows);
        let sums: Vec<f64> = self.running.iter().map(|beam| beam.sum).collect();
        self.tokens += 1;
        let (mut next, mut ways) = (Vec::new(), Vec::new());
        for way in self.found.extensions(&sums, &rows) {
            if next.len() == self.settings.beams {
                break;
            }
            if let Some(beam) = self.extend(way, tokenizer)? {
                next.push(beam);
                ways.push((way.parent, way.token));
            }
        }
        let sums = next.iter().map(|beam| beam.sum);
        let best = sums.fold(f64::MIN, f64::max);
        let most = self.request.max_tokens;
        self.running = next;
        if self.found.is_done(best, self.tokens, most) {
            self.running.clear();
        }
        if self.running.is_empty() || self.tokens >= most {
            return self.end(tokenizer);
        }
        Ok(RowOutcome::GoOn(ways))
    }

    /// Extends a beam by one token; returns `None` if it ended or became impossible.
    fn extend(
        &mut self,
        way: Extension,
        tokenizer: &ModelTokenizer,
    ) -> Result<Option<Beam>, ApiError> {
        let mut beam = self.running[way.parent].clone();
        beam.sum = way.sum;
        let (text, stop) = if self.ends.contains(&way.token) {
            // An end token outside the best candidates is not a completion; another extension takes its place.
            if !way.is_leading {
                return Ok(None);
            }
            (
                beam.finish(tokenizer)?,
                self.request.ending.reason(way.token),
            )
        } else {
            match beam.push(way.token, tokenizer)? {
                BeamEnd::No => return Ok(Some(beam)),
                BeamEnd::ByStopString(stop) => (beam.emitted, Some(StopReason::Text(stop))),
                BeamEnd::ByGrammar => (beam.finish(tokenizer)?, None),
            }
        };
        self.keep(text, way.sum, FinishReason::Stop, stop);
        Ok(None)
    }

    fn keep(&mut self, text: String, sum: f64, reason: FinishReason, stop: Option<StopReason>) {
        let outcome = Outcome {
            reason,
            stop,
            completion_tokens: self.tokens,
            logprob_sum: sum,
        };
        self.found.finish(sum, self.tokens, (text, outcome));
    }

    /// Sends the best completions, the best first.
    fn end(&mut self, tokenizer: &ModelTokenizer) -> Result<RowOutcome, ApiError> {
        for beam in std::mem::take(&mut self.running) {
            let sum = beam.sum;
            let text = beam.finish(tokenizer)?;
            self.keep(text, sum, FinishReason::Length, None);
        }
        let found = std::mem::replace(&mut self.found, Beams::new(self.settings));
        let best = found.into_best(self.request.responses);
        if best.len() < self.request.responses {
            let message = format!(
                "`n` is {}, but the beam search found only {} different completions; request fewer",
                self.request.responses,
                best.len()
            );
            return Err(ApiError::field("n", message));
        }
        for (choice, (text, outcome)) in best.into_iter().enumerate() {
            let piece = Piece {
                text,
                ..Piece::default()
            };
            self.client.give(choice, piece);
            self.client.finish(choice, outcome);
        }
        Ok(RowOutcome::End)
    }
}
