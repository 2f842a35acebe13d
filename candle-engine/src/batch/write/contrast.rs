//! The state of a contrastive search between steps: its candidates are sequences of one token each, and the next step computes
//! their hidden states.

use crate::api_error::ApiError;
use crate::decoding::{ContrastiveSettings, Directions, choose};
use crate::sampling::{Penalties, likeliest, log_softmax, no_finite_logits};

pub(super) struct Contrast {
    settings: ContrastiveSettings,
    penalties: Penalties,
    directions: Directions,
    /// Index of the sequence that is the completion so far.
    chosen: usize,
    candidates: Option<Candidates>,
}

struct Candidates {
    /// The candidate tokens, each with its probability.
    tokens: Vec<(u32, f32)>,
    /// The model's own distribution, if scores are requested.
    raw: Option<Vec<f32>>,
}

/// The candidate that was chosen.
pub(super) struct ChosenCandidate {
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

    /// Selects the candidates for the next token, to be computed by the next step.
    ///
    /// # Errors
    /// If no logit is a number.
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

    /// Takes the hidden states of the candidates and chooses a candidate, or takes the hidden states of the prompt.
    ///
    /// # Errors
    /// If the states are not finite.
    pub fn see(&mut self, states: &[&[f32]]) -> Result<Option<ChosenCandidate>, ApiError> {
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
        Ok(Some(ChosenCandidate {
            sequence: best,
            token,
            raw: candidates.raw,
        }))
    }
}
