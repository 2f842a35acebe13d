//! The angles of rotary embeddings.
//!
//! Frequencies match `transformers` (`modeling_rope_utils.py`): they are computed for the rotated width in F32 and multiplied with
//! the position in F32. Models were trained with the rounding of this reference.

use crate::spec::{Rope, RopeScaling};
use crate::step::Step;
use std::f64::consts::PI;

/// The rotation frequencies of each pair of numbers, for one rope of a spec.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frequencies {
    frequencies: Vec<f32>,
    /// Factor on cosines and sines.
    amplitude: f32,
    pub interleaved: bool,
}

impl Frequencies {
    /// Computes the frequencies for contexts of at most `context_tokens`.
    ///
    /// Phi-3's scaling has two lists of divisors. `transformers` uses the short one until a sequence exceeds the original context,
    /// then discards the cache and continues with the long one. A cache shared by many sequences cannot be discarded for one
    /// sequence, so the list is chosen once, by the engine's context. With a context of at most `first_context_tokens`, every
    /// result equals the reference's; with a longer one, all sequences use the long list, as the reference does for prompts longer
    /// than the original context.
    pub fn new(rope: &Rope, context_tokens: usize) -> Self {
        let mut frequencies = plain(rope);
        let mut amplitude = 1.0;
        match &rope.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => {
                for frequency in &mut frequencies {
                    *frequency /= factor;
                }
            }
            RopeScaling::Llama3 {
                factor,
                low_frequency_factor,
                high_frequency_factor,
                first_context_tokens,
            } => {
                let blend = Llama3Blend {
                    factor: *factor,
                    low: *low_frequency_factor,
                    high: *high_frequency_factor,
                    first_context: *first_context_tokens as f32,
                };
                for frequency in &mut frequencies {
                    *frequency = blend.scaled(*frequency);
                }
            }
            RopeScaling::Yarn {
                factor,
                fast_turns,
                slow_turns,
                first_context_tokens,
                amplitude: yarn_amplitude,
                truncates,
            } => {
                amplitude = *yarn_amplitude;
                let dimension = |turns: f32| {
                    let context = *first_context_tokens as f64;
                    rope.turned_width as f64 * (context / (f64::from(turns) * 2.0 * PI)).ln()
                        / (2.0 * f64::from(rope.theta).ln())
                };
                let (low, high) = (dimension(*fast_turns), dimension(*slow_turns));
                let (low, high) = if *truncates {
                    (low.floor(), high.ceil())
                } else {
                    (low, high)
                };
                let low = low.max(0.0);
                let high = high.min(rope.turned_width as f64 - 1.0);
                let high = if low == high { high + 0.001 } else { high };
                for (index, frequency) in frequencies.iter_mut().enumerate() {
                    let ramp = ((index as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
                    let keeps = 1.0 - ramp;
                    *frequency = (*frequency / factor) * (1.0 - keeps) + *frequency * keeps;
                }
            }
            RopeScaling::Long {
                short,
                long,
                first_context_tokens,
                amplitude: long_amplitude,
            } => {
                amplitude = *long_amplitude;
                let divisors = if context_tokens > *first_context_tokens {
                    long
                } else {
                    short
                };
                divide(&mut frequencies, divisors);
            }
            RopeScaling::Divisors(divisors) => divide(&mut frequencies, divisors),
        }
        Self {
            frequencies,
            amplitude,
            interleaved: rope.interleaved,
        }
    }
}

fn plain(rope: &Rope) -> Vec<f32> {
    (0..rope.turned_width)
        .step_by(2)
        .map(|index| {
            let exponent = index as f32 / rope.turned_width as f32;
            1.0 / f64::from(rope.theta).powf(f64::from(exponent)) as f32
        })
        .collect()
}

fn divide(frequencies: &mut [f32], divisors: &[f32]) {
    for (frequency, divisor) in frequencies.iter_mut().zip(divisors) {
        *frequency = 1.0 / (divisor * (1.0 / *frequency));
    }
}

/// Llama 3's scaling of long wavelengths, for contexts longer than the original training's.
struct Llama3Blend {
    factor: f32,
    low: f32,
    high: f32,
    first_context: f32,
}

impl Llama3Blend {
    fn scaled(&self, frequency: f32) -> f32 {
        let wave_length = std::f32::consts::TAU / frequency;
        if wave_length < self.first_context / self.high {
            frequency
        } else if wave_length > self.first_context / self.low {
            frequency / self.factor
        } else {
            let smooth = (self.first_context / wave_length - self.low) / (self.high - self.low);
            (1.0 - smooth) * frequency / self.factor + smooth * frequency
        }
    }
}

/// Cosines and sines for the position of every row of a step, row by row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Angles {
    pub cosines: Vec<f32>,
    pub sines: Vec<f32>,
    /// Pairs per row: half the rotated width.
    pub pairs: usize,
    pub interleaved: bool,
}

impl Angles {
    /// Computes the angles of a step, reusing the memory of the previous one.
    pub fn fill(&mut self, frequencies: &Frequencies, step: &Step) {
        self.pairs = frequencies.frequencies.len();
        self.interleaved = frequencies.interleaved;
        self.cosines.clear();
        self.sines.clear();
        for span in &step.spans {
            for position in span.past..span.past + span.count {
                for frequency in &frequencies.frequencies {
                    let (sine, cosine) = (position as f32 * frequency).sin_cos();
                    self.cosines.push(cosine * frequencies.amplitude);
                    self.sines.push(sine * frequencies.amplitude);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: RopeScaling) -> Rope {
        Rope {
            theta: 10_000.0,
            turned_width: 8,
            interleaved: false,
            scaling,
        }
    }

    #[test]
    fn the_first_pair_rotates_by_one_radian_per_position_and_later_ones_slower() {
        let frequencies = Frequencies::new(&rope(RopeScaling::None), 64).frequencies;
        assert_eq!(frequencies, [1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn a_context_longer_than_the_original_uses_the_long_divisors() {
        let scaling = RopeScaling::Long {
            short: vec![1.0; 4],
            long: vec![2.0; 4],
            first_context_tokens: 32,
            amplitude: 1.5,
        };
        let short = Frequencies::new(&rope(scaling.clone()), 32);
        let long = Frequencies::new(&rope(scaling), 33);
        assert_eq!(short.frequencies[0], 1.0);
        assert_eq!(long.frequencies[0], 0.5);
        assert_eq!((short.amplitude, long.amplitude), (1.5, 1.5));
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
        let yarn = Frequencies::new(
            &rope(RopeScaling::Yarn {
                factor: 4.0,
                fast_turns: 32.0,
                slow_turns: 1.0,
                first_context_tokens: 4096,
                amplitude: 1.0,
                truncates: true,
            }),
            64,
        );
        assert_eq!(yarn.frequencies[0], 1.0);
        assert!((yarn.frequencies[3] - 0.001 / 4.0).abs() < 1e-9);
    }
}
