//! Owns the operations of a decoder on the CPU: this crate's kernels on slices of memory that is kept from step to step. Never knows a
//! block's flow.
//!
//! Weights are multiplied as they lie in the mapped files. A row's numbers have the same bits whatever else is in the step.

use super::compute::{AttentionShape, Compute, TurnedPart, Work};
use super::slices::{self, Paged};
use crate::kernels::{self, Matrix, Pool};
use crate::spec::Activation;
use crate::step::{PAGE_TOKENS, Page};
use crate::stored::Stored;
use candle_core::{Error, Result};
use std::sync::Arc;

pub(super) struct Native {
    pool: Arc<Pool>,
}

impl Native {
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool }
    }
}

/// `rows × width`; the memory stays when a step has fewer rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    numbers: Vec<f32>,
    width: usize,
}

impl Rows {
    fn count(&self) -> usize {
        self.numbers.len().checked_div(self.width).unwrap_or(0)
    }

    /// Makes room for rows; what they have is not cleared.
    fn shape(&mut self, count: usize, width: usize) -> &mut [f32] {
        self.width = width;
        self.numbers.resize(count * width, 0.0);
        &mut self.numbers
    }
}

/// Keys and values of one block: `page × head × token × width`.
pub(super) struct Cache {
    keys: Vec<f32>,
    values: Vec<f32>,
    pages: usize,
}

impl Compute for Native {
    type Rows = Rows;
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type Cache = Cache;
    type Plan = ();

    fn matrix(&self, weights: &Stored, bias: Option<&[f32]>) -> Result<Matrix> {
        let matrix = Matrix::new(weights.clone()).map_err(Error::msg)?;
        match bias {
            Some(bias) => matrix.with_bias(bias.to_vec()).map_err(Error::msg),
            None => Ok(matrix),
        }
    }

    fn matrix_bytes(&self, weights: &Stored) -> u64 {
        weights.bytes().len() as u64
    }

    fn vector(&self, numbers: &[f32]) -> Result<Vec<f32>> {
        Ok(numbers.to_vec())
    }

    fn cache(&self, pages: usize, shape: &AttentionShape) -> Result<Cache> {
        let zeros = |width: usize| vec![0.0; pages * page_numbers(shape, width)];
        Ok(Cache {
            keys: zeros(shape.key_width),
            values: zeros(shape.value_width),
            pages,
        })
    }

    fn page_bytes(&self, shape: &AttentionShape) -> u64 {
        (4 * page_numbers(shape, shape.key_width + shape.value_width)) as u64
    }

    fn copy_page(&mut self, cache: &mut Cache, from: Page, to: Page) -> Result<()> {
        let pages = cache.pages.max(1);
        for rows in [&mut cache.keys, &mut cache.values] {
            let numbers = rows.len() / pages;
            let from = from as usize * numbers;
            rows.copy_within(from..from + numbers, to as usize * numbers);
        }
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
        weights: &Vec<f32>,
        epsilon: f32,
        input: &Rows,
        output: &mut Rows,
    ) -> Result<()> {
        let numbers = output.shape(input.count(), input.width);
        numbers.copy_from_slice(&input.numbers);
        slices::norm(&self.pool, weights, epsilon, numbers);
        Ok(())
    }

    fn norm_parts(&mut self, weights: &Vec<f32>, epsilon: f32, rows: &mut Rows) -> Result<()> {
        slices::norm(&self.pool, weights, epsilon, &mut rows.numbers);
        Ok(())
    }

    fn turn(&mut self, work: &Work<'_>, (): &(), part: TurnedPart, rows: &mut Rows) -> Result<()> {
        let angles = &work.angles[part.rope];
        slices::turn(&self.pool, angles, &part, &mut rows.numbers, rows.width);
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

    fn attend(
        &mut self,
        work: &Work<'_>,
        (): &(),
        shape: &AttentionShape,
        cache: &mut Cache,
        queries: &Rows,
        keys: &Rows,
        values: &Rows,
        output: &mut Rows,
    ) -> Result<()> {
        let heads = shape.key_value_heads;
        slices::store(work.step, heads, &keys.numbers, &mut cache.keys);
        slices::store(work.step, heads, &values.numbers, &mut cache.values);
        let output = output.shape(queries.count(), shape.heads * shape.value_width);
        let paged = Paged {
            keys: &cache.keys,
            values: &cache.values,
            shape,
        };
        slices::attend(&self.pool, work.step, &paged, &queries.numbers, output);
        Ok(())
    }

    fn gate(&mut self, activation: Activation, gate: &mut Rows, up: &Rows) -> Result<()> {
        slices::gate(&self.pool, activation, &mut gate.numbers, &up.numbers);
        Ok(())
    }

    fn add(&mut self, factor: f32, part: &Rows, sum: &mut Rows) -> Result<()> {
        for (sum, part) in sum.numbers.iter_mut().zip(&part.numbers) {
            *sum += factor * part;
        }
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

fn page_numbers(shape: &AttentionShape, width: usize) -> usize {
    PAGE_TOKENS * shape.key_value_heads * width
}
