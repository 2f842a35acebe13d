//! Applies penalties for earlier tokens, and a request's biases, to the logits of the next token.

use super::SamplingSettings;
use std::collections::{BTreeMap, BTreeSet};

/// The tokens of a completion so far, as counted by penalties.
#[derive(Debug, Clone)]
pub(crate) struct Penalties {
    presence: f32,
    frequency: f32,
    repetition: f32,
    biases: BTreeMap<u32, f32>,
    /// Number of times each token was generated.
    generated: BTreeMap<u32, u32>,
    prompt: BTreeSet<u32>,
}

impl Penalties {
    pub fn new(settings: &SamplingSettings, prompt: &[u32]) -> Self {
        // Only the repetition penalty includes the prompt.
        let prompt = if settings.repetition_penalty == 1.0 {
            BTreeSet::new()
        } else {
            prompt.iter().copied().collect()
        };
        Self {
            presence: settings.presence_penalty,
            frequency: settings.frequency_penalty,
            repetition: settings.repetition_penalty,
            biases: settings.logit_bias.clone(),
            generated: BTreeMap::new(),
            prompt,
        }
    }

    /// Counts a generated token.
    pub fn note(&mut self, token: u32) {
        *self.generated.entry(token).or_insert(0) += 1;
    }

    /// Adjusts the logits, which are indexed by token id.
    pub fn apply(&self, logits: &mut [f32]) {
        if self.repetition != 1.0 {
            let new = |token: &&u32| !self.prompt.contains(token);
            let tokens = self.prompt.iter();
            for token in tokens.chain(self.generated.keys().filter(new)) {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit *= if *logit > 0.0 {
                        self.repetition.recip()
                    } else {
                        self.repetition
                    };
                }
            }
        }
        for (token, count) in &self.generated {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit -= self.presence + self.frequency * *count as f32;
            }
        }
        for (token, bias) in &self.biases {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
    }
}
