//! One completion that grows token by token, by sampling or contrastive search.

use super::client::{Client, LogitRows, RowOutcome};
use super::contrast::{ChosenCandidate, Contrast};
use crate::api_error::ApiError;
use crate::batch::request::{FinishReason, GenerationRequest, Outcome, StopReason};
use crate::decoding::Strategy;
use crate::grammar::Constraint;
use crate::pieces::{Piece, ResponseText, prompt_tokens};
use crate::sampling::{Penalties, Sampler, TokenLogprob, logprob_of};
use crate::stop::StopMatcher;
use crate::tokenizer::ModelTokenizer;

/// The strategy that chooses the tokens.
enum Chooser {
    Sampler(Box<Sampler>),
    Contrast(Box<Contrast>),
}

pub(crate) struct CompletionWriter {
    pub client: Client,
    request: GenerationRequest,
    chooser: Chooser,
    text: ResponseText,
    constraint: Option<Constraint>,
    /// Tokens that end the completion.
    ends: Vec<u32>,
    outcome: Outcome,
    /// Prompt rows still expected before the first decision.
    prompt_rows: usize,
    prompt_logprobs: Vec<Option<TokenLogprob>>,
    has_begun: bool,
}

impl CompletionWriter {
    pub fn new(
        mut request: GenerationRequest,
        stops: StopMatcher,
        client: Client,
        tokenizer: &ModelTokenizer,
    ) -> Self {
        let echo = request.echo.as_deref();
        let letters_before = echo.map_or(0, |echo| echo.chars().count());
        let sampling = &request.sampling;
        let prompt: &[u32] = if request.continues_prompt {
            &request.prompt
        } else {
            &[]
        };
        let chooser = match request.strategy {
            Strategy::Contrastive(settings) => {
                let penalties = Penalties::new(sampling, prompt);
                Chooser::Contrast(Box::new(Contrast::new(settings, penalties)))
            }
            _ => Chooser::Sampler(Box::new(Sampler::new(sampling.clone(), prompt))),
        };
        let shows_prompt = request.shown_of_prompt().is_some();
        Self {
            client,
            chooser,
            text: ResponseText::new(stops, letters_before),
            constraint: request
                .constraint
                .take()
                .map(|constraint| constraint.apart()),
            ends: request.ending.tokens(tokenizer),
            outcome: Outcome {
                reason: FinishReason::Length,
                stop: None,
                completion_tokens: 0,
                logprob_sum: 0.0,
            },
            prompt_rows: if shows_prompt {
                request.prompt.len() - 1
            } else {
                0
            },
            // The first token has no context and therefore no probability.
            prompt_logprobs: vec![None; usize::from(shows_prompt)],
            has_begun: false,
            request,
        }
    }

    /// Returns true if every row of the prompt is needed.
    pub fn sees_states(&self) -> bool {
        matches!(self.chooser, Chooser::Contrast(_))
    }

    pub fn end_at_once(&mut self, tokenizer: &ModelTokenizer) -> Result<bool, ApiError> {
        let ends = self.request.max_tokens == 0 && self.request.scores.shown.is_none();
        if ends {
            self.begin(tokenizer)?;
            self.end(tokenizer)?;
        }
        Ok(ends)
    }

    pub fn see(
        &mut self,
        states: &[&[f32]],
        decides: bool,
        tokenizer: &ModelTokenizer,
    ) -> Result<LogitRows, ApiError> {
        let Chooser::Contrast(contrast) = &mut self.chooser else {
            return Ok(LogitRows::All);
        };
        let Some(ChosenCandidate {
            sequence,
            token,
            raw,
        }) = contrast.see(states)?
        else {
            return Ok(match (self.prompt_rows > 0, decides) {
                (true, _) => LogitRows::All,
                (false, true) => LogitRows::Only(states.len() - 1),
                (false, false) => LogitRows::None,
            });
        };
        Ok(if self.take(token, raw, tokenizer)? {
            LogitRows::Only(sequence)
        } else {
            LogitRows::Ended
        })
    }

    pub fn row(
        &mut self,
        logits: &mut [f32],
        tokenizer: &ModelTokenizer,
    ) -> Result<RowOutcome, ApiError> {
        if self.prompt_rows > 0 {
            let next = self.request.prompt[self.request.prompt.len() - self.prompt_rows];
            let top = self.request.scores.shown.unwrap_or_default();
            self.prompt_logprobs
                .push(Some(logprob_of(logits, next, top)));
            self.prompt_rows -= 1;
            return Ok(RowOutcome::Wait);
        }
        if !self.begin(tokenizer)? {
            return Ok(RowOutcome::End);
        }
        if self.outcome.completion_tokens >= self.request.max_tokens {
            return self.end(tokenizer);
        }
        let scores = &self.request.scores;
        // The model's own distribution, before any adjustment.
        let raw = (scores.summed || scores.shown.is_some()).then(|| logits.to_vec());
        if let Some(constraint) = &mut self.constraint
            && !constraint.mask(logits, &self.ends)?
        {
            self.outcome.reason = FinishReason::Stop;
            return self.end(tokenizer);
        }
        let ending = &self.request.ending;
        ending.ban(&self.ends, self.outcome.completion_tokens, logits);
        match &mut self.chooser {
            Chooser::Sampler(sampler) => {
                let token = sampler.sample(logits)?;
                Ok(if self.take(token, raw, tokenizer)? {
                    RowOutcome::GoOn(vec![(0, token)])
                } else {
                    RowOutcome::End
                })
            }
            Chooser::Contrast(contrast) => Ok(RowOutcome::GoOn(contrast.propose(logits, raw)?)),
        }
    }

    /// Sends the prompt if the completion begins with it. Returns false if the client has disconnected.
    fn begin(&mut self, tokenizer: &ModelTokenizer) -> Result<bool, ApiError> {
        let Some(echo) = self.request.echo.as_deref().filter(|_| !self.has_begun) else {
            return Ok(true);
        };
        self.has_begun = true;
        let logprobs = std::mem::take(&mut self.prompt_logprobs);
        let piece = Piece {
            text: echo.to_owned(),
            tokens: prompt_tokens(tokenizer, &self.request.prompt, logprobs)?,
            computed: 0,
        };
        Ok(self.client.give(0, piece))
    }

    /// Adds a token to the completion. Returns false if the completion ended with it.
    fn take(
        &mut self,
        token: u32,
        raw: Option<Vec<f32>>,
        tokenizer: &ModelTokenizer,
    ) -> Result<bool, ApiError> {
        let shown = self.request.scores.shown;
        self.outcome.completion_tokens += 1;
        let logprob = raw.map(|raw| logprob_of(&raw, token, shown.unwrap_or_default()));
        self.outcome.logprob_sum += logprob
            .as_ref()
            .map_or(0.0, |scored| f64::from(scored.logprob));
        if self.ends.contains(&token) {
            self.outcome.reason = FinishReason::Stop;
            self.outcome.stop = self.request.ending.reason(token);
            self.end(tokenizer)?;
            return Ok(false);
        }
        let logprob = logprob.filter(|_| shown.is_some());
        let step = self.text.push(tokenizer, token, logprob)?;
        let piece = Piece {
            computed: self.outcome.completion_tokens,
            ..step.piece
        };
        if !self.client.give(0, piece) {
            return Ok(false);
        }
        if let Some(stop) = step.stopped {
            // The text withheld by the stop matcher belongs to the stop string.
            self.outcome.reason = FinishReason::Stop;
            self.outcome.stop = Some(StopReason::Text(stop));
            self.client.finish(0, self.outcome.clone());
            return Ok(false);
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token)?;
            if constraint.is_complete() {
                self.outcome.reason = FinishReason::Stop;
                self.end(tokenizer)?;
                return Ok(false);
            }
        }
        if self.outcome.completion_tokens >= self.request.max_tokens {
            self.end(tokenizer)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Sends the rest of the text.
    fn end(&mut self, tokenizer: &ModelTokenizer) -> Result<RowOutcome, ApiError> {
        let text = std::mem::replace(&mut self.text, ResponseText::new(StopMatcher::default(), 0));
        let step = text.finish(tokenizer)?;
        if let Some(stop) = step.stopped {
            self.outcome.reason = FinishReason::Stop;
            self.outcome.stop = Some(StopReason::Text(stop));
        }
        self.client.give(0, step.piece);
        self.client.finish(0, self.outcome.clone());
        Ok(RowOutcome::End)
    }
}
