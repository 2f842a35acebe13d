//! Owns what is done row by row and head by head on the CPU: norms, rotary turns, gates, attention over pages. Never multiplies by weights.

use super::compute::{AttentionShape, TurnedPart};
use super::rope::Angles;
use crate::kernels::Pool;
use crate::spec::Activation;
use crate::step::{PAGE_TOKENS, Page, Step};
use std::cell::Cell;

/// Numbers for which a thread is worth waking.
const TASK_NUMBERS: usize = 16 << 10;
const LANES: usize = 16;

thread_local! {
    /// Scores of one row of one head.
    static SCORES: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Sums in lanes, always in the same order.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}

/// Root-mean-square norm of each part as wide as the weights.
pub(super) fn norm(pool: &Pool, weights: &[f32], epsilon: f32, numbers: &mut [f32]) {
    let width = weights.len();
    let parts_per_task = (TASK_NUMBERS / width).max(1);
    pool.run_pieces(numbers, parts_per_task * width, |_, numbers| {
        for part in numbers.chunks_exact_mut(width) {
            let factor = 1.0 / (dot(part, part) / width as f32 + epsilon).sqrt();
            for (number, weight) in part.iter_mut().zip(weights) {
                *number = *number * factor * weight;
            }
        }
    });
}

/// Turns a part of every head of every row.
pub(super) fn turn(
    pool: &Pool,
    angles: &Angles,
    part: &TurnedPart,
    numbers: &mut [f32],
    width: usize,
) {
    let pairs = angles.pairs;
    let rows_per_task = (TASK_NUMBERS / width).max(1);
    pool.run_pieces(numbers, rows_per_task * width, |task, numbers| {
        for (row, numbers) in numbers.chunks_exact_mut(width).enumerate() {
            let first = (task * rows_per_task + row) * pairs;
            let cosines = &angles.cosines[first..first + pairs];
            let sines = &angles.sines[first..first + pairs];
            for head in numbers.chunks_exact_mut(part.head_width) {
                let turned = &mut head[part.first..part.first + 2 * pairs];
                let by = cosines.iter().zip(sines);
                if angles.interleaved {
                    for ([a, b], (cosine, sine)) in turned.as_chunks_mut().0.iter_mut().zip(by) {
                        (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
                    }
                } else {
                    let (a, b) = turned.split_at_mut(pairs);
                    for ((a, b), (cosine, sine)) in a.iter_mut().zip(b).zip(by) {
                        (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
                    }
                }
            }
        }
    });
}

/// `gate` becomes `activation(gate) · up`.
pub(super) fn gate(pool: &Pool, activation: Activation, gate: &mut [f32], up: &[f32]) {
    pool.run_pieces(gate, TASK_NUMBERS / 4, |task, gate| {
        let up = &up[task * (TASK_NUMBERS / 4)..];
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = activate(activation, *gate) * up;
        }
    });
}

fn activate(activation: Activation, number: f32) -> f32 {
    match activation {
        Activation::Silu => number / (1.0 + (-number).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (number + 0.044715 * number.powi(3));
            0.5 * number * (1.0 + inner.tanh())
        }
        Activation::Gelu => {
            let scaled = f64::from(number) * std::f64::consts::FRAC_1_SQRT_2;
            (f64::from(number) * 0.5 * (1.0 + candle_core::cpu::erf::erf_f64(scaled))) as f32
        }
    }
}

/// Puts the rows of a step into their pages: `page × head × token × width`.
pub(super) fn store(step: &Step, heads: usize, rows: &[f32], pages: &mut [f32]) {
    let width = rows.len() / step.tokens.len() / heads;
    let mut rows = rows.chunks_exact(heads * width);
    for span in &step.spans {
        for (token, row) in (span.past..span.past + span.count).zip(&mut rows) {
            let page = span.pages[token / PAGE_TOKENS] as usize;
            for (head, numbers) in row.chunks_exact(width).enumerate() {
                let place = (page * heads + head) * PAGE_TOKENS + token % PAGE_TOKENS;
                pages[place * width..][..width].copy_from_slice(numbers);
            }
        }
    }
}

/// Keys and values of one block.
pub(super) struct Paged<'a> {
    pub keys: &'a [f32],
    pub values: &'a [f32],
    pub shape: &'a AttentionShape,
}

/// Mixes values for each head of each row of a step.
pub(super) fn attend(
    pool: &Pool,
    step: &Step,
    paged: &Paged<'_>,
    queries: &[f32],
    output: &mut [f32],
) {
    let shape = paged.shape;
    pool.run_pieces(output, shape.value_width, |task, output| {
        let (mut row, head) = (task / shape.heads, task % shape.heads);
        let query = &queries[task * shape.key_width..][..shape.key_width];
        let mut spans = step.spans.iter();
        let span = spans.find(|span| {
            let within = row < span.count;
            if !within {
                row -= span.count;
            }
            within
        });
        if let Some(span) = span {
            paged.mix(&span.pages, span.past + row, head, query, output);
        }
    });
}

impl Paged<'_> {
    fn mix(&self, pages: &[Page], position: usize, head: usize, query: &[f32], output: &mut [f32]) {
        let shape = self.shape;
        let group = head / (shape.heads / shape.key_value_heads);
        let first = shape
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window));
        let row = |numbers, token: usize, width| {
            let page = pages[token / PAGE_TOKENS] as usize;
            let place = (page * shape.key_value_heads + group) * PAGE_TOKENS + token % PAGE_TOKENS;
            let numbers: &[f32] = numbers;
            &numbers[place * width..][..width]
        };
        let mut scores = SCORES.take();
        scores.clear();
        let mut most = f32::NEG_INFINITY;
        for token in first..=position {
            let mut score = dot(query, row(self.keys, token, shape.key_width)) * shape.factor;
            if let Some(cap) = shape.cap {
                score = cap * (score / cap).tanh();
            }
            most = most.max(score);
            scores.push(score);
        }
        let mut sum = 0.0;
        for score in &mut scores {
            *score = (*score - most).exp();
            sum += *score;
        }
        output.fill(0.0);
        for (token, score) in (first..=position).zip(&scores) {
            let value = row(self.values, token, shape.value_width);
            let share = score / sum;
            for (output, value) in output.iter_mut().zip(value) {
                *output += share * value;
            }
        }
        SCORES.set(scores);
    }
}
