//! Owns the choice of the next token from logits: penalties, temperature, top-k, top-p, a seed. Never runs a model.

use crate::api_error::ApiError;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

/// How a request wants its tokens chosen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SamplingSettings {
    /// 0 takes the likeliest token always.
    pub temperature: f32,
    /// The likeliest tokens that together have this probability, 0 to 1.
    pub top_p: f32,
    /// So many of the likeliest tokens; `None` is all.
    pub top_k: Option<usize>,
    /// The same seed gives the same tokens; `None` is a random one.
    pub seed: Option<u64>,
    /// Subtracted once from the logits of tokens that were generated.
    pub presence_penalty: f32,
    /// Subtracted as often as a token was generated.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or answer; 1 is none.
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
            seed: None,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: BTreeMap::new(),
        }
    }
}

/// Chooses the tokens of one answer.
pub(crate) struct Sampler {
    settings: SamplingSettings,
    random: StdRng,
    /// How often each token was generated.
    generated: BTreeMap<u32, u32>,
    prompt: BTreeSet<u32>,
}

impl Sampler {
    pub fn new(settings: SamplingSettings, prompt: &[u32]) -> Self {
        let random = settings
            .seed
            .map_or_else(|| StdRng::from_rng(&mut rand::rng()), StdRng::seed_from_u64);
        // Only the repetition penalty looks at the prompt.
        let prompt = if settings.repetition_penalty == 1.0 {
            BTreeSet::new()
        } else {
            prompt.iter().copied().collect()
        };
        Self {
            settings,
            random,
            generated: BTreeMap::new(),
            prompt,
        }
    }

    /// Chooses a token; the index of a logit is its token's id.
    ///
    /// # Errors
    /// When no logit is a finite number: the weights are broken.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32, ApiError> {
        self.adjust(logits);
        let mut candidates: Vec<u32> = (0..logits.len() as u32)
            .filter(|token| logits[*token as usize].is_finite())
            .collect();
        let by_logit = |a: &u32, b: &u32| {
            logits[*b as usize]
                .total_cmp(&logits[*a as usize])
                .then(a.cmp(b))
        };
        let best = *candidates
            .iter()
            .min_by(|a, b| by_logit(a, b))
            .ok_or_else(|| {
                ApiError::internal("the model computed no finite logits; its weights are broken")
            })?;
        let token = if self.settings.temperature == 0.0 || self.settings.top_k == Some(1) {
            best
        } else {
            if self.settings.top_k.is_some() || self.settings.top_p < 1.0 {
                candidates.sort_unstable_by(by_logit);
                candidates.truncate(self.settings.top_k.unwrap_or(usize::MAX));
            }
            let scale = |token: &u32| {
                ((logits[*token as usize] - logits[best as usize]) / self.settings.temperature)
                    .exp()
            };
            let weights: Vec<f32> = candidates.iter().map(scale).collect();
            candidates[draw(&weights, self.settings.top_p, &mut self.random)]
        };
        *self.generated.entry(token).or_insert(0) += 1;
        Ok(token)
    }

    fn adjust(&self, logits: &mut [f32]) {
        let settings = &self.settings;
        if settings.repetition_penalty != 1.0 {
            for token in self.prompt.iter().chain(
                self.generated
                    .keys()
                    .filter(|token| !self.prompt.contains(token)),
            ) {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit *= if *logit > 0.0 {
                        settings.repetition_penalty.recip()
                    } else {
                        settings.repetition_penalty
                    };
                }
            }
        }
        for (token, count) in &self.generated {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit -= settings.presence_penalty + settings.frequency_penalty * *count as f32;
            }
        }
        for (token, bias) in &settings.logit_bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
    }
}

/// Draws an index in proportion to `weights`; with `top_p` below 1 they are sorted and only the first that reach it count.
fn draw(weights: &[f32], top_p: f32, random: &mut StdRng) -> usize {
    let wanted = weights.iter().sum::<f32>() * top_p;
    let mut nucleus = 0.0;
    let mut count = 0;
    while count < weights.len() && (count == 0 || nucleus < wanted) {
        nucleus += weights[count];
        count += 1;
    }
    let mut left = random.random::<f32>() * nucleus;
    for (index, weight) in weights[..count].iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return index;
        }
    }
    // Rounding can leave a hair over; it belongs to the likeliest.
    0
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
    fn temperature_zero_takes_the_likeliest_and_the_lower_id_of_equals() {
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
    fn top_k_and_a_small_top_p_leave_out_the_unlikely() {
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
    fn tokens_are_drawn_as_often_as_their_probability_says() {
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
    fn a_frequency_penalty_makes_the_likeliest_give_way() {
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
    fn a_bias_decides_and_a_ban_bans() {
        let biased = |token, bias| SamplingSettings {
            temperature: 0.0,
            logit_bias: BTreeMap::from([(token, bias)]),
            ..Default::default()
        };
        assert_eq!(tokens(biased(3, 100.0), 2), [3, 3]);
        assert_eq!(tokens(biased(1, -100.0), 2), [2, 2]);
    }

    #[test]
    fn logits_that_are_no_numbers_are_an_error_and_not_a_token() {
        let mut sampler = Sampler::new(SamplingSettings::default(), &[]);
        assert!(sampler.sample(&mut [f32::NAN, f32::NEG_INFINITY]).is_err());
    }
}
