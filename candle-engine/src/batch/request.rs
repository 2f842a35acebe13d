//! A request to the batch, and the outcome of its completions.

use super::schedule::Arrival;
use crate::adapter::Adapter;
use crate::api_error::ApiError;
use crate::decoding::Strategy;
use crate::detokenize::Detokenizer;
use crate::grammar::Constraint;
use crate::pieces::Piece;
use crate::sampling::SamplingSettings;
use crate::stop::StopMatcher;
use crate::tokenizer::ModelTokenizer;
use crate::vision::PromptImages;
use serde_json::Value;
use std::sync::Arc;

/// A request for one completion, or for several of one beam search.
#[derive(Clone)]
pub(crate) struct GenerationRequest {
    /// Tokens of the prompt, at least one.
    pub prompt: Arc<[u32]>,
    /// The images that the prompt's placeholders stand for.
    pub images: PromptImages,
    /// The adapter to compute with, if any.
    pub adapter: Option<Arc<Adapter>>,
    /// Maximum number of tokens of the completion.
    pub max_tokens: usize,
    pub ending: Ending,
    pub sampling: SamplingSettings,
    pub strategy: Strategy,
    pub scores: Scores,
    /// The text of the prompt, if the completion begins with it.
    pub echo: Option<Arc<str>>,
    /// Shares its memory with other requests until it is first used.
    pub constraint: Option<Constraint>,
    /// Number of completions a beam search returns; otherwise one.
    pub responses: usize,
    /// The completion continues the prompt, so repetition penalties count both.
    pub continues_prompt: bool,
}

impl GenerationRequest {
    /// Maximum number of sequences that the request computes in parallel.
    pub fn sequences(&self) -> usize {
        match self.strategy {
            Strategy::Beams(settings) => settings.beams,
            Strategy::Sampling | Strategy::Contrastive(_) => 1,
        }
    }

    /// The request as the schedule sees it.
    pub(super) fn arrival(&self) -> Arrival {
        let generated = self.max_tokens.saturating_mul(self.sequences());
        let shows_prompt = self.shown_of_prompt().is_some();
        Arrival {
            prompt: self.prompt.to_vec(),
            most_tokens: self.prompt.len().saturating_add(generated),
            needs_all_rows: shows_prompt || matches!(self.strategy, Strategy::Contrastive(_)),
            takes_drafts: matches!(self.strategy, Strategy::Sampling),
            adapter: self.adapter.clone(),
        }
    }

    /// Number of likeliest tokens shown for each prompt token, if the prompt is returned with scores.
    pub fn shown_of_prompt(&self) -> Option<usize> {
        self.scores.shown.filter(|_| self.echo.is_some())
    }
}

/// The requested token probabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scores {
    /// Number of likeliest tokens to return for each token, in addition to the token itself. Includes the prompt if it is returned.
    pub shown: Option<usize>,
    /// Sum the logprobs of the completion.
    pub summed: bool,
}

/// Conditions that end a completion before its limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ending {
    /// Stop strings. They are not part of the completion.
    pub stop: Vec<String>,
    /// Stop tokens in addition to the model's own. A sequence of several tokens counts as its text.
    pub stop_tokens: Vec<Vec<u32>>,
    /// Number of tokens to generate before an end token counts.
    pub min_tokens: usize,
    /// Ignore the model's own end tokens.
    pub ignores_end: bool,
}

impl Ending {
    /// The single tokens that end a completion.
    pub(super) fn tokens(&self, tokenizer: &ModelTokenizer) -> Vec<u32> {
        let single = self.stop_tokens.iter().filter(|row| row.len() == 1);
        let own = tokenizer.end_tokens.iter().filter(|_| !self.ignores_end);
        single.flatten().chain(own).copied().collect()
    }

    /// Returns the stop reason to report for an end token: `None` unless the request named the token.
    pub(super) fn reason(&self, token: u32) -> Option<StopReason> {
        let is_named = self.stop_tokens.iter().any(|row| *row == [token]);
        is_named.then_some(StopReason::Token(token))
    }

    /// The texts that end a completion.
    pub(super) fn texts(&self, tokenizer: &ModelTokenizer) -> Result<StopMatcher, ApiError> {
        let rows = self.stop_tokens.iter().filter(|row| row.len() > 1);
        let texts = rows
            .map(|row| text_of(row, tokenizer))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(StopMatcher::new(self.stop.iter().cloned().chain(texts)))
    }

    /// Masks the end tokens while the completion is shorter than `min_tokens`.
    pub(super) fn ban(&self, ends: &[u32], tokens: usize, logits: &mut [f32]) {
        if tokens < self.min_tokens {
            for token in ends {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// Decodes consecutive tokens.
pub(super) fn text_of(tokens: &[u32], tokenizer: &ModelTokenizer) -> Result<String, ApiError> {
    let mut detokenizer = Detokenizer::new();
    let mut text = String::new();
    for token in tokens {
        text += &detokenizer.push(tokenizer, *token)?;
    }
    Ok(text + &detokenizer.finish(tokenizer)?)
}

/// The reason a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// An end token, a stop string, or the end of the grammar.
    Stop,
    /// The token limit.
    Length,
}

impl FinishReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// The client's own stop condition that ended a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StopReason {
    Text(String),
    Token(u32),
}

impl From<&StopReason> for Value {
    fn from(reason: &StopReason) -> Self {
        match reason {
            StopReason::Text(text) => Self::from(text.as_str()),
            StopReason::Token(token) => Self::from(*token),
        }
    }
}

/// The result of a finished completion.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub reason: FinishReason,
    pub stop: Option<StopReason>,
    /// Number of generated tokens, including the final one.
    pub completion_tokens: usize,
    /// Sum of the logprobs of these tokens, if requested.
    pub logprob_sum: f64,
}

impl Outcome {
    /// The average logprob per token; negative infinity without tokens.
    pub fn mean_logprob(&self) -> f64 {
        match self.completion_tokens {
            0 => f64::NEG_INFINITY,
            count => self.logprob_sum / count as f64,
        }
    }
}

/// An event of a completion, with the index of its choice.
#[derive(Debug)]
pub(crate) enum ResponseEvent {
    /// A non-empty piece.
    Piece(usize, Piece),
    Finished(usize, Outcome),
    /// One request has ended, and another may be queued in its place.
    Ended,
    Failed(ApiError),
}

/// A request for hidden states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatesRequest {
    /// The tokens, at least one.
    pub tokens: Vec<u32>,
    /// Return the states of every token instead of the last one only.
    pub of_all: bool,
}
