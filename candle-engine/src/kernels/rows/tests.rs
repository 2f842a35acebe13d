//! Compares each function with its 64-bit version, and with itself on every level and in other batches.

use super::*;
use crate::kernels::tests::{pool, random};
use crate::kernels::{Level, Turns, turn};

fn near(ours: &[f32], wanted: &[f64], tolerance: f64) {
    for (place, (ours, wanted)) in ours.iter().zip(wanted).enumerate() {
        let error = (f64::from(*ours) - wanted).abs();
        assert!(
            error <= tolerance * wanted.abs().max(1.0),
            "place {place}: {ours} for {wanted}"
        );
    }
}

fn on_every_level(compute: impl Fn(&Pool) -> Vec<f32>) -> Vec<f32> {
    let plain = compute(&pool(1, Level::Plain));
    for level in Level::available() {
        for threads in [1, 3] {
            let ours = compute(&pool(threads, level));
            let same = ours
                .iter()
                .zip(&plain)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(
                same && ours.len() == plain.len(),
                "{level:?}, {threads} threads"
            );
        }
    }
    plain
}

fn error_function(x: f64) -> f64 {
    // The series of erf converges everywhere; 200 terms are enough up to 6.
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn gates_are_activated_and_multiplied() {
    let gates: Vec<f32> = random(1, 20_005).iter().map(|x| x * 6.0).collect();
    let ups = random(2, 20_005);
    for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
        let ours = on_every_level(|pool| {
            let mut gates = gates.clone();
            gate(pool, activation, &mut gates, &ups);
            gates
        });
        let wanted: Vec<f64> = gates
            .iter()
            .zip(&ups)
            .map(|(x, up)| {
                let x = f64::from(*x);
                let share = match activation {
                    Activation::Silu => 1.0 / (1.0 + (-x).exp()),
                    Activation::GeluTanh => {
                        let inner =
                            (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                        0.5 * (1.0 + inner.tanh())
                    }
                    Activation::Gelu => 0.5 * (1.0 + error_function(x / 2f64.sqrt())),
                };
                x * share * f64::from(*up)
            })
            .collect();
        near(&ours, &wanted, 1e-6);
    }
}

#[test]
fn activations_of_huge_numbers_are_finite_and_of_nan_are_nan() {
    for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
        let mut numbers = vec![1e30, -1e30, 200.0, -200.0, f32::NAN, 0.0];
        activate(&pool(1, Level::best()), activation, &mut numbers);
        assert_eq!(numbers[0], 1e30);
        assert!(
            numbers[1].abs() < 1e-3 && numbers[2] == 200.0 && numbers[3].abs() < 1e-30,
            "{numbers:?}"
        );
        assert!(numbers[4].is_nan() && numbers[5] == 0.0);
    }
}

#[test]
fn rows_are_normalized_by_rms_or_layer_norm() {
    for width in [5, 16, 20, 64, 100, 768] {
        let rows = random(1, 30 * width);
        let (weights, bias) = (random(2, width), random(3, width));
        for (bias, adds_one) in [(None, false), (None, true), (Some(&bias[..]), false)] {
            let weights = NormWeights {
                weights: &weights,
                bias,
                epsilon: 1e-5,
                adds_one,
            };
            let ours = on_every_level(|pool| {
                let mut output = vec![0.0; rows.len()];
                norm(pool, &rows, weights, &mut output);
                let mut own = rows.clone();
                norm_in_place(pool, &mut own, weights);
                assert_eq!(own, output);
                output
            });
            let mut wanted = Vec::new();
            for row in rows.chunks_exact(width) {
                let count = width as f64;
                let mean = if bias.is_some() {
                    row.iter().map(|x| f64::from(*x)).sum::<f64>() / count
                } else {
                    0.0
                };
                let square = row
                    .iter()
                    .map(|x| (f64::from(*x) - mean).powi(2))
                    .sum::<f64>()
                    / count;
                for (place, x) in row.iter().enumerate() {
                    let weight = f64::from(weights.weights[place]) + f64::from(u8::from(adds_one));
                    let normed = (f64::from(*x) - mean) / (square + 1e-5).sqrt() * weight;
                    wanted.push(normed + bias.map_or(0.0, |bias| f64::from(bias[place])));
                }
            }
            near(&ours, &wanted, 2e-6);
        }
    }
}

#[test]
fn add_and_norm_equals_add_followed_by_norm() {
    let (stream, addition, weights) = (random(1, 40 * 300), random(2, 40 * 300), random(3, 300));
    let weights = NormWeights {
        weights: &weights,
        bias: None,
        epsilon: 1e-6,
        adds_one: false,
    };
    on_every_level(|pool| {
        let mut both = stream.clone();
        let mut output = vec![0.0; both.len()];
        add_and_norm(pool, &mut both, &addition, 0.5, weights, &mut output);
        let mut first = stream.clone();
        add(pool, &mut first, &addition, 0.5);
        let mut then = vec![0.0; first.len()];
        norm(pool, &first, weights, &mut then);
        assert_eq!((&both, &output), (&first, &then));
        output
    });
}

#[test]
fn heads_are_rotated_in_halves_or_pairs_and_the_rest_is_unchanged() {
    let (rows, heads) = (50, 3);
    for (width, half) in [(64, 32), (80, 32), (24, 12), (10, 3)] {
        let numbers = random(1, rows * heads * width);
        let angles = random(2, rows * half);
        let cosines: Vec<f32> = angles.iter().map(|angle| (angle * 3.0).cos()).collect();
        let sines: Vec<f32> = angles.iter().map(|angle| (angle * 3.0).sin()).collect();
        for interleaved in [false, true] {
            let turns = Turns {
                cosines: &cosines,
                sines: &sines,
                half,
                interleaved,
            };
            let ours = on_every_level(|pool| {
                let mut numbers = numbers.clone();
                turn(pool, &mut numbers, heads, width, turns);
                numbers
            });
            let mut wanted: Vec<f64> = numbers.iter().map(|x| f64::from(*x)).collect();
            for (place, head) in wanted.chunks_exact_mut(width).enumerate() {
                for pair in 0..half {
                    let (a, b) = if interleaved {
                        (2 * pair, 2 * pair + 1)
                    } else {
                        (pair, pair + half)
                    };
                    let at = place / heads * half + pair;
                    let (cosine, sine) = (f64::from(cosines[at]), f64::from(sines[at]));
                    (head[a], head[b]) = (
                        head[a] * cosine - head[b] * sine,
                        head[b] * cosine + head[a] * sine,
                    );
                }
            }
            near(&ours, &wanted, 1e-6);
        }
    }
}
