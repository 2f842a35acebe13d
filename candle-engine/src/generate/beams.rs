//! Owns the computation of answers by beam search. Nothing is given out before the search has ended. Never draws a token.

use super::{FinishReason, GenerationRequest, Generator, Outcome};
use crate::api_error::ApiError;
use crate::decoding::{BeamSettings, Beams, Extension};
use crate::grammar::Constraint;
use crate::network::KvCache;
use crate::pieces::AnswerText;
use crate::sampling::{Penalties, log_softmax, no_finite_logits};
use crate::tokenizer::ModelTokenizer;

/// One beam: an answer that is still going on.
#[derive(Clone)]
struct Beam {
    cache: KvCache,
    logits: Vec<f32>,
    /// Sum of the logprobs of its tokens.
    sum: f64,
    given: String,
    text: AnswerText,
    penalties: Penalties,
    constraint: Option<Constraint>,
}

impl Beam {
    /// The text, when no more tokens come.
    fn finish(self, tokenizer: &ModelTokenizer) -> Result<String, ApiError> {
        Ok(self.given + &self.text.finish(tokenizer)?.piece.text)
    }

    /// Takes a token. Whether the answer is whole with it, though no end token came.
    fn push(&mut self, token: u32, tokenizer: &ModelTokenizer) -> Result<Ended, ApiError> {
        self.penalties.note(token);
        let step = self.text.push(tokenizer, token, None)?;
        self.given += &step.piece.text;
        if step.stopped {
            return Ok(Ended::ByStopString);
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token)?;
            if constraint.is_complete() {
                return Ok(Ended::ByGrammar);
            }
        }
        Ok(Ended::No)
    }
}

enum Ended {
    No,
    /// What the text still holds back belongs to the stop string.
    ByStopString,
    ByGrammar,
}

impl Generator {
    /// Generates the best answers of a beam search, the best first.
    ///
    /// Returns `None` when it was cancelled.
    ///
    /// # Errors
    /// When the device or the tokenizer refuses, or fewer answers were found than are wanted.
    pub fn search(
        &self,
        request: &GenerationRequest,
        settings: BeamSettings,
        tokenizer: &ModelTokenizer,
        mut is_wanted: impl FnMut() -> bool,
    ) -> Result<Option<Vec<(String, Outcome)>>, ApiError> {
        let Some(prompt) = self.prefill(request, tokenizer.vocabulary, &mut is_wanted)? else {
            return Ok(None);
        };
        let mut share = prompt.share;
        let mut cache = prompt.cache;
        // The prompt is in memory once, however many beams there are.
        cache.share();
        let ends = request.ending.tokens(tokenizer);
        let mut running = vec![Beam {
            cache,
            logits: prompt.logits,
            sum: 0.0,
            given: String::new(),
            text: AnswerText::new(request.ending.texts(tokenizer)?, 0),
            penalties: Penalties::new(&request.sampling, &request.prompt),
            constraint: request.constraint.clone(),
        }];
        let mut beams = Beams::new(settings);
        let finished = |text: String, tokens: usize, reason: FinishReason, sum: f64| {
            let outcome = Outcome {
                reason,
                completion_tokens: tokens,
                logprob_sum: sum,
            };
            (text, outcome)
        };
        let mut tokens = 0;
        while tokens < request.max_tokens && !running.is_empty() {
            if !is_wanted() {
                return Ok(None);
            }
            let rows = rows(&mut running, &ends, request, tokens)?;
            let sums: Vec<f64> = running.iter().map(|beam| beam.sum).collect();
            tokens += 1;
            let mut next: Vec<(Beam, u32)> = Vec::new();
            for Extension {
                parent,
                token,
                sum,
                is_leading,
            } in beams.extensions(&sums, &rows)
            {
                if next.len() == settings.beams {
                    break;
                }
                let mut beam = running[parent].clone();
                beam.sum = sum;
                let text = if ends.contains(&token) {
                    // An end that is not among the best is no answer; others go on in its place.
                    match is_leading {
                        true => beam.finish(tokenizer)?,
                        false => continue,
                    }
                } else {
                    match beam.push(token, tokenizer)? {
                        Ended::No => {
                            next.push((beam, token));
                            continue;
                        }
                        Ended::ByStopString => beam.given,
                        Ended::ByGrammar => beam.finish(tokenizer)?,
                    }
                };
                beams.finish(sum, tokens, finished(text, tokens, FinishReason::Stop, sum));
            }
            let best = next
                .iter()
                .map(|(beam, _)| beam.sum)
                .fold(f64::MIN, f64::max);
            if beams.is_done(best, tokens, request.max_tokens) {
                running = Vec::new();
                break;
            }
            share.grow(self.kv_bytes_per_token * next.len() as u64);
            running = Vec::with_capacity(next.len());
            for (mut beam, token) in next {
                if tokens < request.max_tokens {
                    beam.logits = self.next_logits(&[token], &mut beam.cache)?;
                    beam.logits.truncate(tokenizer.vocabulary);
                }
                running.push(beam);
            }
        }
        for beam in running {
            let sum = beam.sum;
            let text = beam.finish(tokenizer)?;
            beams.finish(
                sum,
                tokens,
                finished(text, tokens, FinishReason::Length, sum),
            );
        }
        let best = beams.into_best(request.answers);
        match best.len() {
            found if found < request.answers => Err(ApiError::field(
                "n",
                format!(
                    "`n` is {}, and the beam search found {found} different answers; ask for fewer",
                    request.answers
                ),
            )),
            _ => Ok(Some(best)),
        }
    }
}

/// The logprobs of the next token for each beam.
fn rows(
    running: &mut [Beam],
    ends: &[u32],
    request: &GenerationRequest,
    tokens: usize,
) -> Result<Vec<Vec<f32>>, ApiError> {
    let mut rows = Vec::with_capacity(running.len());
    for beam in running {
        let mut row = std::mem::take(&mut beam.logits);
        if !row.iter().any(|logit| logit.is_finite()) {
            return Err(no_finite_logits());
        }
        beam.penalties.apply(&mut row);
        log_softmax(&mut row);
        // After the softmax: a beam that its grammar leads nowhere likely is not made likely by it.
        if let Some(constraint) = &mut beam.constraint {
            constraint.mask(&mut row, ends)?;
        }
        request.ending.ban(ends, tokens, &mut row);
        rows.push(row);
    }
    Ok(rows)
}
