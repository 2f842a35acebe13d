//! The state of a contrastive search between steps: its candidates are sequences of one token each, of which the next
//! step shows the hidden states.

use crate::api_error::ApiError;
use crate::decoding::{ContrastiveSettings, Directions, choose};
use crate::sampling::{Penalties, likeliest, log_softmax, no_finite_logits};

pub(super) struct Contrast {
    settings: ContrastiveSettings,
    penalties: Penalties,
    directions: Directions,
    /// Which sequence is the answer so far.
    chosen: usize,
    candidates: Option<Candidates>,
}

struct Candidates {
    /// Each with its probability.
    tokens: Vec<(u32, f32)>,
    /// The model's own distribution, where scores are wanted.
    raw: Option<Vec<f32>>,
}

/// The candidate that goes on.
pub(super) struct Chosen {
    pub sequence: usize,
    pub token: u32,
    pub raw: Option<Vec<f32>>,
}

impl Contrast {
    pub fn new(settings: ContrastiveSettings, penalties: Penalties) -> Self {
        Self {
            settings,
            penalties,
            directions: Directions::default(),
            chosen: 0,
            candidates: None,
        }
    }

    /// Finds the candidates after the answer so far, which are computed next.
    ///
    /// # Errors
    /// When no logit is a number.
    pub fn propose(
        &mut self,
        logits: &mut [f32],
        raw: Option<Vec<f32>>,
    ) -> Result<Vec<(usize, u32)>, ApiError> {
        self.penalties.apply(logits);
        log_softmax(logits);
        let tokens = likeliest(logits, self.settings.candidates);
        if tokens.is_empty() {
            return Err(no_finite_logits());
        }
        let ways = tokens.iter().map(|token| (self.chosen, *token)).collect();
        let with_probability = |token: u32| (token, logits[token as usize].exp());
        let tokens = tokens.into_iter().map(with_probability).collect();
        self.candidates = Some(Candidates { tokens, raw });
        Ok(ways)
    }

    /// Takes hidden states: those of the candidates, one of which is chosen, or of the prompt.
    ///
    /// # Errors
    /// When they are no numbers.
    pub fn see(&mut self, states: &[&[f32]]) -> Result<Option<Chosen>, ApiError> {
        let Some(candidates) = self.candidates.take() else {
            states
                .iter()
                .for_each(|state| self.directions.add(state.to_vec()));
            return Ok(None);
        };
        let all = candidates.tokens.iter().zip(states);
        let scores: Vec<(f32, f32)> = all
            .map(|((_, probability), state)| (*probability, self.directions.similarity(state)))
            .collect();
        let best = choose(&scores, self.settings.penalty_alpha).ok_or_else(no_finite_logits)?;
        let (token, _) = candidates.tokens[best];
        self.directions.add(states[best].to_vec());
        self.penalties.note(token);
        self.chosen = best;
        Ok(Some(Chosen {
            sequence: best,
            token,
            raw: candidates.raw,
        }))
    }
}
