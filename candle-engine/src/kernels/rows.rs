//! Operations on each row separately: norms, activations, sums.
//!
//! Rows have any width; lanes beyond the end of a row count as zero.

#![expect(unsafe_code, reason = "loads and stores of a tier go through pointers")]

use super::math;
use super::pool::{Pieces, Pool};
use super::tier::{Job, LANES, Tier};
use crate::spec::Activation;

/// Approximate count of numbers per task; smaller tasks cost more in scheduling than in computing.
const TASK_NUMBERS: usize = 1 << 13;

/// Loads up to sixteen lanes from `from[at..]`; missing lanes are zero.
#[inline(always)]
pub(super) fn load<T: Tier>(tier: T, from: &[f32], at: usize) -> T::Floats {
    let rest = &from[at..];
    // SAFETY: `rest` holds the loaded numbers.
    unsafe {
        if rest.len() >= LANES {
            tier.load(rest.as_ptr())
        } else {
            tier.load_part(rest.as_ptr(), rest.len())
        }
    }
}

#[inline(always)]
pub(super) fn store<T: Tier>(tier: T, to: &mut [f32], at: usize, value: T::Floats) {
    let rest = &mut to[at..];
    // SAFETY: `rest` has room for the stored numbers.
    unsafe {
        if rest.len() >= LANES {
            tier.store(rest.as_mut_ptr(), value);
        } else {
            tier.store_part(rest.as_mut_ptr(), value, rest.len());
        }
    }
}

/// An element-wise function.
trait ElementWise: Copy + Sync {
    /// `own` is the current value, `other` the value at the same position of another slice.
    fn at<T: Tier>(self, tier: T, own: T::Floats, other: T::Floats) -> T::Floats;
}

struct ElementWiseJob<'a, E> {
    own: &'a mut [f32],
    other: &'a [f32],
    each: E,
}

impl<E: ElementWise> Job for ElementWiseJob<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<T: Tier>(self, tier: T) {
        let mut at = 0;
        while at < self.own.len() {
            let other = if self.other.is_empty() {
                tier.splat(0.0)
            } else {
                load(tier, self.other, at)
            };
            let value = self.each.at(tier, load(tier, self.own, at), other);
            store(tier, self.own, at, value);
            at += LANES;
        }
    }
}

fn each<E: ElementWise>(pool: &Pool, own: &mut [f32], other: &[f32], each: E) {
    assert!(
        other.is_empty() || other.len() == own.len(),
        "both have as many numbers"
    );
    let level = pool.level();
    pool.run_pieces(own, TASK_NUMBERS, |piece, own| {
        let other = other.get(piece * TASK_NUMBERS..).unwrap_or_default();
        let other = &other[..own.len().min(other.len())];
        level.run(ElementWiseJob { own, other, each });
    });
}

#[derive(Clone, Copy)]
struct Gate(Activation);

#[inline(always)]
fn activated<T: Tier>(tier: T, activation: Activation, value: T::Floats) -> T::Floats {
    match activation {
        Activation::Silu => math::silu(tier, value),
        Activation::GeluTanh => math::gelu_tanh(tier, value),
        Activation::Gelu => math::gelu(tier, value),
    }
}

impl ElementWise for Gate {
    #[inline(always)]
    fn at<T: Tier>(self, tier: T, own: T::Floats, other: T::Floats) -> T::Floats {
        tier.multiply(activated(tier, self.0, own), other)
    }
}

/// Replaces each gate by `activation(gate) · up`.
pub(crate) fn gate(pool: &Pool, activation: Activation, gates: &mut [f32], ups: &[f32]) {
    assert_eq!(gates.len(), ups.len(), "each gate has its number");
    each(pool, gates, ups, Gate(activation));
}

#[derive(Clone, Copy)]
struct Activate(Activation);

impl ElementWise for Activate {
    #[inline(always)]
    fn at<T: Tier>(self, tier: T, own: T::Floats, _other: T::Floats) -> T::Floats {
        activated(tier, self.0, own)
    }
}

/// Replaces each number by its activation.
pub(crate) fn activate(pool: &Pool, activation: Activation, numbers: &mut [f32]) {
    each(pool, numbers, &[], Activate(activation));
}

#[derive(Clone, Copy)]
struct AddScaled(f32);

impl ElementWise for AddScaled {
    #[inline(always)]
    fn at<T: Tier>(self, tier: T, own: T::Floats, other: T::Floats) -> T::Floats {
        tier.fused(other, tier.splat(self.0), own)
    }
}

/// Adds the other numbers, times `factor`.
pub(crate) fn add(pool: &Pool, numbers: &mut [f32], others: &[f32], factor: f32) {
    assert_eq!(numbers.len(), others.len(), "both have as many numbers");
    each(pool, numbers, others, AddScaled(factor));
}

/// Parameters of a norm: RMS norm, or layer norm if `bias` is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormWeights<'a> {
    pub weights: &'a [f32],
    /// The bias of a layer norm, which also subtracts the mean.
    pub bias: Option<&'a [f32]>,
    pub epsilon: f32,
    /// Weights are stored minus one.
    pub adds_one: bool,
}

struct NormJob<'a> {
    input: Option<&'a [f32]>,
    output: &'a mut [f32],
    norm: NormWeights<'a>,
}

/// Sums a row in four chains, then adds these.
#[inline(always)]
fn sum_of<T: Tier>(tier: T, row: &[f32], term: impl Fn(T::Floats, T::Floats) -> T::Floats) -> f32 {
    let mut sums = [tier.splat(0.0); 4];
    let mut at = 0;
    while at + 4 * LANES <= row.len() {
        for (place, sum) in sums.iter_mut().enumerate() {
            *sum = term(load(tier, row, at + place * LANES), *sum);
        }
        at += 4 * LANES;
    }
    while at < row.len() {
        sums[0] = term(load(tier, row, at), sums[0]);
        at += LANES;
    }
    tier.sum(tier.add(tier.add(sums[0], sums[1]), tier.add(sums[2], sums[3])))
}

#[inline(always)]
fn norm_row<T: Tier>(tier: T, input: Option<&[f32]>, output: &mut [f32], norm: NormWeights<'_>) {
    let width = norm.weights.len();
    let row: &[f32] = input.unwrap_or(output);
    let mean = match norm.bias {
        Some(_) => sum_of(tier, row, |value, sum| tier.add(value, sum)) / width as f32,
        None => 0.0,
    };
    // Lanes beyond the end of the row would each add the square of the mean, so they are masked.
    let squares = if norm.bias.is_some() {
        let mut sum = 0.0;
        let mean = tier.splat(mean);
        let mut at = 0;
        while at < width {
            let lanes = LANES.min(width - at);
            let mask = ((1u32 << lanes) - 1) as u16;
            let difference = tier.subtract(load(tier, row, at), mean);
            let difference = tier.keep(mask, difference, tier.splat(0.0));
            sum += tier.sum(tier.multiply(difference, difference));
            at += LANES;
        }
        sum
    } else {
        sum_of(tier, row, |value, sum| tier.fused(value, value, sum))
    };
    let factor = tier.splat(1.0 / (squares / width as f32 + norm.epsilon).sqrt());
    let mean = tier.splat(mean);
    let one = tier.splat(if norm.adds_one { 1.0 } else { 0.0 });
    let mut at = 0;
    while at < width {
        let value = match input {
            Some(input) => load(tier, input, at),
            None => load(tier, output, at),
        };
        let value = tier.multiply(tier.subtract(value, mean), factor);
        let weight = tier.add(load(tier, norm.weights, at), one);
        let value = match norm.bias {
            Some(bias) => tier.fused(value, weight, load(tier, bias, at)),
            None => tier.multiply(value, weight),
        };
        store(tier, output, at, value);
        at += LANES;
    }
}

impl Job for NormJob<'_> {
    type Output = ();
    #[inline(always)]
    fn run<T: Tier>(self, tier: T) {
        let width = self.norm.weights.len();
        for (row, output) in self.output.chunks_exact_mut(width).enumerate() {
            let input = self.input.map(|input| &input[row * width..][..width]);
            norm_row(tier, input, output, self.norm);
        }
    }
}

fn check_norm(numbers: usize, norm: &NormWeights<'_>) {
    let width = norm.weights.len();
    assert!(
        width > 0 && numbers.is_multiple_of(width),
        "rows are as wide as the norm"
    );
    assert!(
        norm.bias.is_none_or(|bias| bias.len() == width),
        "the bias is as wide as the norm"
    );
}

pub(super) fn rows_per_task(width: usize) -> usize {
    (TASK_NUMBERS / width).max(1)
}

/// Normalises each row; rows have the width of the weights.
pub(crate) fn norm(pool: &Pool, input: &[f32], norm: NormWeights<'_>, output: &mut [f32]) {
    check_norm(output.len(), &norm);
    assert_eq!(input.len(), output.len(), "outputs are as many as inputs");
    let size = rows_per_task(norm.weights.len()) * norm.weights.len();
    let level = pool.level();
    pool.run_pieces(output, size, |piece, output| {
        let input = Some(&input[piece * size..][..output.len()]);
        level.run(NormJob {
            input,
            output,
            norm,
        });
    });
}

/// Normalises each row in place, for example the heads of queries and keys.
pub(crate) fn norm_in_place(pool: &Pool, rows: &mut [f32], norm: NormWeights<'_>) {
    check_norm(rows.len(), &norm);
    let size = rows_per_task(norm.weights.len()) * norm.weights.len();
    let level = pool.level();
    pool.run_pieces(rows, size, |_, output| {
        level.run(NormJob {
            input: None,
            output,
            norm,
        })
    });
}

/// Adds to the hidden states and normalises them in one pass.
pub(crate) fn add_and_norm(
    pool: &Pool,
    stream: &mut [f32],
    addition: &[f32],
    factor: f32,
    norm: NormWeights<'_>,
    output: &mut [f32],
) {
    check_norm(output.len(), &norm);
    assert!(
        stream.len() == output.len() && addition.len() == output.len(),
        "all have as many numbers"
    );
    let size = rows_per_task(norm.weights.len()) * norm.weights.len();
    let level = pool.level();
    let stream = Pieces::new(stream);
    pool.run_pieces(output, size, |piece, output| {
        // SAFETY: each task has a different piece.
        let stream = unsafe { stream.piece(piece * size, output.len()) };
        let other = &addition[piece * size..][..output.len()];
        level.run(ElementWiseJob {
            own: stream,
            other,
            each: AddScaled(factor),
        });
        level.run(NormJob {
            input: Some(stream),
            output,
            norm,
        });
    });
}

#[cfg(test)]
mod tests;
