//! Samples the next token from logits, with penalties, filters and a seed.

mod filters;
mod logprobs;
mod penalties;

pub(crate) use logprobs::{TokenLogprob, likeliest, log_softmax, logprob_of};
pub(crate) use penalties::Penalties;

use crate::api_error::ApiError;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// The sampling settings of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SamplingSettings {
    /// 0 always takes the likeliest token.
    pub temperature: f32,
    /// Keeps the likeliest tokens that together have this probability, 0 to 1.
    pub top_p: f32,
    /// Keeps this number of likeliest tokens; `None` keeps all.
    pub top_k: Option<usize>,
    /// Keeps tokens with at least this fraction of the likeliest token's probability, 0 to 1.
    pub min_p: f32,
    /// Keeps the most typical tokens that together have this probability, above 0 to 1.
    pub typical_p: f32,
    /// The same seed gives the same tokens; `None` picks a random seed.
    pub seed: Option<u64>,
    /// Subtracted once from the logits of generated tokens.
    pub presence_penalty: f32,
    /// Subtracted from a logit for each time its token was generated.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens in the prompt or completion; 1 disables it.
    pub repetition_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: BTreeMap<u32, f32>,
}

impl Default for SamplingSettings {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            min_p: 0.0,
            typical_p: 1.0,
            seed: None,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: BTreeMap::new(),
        }
    }
}

/// Chooses the tokens of one completion.
pub(crate) struct Sampler {
    settings: SamplingSettings,
    random: StdRng,
    penalties: Penalties,
}

impl Sampler {
    pub fn new(settings: SamplingSettings, prompt: &[u32]) -> Self {
        let random = settings
            .seed
            .map_or_else(|| StdRng::from_rng(&mut rand::rng()), StdRng::seed_from_u64);
        Self {
            penalties: Penalties::new(&settings, prompt),
            settings,
            random,
        }
    }

    /// Chooses a token; logits are indexed by token id. Forbidden tokens have a logit of NaN or negative infinity.
    ///
    /// # Errors
    /// If no logit is finite: the weights are broken.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32, ApiError> {
        self.penalties.apply(logits);
        let candidates = filters::candidates(logits, &self.settings);
        let token = draw(&candidates, &mut self.random).ok_or_else(no_finite_logits)?;
        self.penalties.note(token);
        Ok(token)
    }
}

pub(crate) fn no_finite_logits() -> ApiError {
    ApiError::internal("the model computed no finite logits; its weights are broken")
}

/// Samples a token in proportion to its weight.
fn draw(candidates: &[(u32, f32)], random: &mut StdRng) -> Option<u32> {
    let (first, _) = candidates.first()?;
    let sum: f32 = candidates.iter().map(|(_, weight)| weight).sum();
    let mut left = random.random::<f32>() * sum;
    for (token, weight) in candidates {
        left -= weight;
        if left < 0.0 {
            return Some(*token);
        }
    }
    // Rounding can leave a tiny remainder.
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(settings: SamplingSettings, count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(settings, &[0]);
        (0..count)
            .map(|_| {
                sampler
                    .sample(&mut [1.0, 3.0, 2.0, -1.0])
                    .expect("finite logits")
            })
            .collect()
    }

    #[test]
    fn temperature_zero_picks_the_most_likely_token_and_the_lower_id_on_a_tie() {
        assert_eq!(
            tokens(
                SamplingSettings {
                    temperature: 0.0,
                    ..Default::default()
                },
                3
            ),
            [1, 1, 1]
        );
        let mut sampler = Sampler::new(
            SamplingSettings {
                temperature: 0.0,
                ..Default::default()
            },
            &[],
        );
        assert_eq!(sampler.sample(&mut [5.0, 5.0]), Ok(0));
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens_and_another_seed_others() {
        let with = |seed| {
            tokens(
                SamplingSettings {
                    seed: Some(seed),
                    temperature: 2.0,
                    ..Default::default()
                },
                50,
            )
        };
        assert_eq!(with(1), with(1));
        assert_ne!(with(1), with(2));
    }

    #[test]
    fn top_k_and_a_small_top_p_exclude_unlikely_tokens() {
        let settings = SamplingSettings {
            temperature: 2.0,
            seed: Some(1),
            ..Default::default()
        };
        assert!(
            tokens(
                SamplingSettings {
                    top_k: Some(2),
                    ..settings.clone()
                },
                200
            )
            .iter()
            .all(|token| [1, 2].contains(token))
        );
        assert!(
            tokens(
                SamplingSettings {
                    top_p: 0.0,
                    ..settings
                },
                200
            )
            .iter()
            .all(|token| *token == 1)
        );
    }

    #[test]
    fn tokens_are_sampled_in_proportion_to_their_probability() {
        let drawn = tokens(
            SamplingSettings {
                seed: Some(5),
                ..Default::default()
            },
            20_000,
        );
        let share = drawn.iter().filter(|token| **token == 1).count() as f64 / drawn.len() as f64;
        // e³ / (e¹ + e³ + e² + e⁻¹)
        assert!((share - 0.656).abs() < 0.02, "{share}");
    }

    #[test]
    fn penalties_make_a_repeated_token_lose_to_the_next() {
        let drawn = tokens(
            SamplingSettings {
                temperature: 0.0,
                frequency_penalty: 0.75,
                ..Default::default()
            },
            4,
        );
        assert_eq!(drawn, [1, 1, 2, 1]);
        let drawn = tokens(
            SamplingSettings {
                temperature: 0.0,
                presence_penalty: 1.5,
                ..Default::default()
            },
            3,
        );
        assert_eq!(drawn, [1, 2, 1]);
    }

    #[test]
    fn a_repetition_penalty_counts_the_prompt_too() {
        let mut sampler = Sampler::new(
            SamplingSettings {
                temperature: 0.0,
                repetition_penalty: 2.0,
                ..Default::default()
            },
            &[1],
        );
        assert_eq!(sampler.sample(&mut [2.0, 3.0]), Ok(0));
    }

    #[test]
    fn a_logit_bias_forces_or_bans_a_token() {
        let biased = |token, bias| SamplingSettings {
            temperature: 0.0,
            logit_bias: BTreeMap::from([(token, bias)]),
            ..Default::default()
        };
        assert_eq!(tokens(biased(3, 100.0), 2), [3, 3]);
        assert_eq!(tokens(biased(1, -100.0), 2), [2, 2]);
    }

    #[test]
    fn non_finite_logits_are_an_error_and_yield_no_token() {
        let mut sampler = Sampler::new(SamplingSettings::default(), &[]);
        assert!(sampler.sample(&mut [f32::NAN, f32::NEG_INFINITY]).is_err());
    }
}
