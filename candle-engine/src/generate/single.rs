//! Owns the computation of one answer token by token: drawn, or by contrastive search. Never searches by beams.

use super::{FinishReason, GenerationRequest, Generator, Outcome, computed};
use crate::api_error::ApiError;
use crate::decoding::{ContrastiveSettings, Seen, Strategy, choose};
use crate::network::KvCache;
use crate::pieces::{AnswerText, Piece, prompt_tokens};
use crate::sampling::{Penalties, Sampler, likeliest, log_softmax, logprob_of, no_finite_logits};
use crate::tokenizer::ModelTokenizer;
use candle_core::DType;

/// Who chooses the tokens of this answer.
enum Chooser {
    Sampler(Box<Sampler>),
    Contrastive(Contrastive),
}

struct Contrastive {
    settings: ContrastiveSettings,
    penalties: Penalties,
    seen: Seen,
}

impl Generator {
    /// Generates one answer. `give` takes each new piece; an empty one asks whether anybody still listens. When it answers
    /// `false` nobody wants the rest.
    ///
    /// Returns `None` when it was cancelled.
    ///
    /// # Errors
    /// When the device or the tokenizer refuses, or the grammar cannot be followed.
    pub fn generate(
        &self,
        request: &GenerationRequest,
        tokenizer: &ModelTokenizer,
        mut give: impl FnMut(Piece) -> bool,
    ) -> Result<Option<Outcome>, ApiError> {
        let mut outcome = Outcome {
            reason: FinishReason::Length,
            completion_tokens: 0,
            logprob_sum: 0.0,
        };
        let echo = request.echo.as_deref();
        if request.max_tokens == 0 && request.scores.shown.is_none() {
            let text = echo.unwrap_or_default().to_owned();
            let piece = Piece {
                text,
                ..Piece::default()
            };
            return Ok(give(piece).then_some(outcome));
        }
        let Some(prompt) =
            self.prefill(request, tokenizer.vocabulary, || give(Piece::default()))?
        else {
            return Ok(None);
        };
        let (mut cache, mut share, mut logits) = (prompt.cache, prompt.share, prompt.logits);
        if let Some(echo) = echo {
            let piece = Piece {
                text: echo.to_owned(),
                tokens: prompt_tokens(tokenizer, &request.prompt, prompt.logprobs)?,
            };
            if !give(piece) {
                return Ok(None);
            }
        }
        let mut chooser = match request.strategy {
            Strategy::Contrastive(settings) => {
                let mut seen = Seen::default();
                prompt.states.into_iter().for_each(|state| seen.add(state));
                // Every candidate goes its own way from here.
                cache.share();
                Chooser::Contrastive(Contrastive {
                    settings,
                    penalties: Penalties::new(&request.sampling, &request.prompt),
                    seen,
                })
            }
            _ => Chooser::Sampler(Box::new(Sampler::new(
                request.sampling.clone(),
                &request.prompt,
            ))),
        };
        let ending = &request.ending;
        let ends = ending.tokens(tokenizer);
        let letters_before = echo.map_or(0, |echo| echo.chars().count());
        let mut text = AnswerText::new(ending.texts(tokenizer)?, letters_before);
        let mut constraint = request.constraint.clone();
        let wants_scores = request.scores.summed || request.scores.shown.is_some();
        while outcome.completion_tokens < request.max_tokens {
            // The model's own distribution, before anything is done to it.
            let raw = wants_scores.then(|| logits.clone());
            if let Some(constraint) = &mut constraint
                && !constraint.mask(&mut logits, &ends)?
            {
                outcome.reason = FinishReason::Stop;
                break;
            }
            ending.ban(&ends, outcome.completion_tokens, &mut logits);
            let (token, next) = match &mut chooser {
                Chooser::Sampler(sampler) => (sampler.sample(&mut logits)?, None),
                Chooser::Contrastive(contrastive) => {
                    let (token, next) = self.contrast(contrastive, &mut logits, &mut cache)?;
                    (token, Some(next))
                }
            };
            outcome.completion_tokens += 1;
            let logprob =
                raw.map(|raw| logprob_of(&raw, token, request.scores.shown.unwrap_or_default()));
            outcome.logprob_sum += logprob.as_ref().map_or(0.0, |it| f64::from(it.logprob));
            if ends.contains(&token) {
                outcome.reason = FinishReason::Stop;
                break;
            }
            let shown = logprob.filter(|_| request.scores.shown.is_some());
            let step = text.push(tokenizer, token, shown)?;
            if !give(step.piece) {
                return Ok(None);
            }
            if step.stopped {
                outcome.reason = FinishReason::Stop;
                return Ok(Some(outcome));
            }
            if let Some(constraint) = &mut constraint {
                constraint.accept(token)?;
                if constraint.is_complete() {
                    outcome.reason = FinishReason::Stop;
                    break;
                }
            }
            if outcome.completion_tokens < request.max_tokens {
                share.grow(self.kv_bytes_per_token);
                logits = match next {
                    Some(next) => next,
                    None => self.next_logits(&[token], &mut cache)?,
                };
                logits.truncate(tokenizer.vocabulary);
            }
        }
        let step = text.finish(tokenizer)?;
        if step.stopped {
            outcome.reason = FinishReason::Stop;
        }
        Ok(give(step.piece).then_some(outcome))
    }

    /// Chooses a token by contrast and goes on with it in `cache`; the logits are those after it.
    fn contrast(
        &self,
        contrastive: &mut Contrastive,
        logits: &mut [f32],
        cache: &mut KvCache,
    ) -> Result<(u32, Vec<f32>), ApiError> {
        contrastive.penalties.apply(logits);
        log_softmax(logits);
        let alpha = contrastive.settings.penalty_alpha;
        let mut scores = Vec::new();
        let mut best = None;
        for token in likeliest(logits, contrastive.settings.candidates) {
            let mut cache = cache.clone();
            let hidden = computed(self.llama.forward(&[token], &mut cache))?;
            let state = hidden.to_dtype(DType::F32).and_then(|rows| rows.to_vec2());
            let state: Vec<f32> = computed(state)?.pop().unwrap_or_default();
            let probability = logits[token as usize].exp();
            scores.push((probability, contrastive.seen.similarity(&state)));
            // Only the best so far is kept: each candidate has a cache of its own.
            if choose(&scores, alpha) == Some(scores.len() - 1) {
                best = Some((token, cache, hidden, state));
            }
        }
        let (token, chosen, hidden, state) = best.ok_or_else(no_finite_logits)?;
        let next = computed(self.llama.logits(&hidden, 0, 1))?.pop();
        *cache = chosen;
        contrastive.seen.add(state);
        contrastive.penalties.note(token);
        Ok((token, next.unwrap_or_default()))
    }
}
