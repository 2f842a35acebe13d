//! The operations of a decoder on the CPU: this crate's kernels on memory that is reused from step to step.
//!
//! Weights are multiplied in their stored layout in the mapped files. The bits of a row do not depend on what else is in the step.

use super::compute::{AttentionShape, Compute, TurnedPart, Work};
use super::rope::Angles;
use crate::kernels::{
    self, Attention, CacheLayer, CacheShape, Matrix, NormWeights, Pool, Precision, Turns,
};
use crate::spec::Activation;
use crate::step::Page;
use crate::stored_tensor::StoredTensor;
use candle_core::{Error, Result};
use std::sync::Arc;

pub(super) struct Native {
    pool: Arc<Pool>,
    /// Precision of keys and values in the cache.
    precision: Precision,
}

impl Native {
    pub fn new(pool: Arc<Pool>, precision: Precision) -> Self {
        Self { pool, precision }
    }

    fn cache_shape(&self, pages: usize, shape: &AttentionShape) -> CacheShape {
        CacheShape {
            pages,
            heads: shape.key_value_heads,
            key_width: shape.key_width,
            value_width: shape.value_width,
            precision: self.precision,
        }
    }
}

pub(super) struct Norm {
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
}

/// `rows × width` numbers; a step with fewer rows keeps the memory.
#[derive(Debug, Default)]
pub(super) struct Rows {
    numbers: Vec<f32>,
    width: usize,
}

impl Rows {
    fn count(&self) -> usize {
        self.numbers.len().checked_div(self.width).unwrap_or(0)
    }

    /// Makes room for rows, without clearing their contents.
    fn shape(&mut self, count: usize, width: usize) -> &mut [f32] {
        self.width = width;
        self.numbers.resize(count * width, 0.0);
        &mut self.numbers
    }
}

impl Compute for Native {
    type Rows = Rows;
    type Matrix = Matrix;
    type Norm = Norm;
    type Cache = CacheLayer;
    type Plan = ();

    fn matrix(&self, weights: &StoredTensor, bias: Option<&[f32]>) -> Result<Matrix> {
        let matrix = Matrix::new(weights.clone()).map_err(Error::msg)?;
        match bias {
            Some(bias) => matrix.with_bias(bias.to_vec()).map_err(Error::msg),
            None => Ok(matrix),
        }
    }

    fn has_weights_on_host(&self) -> bool {
        true
    }

    fn matrix_bytes(&self, weights: &StoredTensor) -> u64 {
        weights.bytes().len() as u64
    }

    fn norm_weights(&self, weights: &[f32], bias: Option<&[f32]>) -> Result<Norm> {
        Ok(Norm {
            weights: weights.to_vec(),
            bias: bias.map(<[f32]>::to_vec),
        })
    }

    fn cache(&self, pages: usize, shape: &AttentionShape) -> Result<CacheLayer> {
        Ok(CacheLayer::new(self.cache_shape(pages, shape)))
    }

    fn page_bytes(&self, shape: &AttentionShape) -> u64 {
        self.cache_shape(1, shape).page_bytes() as u64
    }

    fn copy_page(&mut self, cache: &mut CacheLayer, from: Page, to: Page) -> Result<()> {
        cache.copy_page(from, to);
        Ok(())
    }

    fn plan(&mut self, _: &Work<'_>, _: &[AttentionShape], (): &mut ()) -> Result<()> {
        Ok(())
    }

    fn linear<const N: usize>(
        &mut self,
        input: &Rows,
        matrices: [&Matrix; N],
        outputs: [&mut Rows; N],
    ) -> Result<()> {
        let count = input.count();
        let mut index = 0;
        let mut slices = outputs.map(|output| {
            let width = matrices[index].rows();
            index += 1;
            output.shape(count, width)
        });
        kernels::multiply_all(&self.pool, &matrices, &input.numbers, &mut slices);
        Ok(())
    }

    fn norm(
        &mut self,
        weights: &Norm,
        epsilon: f32,
        input: &Rows,
        output: &mut Rows,
    ) -> Result<()> {
        let output = output.shape(input.count(), input.width);
        kernels::norm(&self.pool, &input.numbers, by(weights, epsilon), output);
        Ok(())
    }

    fn norm_parts(&mut self, weights: &Norm, epsilon: f32, rows: &mut Rows) -> Result<()> {
        kernels::norm_in_place(&self.pool, &mut rows.numbers, by(weights, epsilon));
        Ok(())
    }

    fn add_and_norm(
        &mut self,
        (factor, part): (f32, &Rows),
        sum: &mut Rows,
        weights: &Norm,
        epsilon: f32,
        output: &mut Rows,
    ) -> Result<()> {
        let output = output.shape(sum.count(), sum.width);
        let norm = by(weights, epsilon);
        let sum = &mut sum.numbers;
        kernels::add_and_norm(&self.pool, sum, &part.numbers, factor, norm, output);
        Ok(())
    }

    fn turn(&mut self, work: &Work<'_>, (): &(), part: TurnedPart, rows: &mut Rows) -> Result<()> {
        let angles = &work.angles[part.rope];
        if part.first > 0 {
            turn_later_part(angles, &part, rows);
            return Ok(());
        }
        let turns = Turns {
            cosines: &angles.cosines,
            sines: &angles.sines,
            half: angles.pairs,
            interleaved: angles.interleaved,
        };
        let heads = rows.width / part.head_width;
        kernels::turn(&self.pool, &mut rows.numbers, heads, part.head_width, turns);
        Ok(())
    }

    fn join_latent(
        &mut self,
        shape: &AttentionShape,
        expanded: &Rows,
        turned: &Rows,
        keys: &mut Rows,
        values: &mut Rows,
    ) -> Result<()> {
        let count = expanded.count();
        let plain = shape.key_width - turned.width;
        let keys = keys.shape(count, shape.heads * shape.key_width);
        let values = values.shape(count, shape.heads * shape.value_width);
        let heads = keys
            .chunks_exact_mut(shape.key_width)
            .zip(values.chunks_exact_mut(shape.value_width))
            .zip(expanded.numbers.chunks_exact(plain + shape.value_width));
        for (head, ((key, value), expanded)) in heads.enumerate() {
            let row = head / shape.heads;
            key[..plain].copy_from_slice(&expanded[..plain]);
            key[plain..].copy_from_slice(&turned.numbers[row * turned.width..][..turned.width]);
            value.copy_from_slice(&expanded[plain..]);
        }
        Ok(())
    }

    fn split_heads(
        &mut self,
        shape: &AttentionShape,
        fused: &Rows,
        parts: [&mut Rows; 3],
    ) -> Result<()> {
        let (count, width) = (fused.count(), shape.key_width);
        for (index, part) in parts.into_iter().enumerate() {
            let part = part.shape(count, shape.heads * width);
            let heads = fused.numbers.chunks_exact(3 * width);
            for (own, head) in part.chunks_exact_mut(width).zip(heads) {
                own.copy_from_slice(&head[index * width..][..width]);
            }
        }
        Ok(())
    }

    fn attend(
        &mut self,
        work: &Work<'_>,
        (): &(),
        shape: &AttentionShape,
        cache: &mut CacheLayer,
        queries: &Rows,
        keys: &Rows,
        values: &Rows,
        output: &mut Rows,
    ) -> Result<()> {
        let spans = &work.step.spans;
        cache.write(&self.pool, spans, &keys.numbers, &values.numbers);
        let attention = Attention {
            heads: shape.heads,
            score_factor: shape.factor,
            score_cap: shape.cap,
            window: shape.window,
            causal: true,
        };
        let output = output.shape(queries.count(), shape.heads * shape.value_width);
        kernels::attend(
            &self.pool,
            cache,
            spans,
            &attention,
            &queries.numbers,
            output,
        );
        Ok(())
    }

    fn gate(&mut self, activation: Activation, gate: &mut Rows, up: &Rows) -> Result<()> {
        kernels::gate(&self.pool, activation, &mut gate.numbers, &up.numbers);
        Ok(())
    }

    fn activate(&mut self, activation: Activation, rows: &mut Rows) -> Result<()> {
        kernels::activate(&self.pool, activation, &mut rows.numbers);
        Ok(())
    }

    fn add(&mut self, factor: f32, part: &Rows, sum: &mut Rows) -> Result<()> {
        kernels::add(&self.pool, &mut sum.numbers, &part.numbers, factor);
        Ok(())
    }

    fn zeros(&mut self, count: usize, width: usize, output: &mut Rows) -> Result<()> {
        output.shape(count, width).fill(0.0);
        Ok(())
    }

    fn pick(&mut self, input: &Rows, rows: &[usize], output: &mut Rows) -> Result<()> {
        let output = output.shape(rows.len(), input.width);
        for (output, row) in output.chunks_exact_mut(input.width).zip(rows) {
            output.copy_from_slice(&input.numbers[row * input.width..][..input.width]);
        }
        Ok(())
    }

    fn add_picked(
        &mut self,
        part: &Rows,
        rows: &[usize],
        factors: &[f32],
        sum: &mut Rows,
    ) -> Result<()> {
        let parts = part.numbers.chunks_exact(part.width);
        for ((part, row), factor) in parts.zip(rows).zip(factors) {
            let sum = &mut sum.numbers[row * part.len()..][..part.len()];
            for (sum, part) in sum.iter_mut().zip(part) {
                *sum += factor * part;
            }
        }
        Ok(())
    }

    fn read(&mut self, rows: &Rows, numbers: &mut Vec<f32>) -> Result<()> {
        numbers.clear();
        numbers.extend_from_slice(&rows.numbers);
        Ok(())
    }

    fn write(&mut self, numbers: &[f32], width: usize, rows: &mut Rows) -> Result<()> {
        rows.shape(numbers.len() / width, width)
            .copy_from_slice(numbers);
        Ok(())
    }
}

/// Norms that add one to their weights had it added when they were loaded.
fn by(norm: &Norm, epsilon: f32) -> NormWeights<'_> {
    NormWeights {
        weights: &norm.weights,
        bias: norm.bias.as_deref(),
        epsilon,
        adds_one: false,
    }
}

/// Rotates the last numbers of each head, as in DeepSeek's queries; the kernel rotates the first.
fn turn_later_part(angles: &Angles, part: &TurnedPart, rows: &mut Rows) {
    let pairs = angles.pairs;
    for (row, numbers) in rows.numbers.chunks_exact_mut(rows.width).enumerate() {
        let cosines = &angles.cosines[row * pairs..][..pairs];
        let sines = &angles.sines[row * pairs..][..pairs];
        for head in numbers.chunks_exact_mut(part.head_width) {
            let turned = &mut head[part.first..][..2 * pairs];
            for (pair, (cosine, sine)) in cosines.iter().zip(sines).enumerate() {
                let (first, second) = if angles.interleaved {
                    (2 * pair, 2 * pair + 1)
                } else {
                    (pair, pair + pairs)
                };
                let (a, b) = (turned[first], turned[second]);
                turned[first] = a * cosine - b * sine;
                turned[second] = b * cosine + a * sine;
            }
        }
    }
}
