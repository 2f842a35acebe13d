//! A request to the batch, and the result of its answer.

use crate::adapter::Adapter;
use crate::api_error::ApiError;
use crate::decoding::Strategy;
use crate::detokenize::Detokenizer;
use crate::grammar::Constraint;
use crate::pieces::Piece;
use crate::sampling::SamplingSettings;
use crate::stop::StopMatcher;
use crate::tokenizer::ModelTokenizer;
use serde_json::Value;
use std::sync::Arc;

/// One answer that is wanted, or several of one beam search.
#[derive(Clone)]
pub(crate) struct GenerationRequest {
    /// Tokens of the prompt, at least one.
    pub prompt: Arc<[u32]>,
    /// What it is computed with beside the model.
    pub adapter: Option<Arc<Adapter>>,
    /// Most tokens of the answer.
    pub max_tokens: usize,
    pub ending: Ending,
    pub sampling: SamplingSettings,
    pub strategy: Strategy,
    pub scores: Scores,
    /// The prompt's text, where the answer begins with it.
    pub echo: Option<Arc<str>>,
    /// Shares its memory with others until it is computed.
    pub constraint: Option<Constraint>,
    /// Answers that are wanted of a beam search; one of everything else.
    pub answers: usize,
}

impl GenerationRequest {
    /// Sequences that it may have beside each other, each with an answer of its own.
    pub fn sequences(&self) -> usize {
        match self.strategy {
            Strategy::Beams(settings) => settings.beams,
            Strategy::Sampling | Strategy::Contrastive(_) => 1,
        }
    }

    /// How many probabilities are shown with each token of the prompt.
    pub fn shown_of_prompt(&self) -> Option<usize> {
        self.scores.shown.filter(|_| self.echo.is_some())
    }
}

/// Which probabilities of the tokens are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scores {
    /// With each token its own and those of so many likeliest; of the prompt too, where it is given out.
    pub shown: Option<usize>,
    /// The sum over the answer.
    pub summed: bool,
}

/// What ends an answer before its limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ending {
    /// Texts that end it and are left out of it.
    pub stop: Vec<String>,
    /// Tokens that end it, beside those of the model. Several in a row count as the text that they are.
    pub stop_tokens: Vec<Vec<u32>>,
    /// So many tokens are generated before a token may end it.
    pub min_tokens: usize,
    /// The model's own end tokens do not end it.
    pub ignores_end: bool,
}

impl Ending {
    /// The tokens that end an answer.
    pub(super) fn tokens(&self, tokenizer: &ModelTokenizer) -> Vec<u32> {
        let single = self.stop_tokens.iter().filter(|row| row.len() == 1);
        let own = tokenizer.end_tokens.iter().filter(|_| !self.ignores_end);
        single.flatten().chain(own).copied().collect()
    }

    /// The reported token that ended its answer: none, unless the request named the token itself.
    pub(super) fn reason(&self, token: u32) -> Option<StopReason> {
        let is_named = self.stop_tokens.iter().any(|row| *row == [token]);
        is_named.then_some(StopReason::Token(token))
    }

    /// The texts that end an answer.
    pub(super) fn texts(&self, tokenizer: &ModelTokenizer) -> Result<StopMatcher, ApiError> {
        let rows = self.stop_tokens.iter().filter(|row| row.len() > 1);
        let texts = rows
            .map(|row| text_of(row, tokenizer))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(StopMatcher::new(self.stop.iter().cloned().chain(texts)))
    }

    /// Takes the end away from logits while the answer is too short.
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

/// The text of tokens in a row.
pub(super) fn text_of(tokens: &[u32], tokenizer: &ModelTokenizer) -> Result<String, ApiError> {
    let mut detokenizer = Detokenizer::new();
    let mut text = String::new();
    for token in tokens {
        text += &detokenizer.push(tokenizer, *token)?;
    }
    Ok(text + &detokenizer.finish(tokenizer)?)
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model ended it, a stop string was found, or its grammar has nothing more.
    Stop,
    /// The limit of tokens was reached.
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

/// What of a client's own wishes ended an answer.
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

/// What an answer was in the end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub reason: FinishReason,
    pub stop: Option<StopReason>,
    /// Generated tokens, with the one that ended the answer.
    pub completion_tokens: usize,
    /// Sum of the logprobs of these tokens, where it is wanted.
    pub logprob_sum: f64,
}

impl Outcome {
    /// The logprob of a token on average; an answer without tokens is the worst.
    pub fn mean_logprob(&self) -> f64 {
        match self.completion_tokens {
            0 => f64::NEG_INFINITY,
            count => self.logprob_sum / count as f64,
        }
    }
}

/// What a client hears of its answers, each with the index of its choice.
#[derive(Debug)]
pub(crate) enum AnswerEvent {
    /// A piece that is not empty.
    Piece(usize, Piece),
    Finished(usize, Outcome),
    /// One request is over, and another may be queued in its place.
    Ended,
    Failed(ApiError),
}

/// Hidden states that are wanted of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatesRequest {
    /// At least one.
    pub tokens: Vec<u32>,
    /// Those of every token, not of the last alone.
    pub of_all: bool,
}
