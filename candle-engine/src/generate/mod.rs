//! Owns the computation of answers: a prompt's tokens in, pieces of text out. Never waits for a client and never knows HTTP.

mod beams;
mod single;

use crate::api_error::ApiError;
use crate::decoding::Strategy;
use crate::detokenize::Detokenizer;
use crate::error::EngineError;
use crate::grammar::Constraint;
use crate::memory::{KvCacheShare, KvCacheUse};
use crate::network::{KvCache, Llama};
use crate::options::{EngineOptions, TokenBudgets};
use crate::sampling::{SamplingSettings, TokenLogprob, logprob_of};
use crate::stop::StopMatcher;
use crate::tokenizer::ModelTokenizer;
use candle_core::DType;
use candle_transformers::models::llama::Config;
use std::sync::Arc;

/// Prompt tokens computed at once: bounds the attention matrix and the time until a cancellation is seen.
const PROMPT_CHUNK_TOKENS: usize = 256;
/// Rows of logits computed at once where those of a whole prompt are wanted; a row has as many numbers as the vocabulary.
const SCORED_ROWS: usize = 16;

/// One answer that is wanted, or several of one beam search.
#[derive(Clone)]
pub(crate) struct GenerationRequest {
    /// Tokens of the prompt, at least one.
    pub prompt: Arc<[u32]>,
    /// Most tokens of the answer.
    pub max_tokens: usize,
    pub ending: Ending,
    pub sampling: SamplingSettings,
    pub strategy: Strategy,
    pub scores: Scores,
    /// The prompt's text, where the answer begins with it.
    pub echo: Option<Arc<str>>,
    pub constraint: Option<Constraint>,
    /// Answers that are wanted of a beam search; one of everything else.
    pub answers: usize,
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
    fn tokens(&self, tokenizer: &ModelTokenizer) -> Vec<u32> {
        let single = self.stop_tokens.iter().filter(|row| row.len() == 1);
        let own = tokenizer.end_tokens.iter().filter(|_| !self.ignores_end);
        single.flatten().chain(own).copied().collect()
    }

    /// The texts that end an answer.
    fn texts(&self, tokenizer: &ModelTokenizer) -> Result<StopMatcher, ApiError> {
        let rows = self.stop_tokens.iter().filter(|row| row.len() > 1);
        let texts = rows
            .map(|row| text_of(row, tokenizer))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(StopMatcher::new(self.stop.iter().cloned().chain(texts)))
    }

    /// Takes the end away from logits while the answer is too short.
    fn ban(&self, ends: &[u32], tokens: usize, logits: &mut [f32]) {
        if tokens < self.min_tokens {
            for token in ends {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
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

/// What an answer was in the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    pub reason: FinishReason,
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

/// Weights on a device and what all answers share.
pub(crate) struct Generator {
    llama: Llama,
    pub kv_cache_use: KvCacheUse,
    kv_bytes_per_token: u64,
    pub context_tokens: usize,
    pub concurrency: usize,
    pub budgets: TokenBudgets,
    pub weights_bytes: u64,
}

/// What was computed of a prompt.
struct Prompt<'a> {
    cache: KvCache,
    share: KvCacheShare<'a>,
    /// Logits of the first token of the answer.
    logits: Vec<f32>,
    /// Of each token of the prompt, where they are wanted.
    logprobs: Vec<Option<TokenLogprob>>,
    /// Hidden states of the prompt's tokens, where they are wanted.
    states: Vec<Vec<f32>>,
}

impl Generator {
    pub fn new(
        llama: Llama,
        config: &Config,
        options: &EngineOptions,
        dtype: DType,
        weights_bytes: u64,
    ) -> Self {
        let head_width = config.hidden_size / config.num_attention_heads;
        let kv_bytes_per_token = 2
            * config.num_hidden_layers
            * config.num_key_value_heads
            * head_width
            * dtype.size_in_bytes();
        Self {
            llama,
            kv_cache_use: KvCacheUse::default(),
            kv_bytes_per_token: kv_bytes_per_token as u64,
            context_tokens: options.context_tokens,
            concurrency: options.concurrency,
            budgets: options.budgets,
            weights_bytes,
        }
    }

    /// KV cache of all requests that may run at once, in bytes.
    pub fn kv_cache_bytes_max(&self) -> u64 {
        let tokens = self.context_tokens * self.concurrency;
        let tokens = self.budgets.total.map_or(tokens, |total| total.min(tokens));
        self.kv_bytes_per_token * tokens as u64
    }

    /// Computes one token, so that a device that cannot compute is found out by the load.
    ///
    /// # Errors
    /// When the device refuses, or the weights give no numbers.
    pub fn warm_up(&self) -> Result<(), EngineError> {
        let logits = self
            .next_logits(&[0], &mut self.llama.empty_cache())
            .map_err(|error| EngineError::load(error.message))?;
        if logits.iter().all(|logit| logit.is_finite()) {
            Ok(())
        } else {
            Err(EngineError::load(
                "the model computes no finite numbers; its weights are broken: download them again",
            ))
        }
    }

    /// Computes a prompt, for as long as somebody wants it.
    fn prefill(
        &self,
        request: &GenerationRequest,
        vocabulary: usize,
        mut is_wanted: impl FnMut() -> bool,
    ) -> Result<Option<Prompt<'_>>, ApiError> {
        let mut prompt = Prompt {
            cache: self.llama.empty_cache(),
            share: KvCacheShare::new(&self.kv_cache_use),
            logits: Vec::new(),
            logprobs: Vec::new(),
            states: Vec::new(),
        };
        let shown = request.scores.shown.filter(|_| request.echo.is_some());
        let wants_states = matches!(request.strategy, Strategy::Contrastive(_));
        if shown.is_some() {
            prompt.logprobs.push(None);
        }
        for chunk in request.prompt.chunks(PROMPT_CHUNK_TOKENS) {
            if !is_wanted() {
                return Ok(None);
            }
            let first = prompt.cache.tokens();
            prompt
                .share
                .grow(self.kv_bytes_per_token * chunk.len() as u64);
            let hidden = computed(self.llama.forward(chunk, &mut prompt.cache))?;
            if wants_states {
                let states = hidden.to_dtype(DType::F32).and_then(|rows| rows.to_vec2());
                prompt.states.extend(computed(states)?);
            }
            let rows = if shown.is_some() { chunk.len() } else { 1 };
            let mut row = chunk.len() - rows;
            while row < chunk.len() {
                let count = SCORED_ROWS.min(chunk.len() - row);
                let scored = computed(self.llama.logits(&hidden, row, count))?;
                for (nth, mut logits) in scored.into_iter().enumerate() {
                    // Rows of the embedding that no token names are padding.
                    logits.truncate(vocabulary);
                    let next = request.prompt.get(first + row + nth + 1);
                    if let (Some(top), Some(next)) = (shown, next) {
                        prompt.logprobs.push(Some(logprob_of(&logits, *next, top)));
                    }
                    prompt.logits = logits;
                }
                row += count;
            }
        }
        Ok(Some(prompt))
    }

    /// Logits of the token after `tokens`, which follow those in the cache.
    fn next_logits(&self, tokens: &[u32], cache: &mut KvCache) -> Result<Vec<f32>, ApiError> {
        let hidden = computed(self.llama.forward(tokens, cache))?;
        let mut rows = computed(self.llama.logits(&hidden, tokens.len() - 1, 1))?;
        Ok(rows.pop().unwrap_or_default())
    }
}

fn computed<T>(result: candle_core::Result<T>) -> Result<T, ApiError> {
    result.map_err(|error| {
        let first_line = error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        ApiError::internal(format!("the device refused the computation: {first_line}"))
    })
}

fn text_of(tokens: &[u32], tokenizer: &ModelTokenizer) -> Result<String, ApiError> {
    let mut detokenizer = Detokenizer::new();
    let mut text = String::new();
    for token in tokens {
        text += &detokenizer.push(tokenizer, *token)?;
    }
    Ok(text + &detokenizer.finish(tokenizer)?)
}

#[cfg(test)]
mod tests;
