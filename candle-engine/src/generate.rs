//! Owns the computation of one answer: prompt in, pieces of text out. Never waits for a client and never knows HTTP.

use crate::api_error::ApiError;
use crate::detokenize::Detokenizer;
use crate::error::EngineError;
use crate::memory::{KvCacheShare, KvCacheUse};
use crate::options::{EngineOptions, TokenBudgets};
use crate::sample::{Sampler, SamplingSettings};
use crate::stop::StopMatcher;
use crate::tokenizer::ModelTokenizer;
use candle_core::{DType, Device, Tensor};
use candle_transformers::models::llama::{Cache, Config, Llama};

/// Prompt tokens computed at once: bounds the attention matrix and the time until a cancellation is seen.
const PROMPT_CHUNK_TOKENS: usize = 256;

/// One answer that is wanted.
#[derive(Debug, Clone)]
pub(crate) struct GenerationRequest {
    /// Tokens of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// Most tokens of the answer.
    pub max_tokens: usize,
    pub ending: Ending,
    pub sampling: SamplingSettings,
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

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model ended it, or a stop string was found.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub reason: FinishReason,
    /// Generated tokens, with the one that ended the answer.
    pub completion_tokens: usize,
}

/// Weights on a device and what all answers share.
pub(crate) struct Generator {
    llama: Llama,
    device: Device,
    /// A cache with no keys; cloning it shares the rotary tables.
    empty_cache: Cache,
    pub kv_cache_use: KvCacheUse,
    kv_bytes_per_token: u64,
    pub context_tokens: usize,
    concurrency: usize,
    pub budgets: TokenBudgets,
    pub weights_bytes: u64,
}

impl Generator {
    pub fn new(
        llama: Llama,
        mut config: Config,
        options: &EngineOptions,
        (device, dtype): (Device, DType),
        weights_bytes: u64,
    ) -> Result<Self, EngineError> {
        // Rotary tables are only needed for the context that is served.
        config.max_position_embeddings = options.context_tokens;
        let empty_cache = Cache::new(true, dtype, &config, &device).map_err(EngineError::load)?;
        let head_width = config.hidden_size / config.num_attention_heads;
        let kv_bytes_per_token = 2
            * config.num_hidden_layers
            * config.num_key_value_heads
            * head_width
            * dtype.size_in_bytes();
        Ok(Self {
            llama,
            device,
            empty_cache,
            kv_cache_use: KvCacheUse::default(),
            kv_bytes_per_token: kv_bytes_per_token as u64,
            context_tokens: options.context_tokens,
            concurrency: options.concurrency,
            budgets: options.budgets,
            weights_bytes,
        })
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
            .logits(&[0], 0, &mut self.empty_cache.clone())
            .map_err(|error| EngineError::load(error.message))?;
        if logits.iter().all(|logit| logit.is_finite()) {
            Ok(())
        } else {
            Err(EngineError::load(
                "the model computes no finite numbers; its weights are broken: download them again",
            ))
        }
    }

    /// Generates one answer. `give` takes each new piece of text; when it answers `false` nobody wants the rest.
    ///
    /// Returns `None` when it was cancelled.
    ///
    /// # Errors
    /// When the device or the tokenizer refuses.
    pub fn generate(
        &self,
        request: &GenerationRequest,
        tokenizer: &ModelTokenizer,
        mut give: impl FnMut(String) -> bool,
    ) -> Result<Option<Outcome>, ApiError> {
        let mut cache = self.empty_cache.clone();
        let mut share = KvCacheShare::new(&self.kv_cache_use);
        let mut sampler = Sampler::new(request.sampling.clone(), &request.prompt);
        let mut detokenizer = Detokenizer::new();
        let ending = &request.ending;
        let (single, rows): (Vec<&Vec<u32>>, Vec<_>) =
            ending.stop_tokens.iter().partition(|row| row.len() == 1);
        let texts = rows
            .into_iter()
            .map(|row| text_of(row, tokenizer))
            .collect::<Result<Vec<_>, _>>()?;
        let mut stops = StopMatcher::new(ending.stop.iter().cloned().chain(texts));
        let own = tokenizer.end_tokens.iter();
        let own = own.filter(|_| !ending.ignores_end);
        let ends: Vec<u32> = single.into_iter().flatten().chain(own).copied().collect();
        let mut position = 0;
        let mut logits = Vec::new();
        for chunk in request.prompt.chunks(PROMPT_CHUNK_TOKENS) {
            // An empty piece asks whether anybody still listens.
            if !give(String::new()) {
                return Ok(None);
            }
            share.grow(self.kv_bytes_per_token * chunk.len() as u64);
            logits = self.logits(chunk, position, &mut cache)?;
            position += chunk.len();
        }
        let mut outcome = Outcome {
            reason: FinishReason::Length,
            completion_tokens: 0,
        };
        while outcome.completion_tokens < request.max_tokens {
            // Rows of the embedding that no token names are padding.
            logits.truncate(tokenizer.vocabulary);
            if outcome.completion_tokens < ending.min_tokens {
                for token in &ends {
                    if let Some(logit) = logits.get_mut(*token as usize) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
            let token = sampler.sample(&mut logits)?;
            outcome.completion_tokens += 1;
            if ends.contains(&token) {
                outcome.reason = FinishReason::Stop;
                break;
            }
            let step = stops.push(&detokenizer.push(tokenizer, token)?);
            if !give(step.text) {
                return Ok(None);
            }
            if step.stopped {
                return Ok(Some(Outcome {
                    reason: FinishReason::Stop,
                    ..outcome
                }));
            }
            if outcome.completion_tokens < request.max_tokens {
                share.grow(self.kv_bytes_per_token);
                logits = self.logits(&[token], position, &mut cache)?;
                position += 1;
            }
        }
        let step = stops.push(&detokenizer.finish(tokenizer)?);
        let rest = if step.stopped {
            step.text
        } else {
            step.text + &stops.finish()
        };
        let reason = if step.stopped {
            FinishReason::Stop
        } else {
            outcome.reason
        };
        Ok(give(rest).then_some(Outcome { reason, ..outcome }))
    }

    /// Logits of the token after `tokens`, which stand at `position` and following.
    fn logits(
        &self,
        tokens: &[u32],
        position: usize,
        cache: &mut Cache,
    ) -> Result<Vec<f32>, ApiError> {
        let input = Tensor::new(tokens, &self.device).and_then(|input| input.unsqueeze(0));
        let output = input.and_then(|input| self.llama.forward(&input, position, cache));
        let logits = output
            .and_then(|output| output.squeeze(0))
            .and_then(|logits| logits.to_vec1());
        logits.map_err(|error| {
            let first_line = error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            ApiError::internal(format!("the device refused the computation: {first_line}"))
        })
    }
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
mod tests {
    use super::*;
    use crate::loading::{LoadedModel, Progress, load};
    use crate::options::{DeviceChoice, Listen};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn demo() -> LoadedModel {
        let options = EngineOptions {
            model_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat"),
            model_name: "tiny-chat".to_owned(),
            listen: Listen::Unix("unused".into()),
            context_tokens: 512,
            concurrency: 1,
            device: DeviceChoice::Cpu,
            threads: None,
            budgets: TokenBudgets::default(),
        };
        load(&options, &Progress::default()).expect("the demo model loads")
    }

    /// An answer that only its limit ends.
    fn endless(prompt: Vec<u32>, max_tokens: usize) -> GenerationRequest {
        let logit_bias = BTreeMap::from([(0, -100.0), (2, -100.0)]);
        let sampling = SamplingSettings {
            temperature: 2.0,
            seed: Some(1),
            logit_bias,
            ..Default::default()
        };
        GenerationRequest {
            prompt,
            max_tokens,
            ending: Ending::default(),
            sampling,
        }
    }

    #[test]
    fn tokens_end_an_answer_but_not_before_its_least_length() {
        let model = demo();
        let greedy = |ending: Ending| {
            let request = GenerationRequest {
                ending,
                sampling: SamplingSettings {
                    temperature: 0.0,
                    ..Default::default()
                },
                ..endless(vec![5, 9], 24)
            };
            let mut text = String::new();
            let outcome = model
                .generator
                .generate(&request, &model.tokenizer, |piece| {
                    text += &piece;
                    true
                });
            (text, outcome.unwrap().unwrap())
        };
        let long = Ending {
            ignores_end: true,
            ..Ending::default()
        };
        let (whole, outcome) = greedy(long.clone());
        assert_eq!(outcome.completion_tokens, 24);
        // Each token of the answer, as an end, cuts it off where it first stands.
        let tokens = model.tokenizer.encode(&whole, false).unwrap();
        let end = Ending {
            stop_tokens: vec![vec![tokens[2]]],
            ..long.clone()
        };
        let (cut, outcome) = greedy(end.clone());
        assert!(whole.starts_with(&cut) && cut.len() < whole.len());
        assert_eq!(outcome.reason, FinishReason::Stop);
        let (_, outcome) = greedy(Ending {
            min_tokens: 20,
            ..end
        });
        assert!(outcome.completion_tokens >= 20);
        let row = Ending {
            stop_tokens: vec![tokens[2..4].to_vec()],
            ..long
        };
        let text = text_of(&tokens[2..4], &model.tokenizer).unwrap();
        let (cut, _) = greedy(row);
        assert_eq!(cut, whole.split(&text).next().unwrap());
    }

    #[test]
    fn a_client_that_leaves_stops_the_computation_at_the_next_token() {
        let model = demo();
        let (mut given, mut cache_bytes) = (0, 0);
        let outcome = model
            .generator
            .generate(&endless(vec![5], 400), &model.tokenizer, |_| {
                given += 1;
                cache_bytes = model.generator.kv_cache_use.bytes();
                given < 4
            });
        // Once before the prompt, then once for each token until nobody wanted more.
        assert_eq!((outcome, given), (Ok(None), 4));
        assert_eq!(cache_bytes, 3 * model.generator.kv_bytes_per_token);
        assert_eq!(
            model.generator.kv_cache_use.bytes(),
            0,
            "its cache is given back"
        );
    }

    #[test]
    fn a_long_prompt_in_chunks_means_the_same_as_in_one() {
        let model = demo();
        let prompt: Vec<u32> = (0..400).map(|index| 3 + index % 600).collect();
        let whole = model
            .generator
            .logits(&prompt, 0, &mut model.generator.empty_cache.clone())
            .expect("computes");
        let mut cache = model.generator.empty_cache.clone();
        let mut last = Vec::new();
        for (index, chunk) in prompt.chunks(PROMPT_CHUNK_TOKENS).enumerate() {
            last = model
                .generator
                .logits(chunk, index * PROMPT_CHUNK_TOKENS, &mut cache)
                .expect("computes");
        }
        let largest = whole
            .iter()
            .zip(&last)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(largest < 1e-3, "{largest}");
    }

    #[test]
    fn an_answer_has_exactly_as_many_tokens_as_its_limit() {
        let model = demo();
        let outcome = model
            .generator
            .generate(&endless(vec![5, 6], 7), &model.tokenizer, |_| true);
        assert_eq!(
            outcome,
            Ok(Some(Outcome {
                reason: FinishReason::Length,
                completion_tokens: 7
            }))
        );
    }
}
