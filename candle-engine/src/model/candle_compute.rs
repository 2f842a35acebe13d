//! The operations of a decoder implemented with candle: for GPUs, and on the CPU as the plain reference for this crate's own
//! kernels.
//!
//! Hidden states, norms and sums are F32. On GPUs, weights in GGML blocks stay quantised and use candle's quantised kernels, and
//! dense weights multiply in BF16, or in F32 if the file has F32. On the CPU, everything is F32.
//!
//! Attention gathers and masks span by span. candle's flash attention is not used: it needs contiguous keys and values, so pages
//! would have to be gathered anyway, and it does not support F32.

mod attention;
mod plan;
mod values;

use super::compute::{AttentionShape, Compute, TurnedPart, Work};
use super::weights::ggml;
use crate::spec::Activation;
use crate::step::{PAGE_TOKENS, Page};
use crate::stored_tensor::{Encoding, StoredTensor};
use candle_core::quantized::{QMatMul, QStorage, QTensor};
use candle_core::{DType, Device, Result, Tensor};
use plan::Plan;
use std::borrow::Cow;
use std::sync::Arc;
use values::{Cache, Matrix, Norm, Rows, Weights, activated};

pub(super) struct CandleCompute {
    device: Device,
    cache_type: DType,
    /// All weights multiply in F32.
    exact: bool,
}

impl CandleCompute {
    /// Computes on a GPU; keys and values are cached in `cache_type`.
    pub fn new(device: Device, cache_type: DType) -> Self {
        Self {
            device,
            cache_type,
            exact: false,
        }
    }

    /// Computes on the CPU, entirely in F32.
    #[cfg(test)]
    pub fn reference() -> Self {
        Self {
            device: Device::Cpu,
            cache_type: DType::F32,
            exact: true,
        }
    }

    /// Returns the type for multiplication, or `None` for blocks that stay quantised.
    fn multiplies_in(&self, encoding: Encoding) -> Option<DType> {
        match encoding {
            _ if self.exact => Some(DType::F32),
            Encoding::F32 => Some(DType::F32),
            Encoding::F16 | Encoding::Bf16 => Some(DType::BF16),
            _ => None,
        }
    }

    fn indices(&self, rows: &[usize]) -> Result<Tensor> {
        let rows: Vec<u32> = rows.iter().map(|row| *row as u32).collect();
        Tensor::new(rows, &self.device)
    }
}

impl Compute for CandleCompute {
    type Rows = Rows;
    type Matrix = Matrix;
    type Norm = Norm;
    type Cache = Cache;
    type Plan = Plan;

    fn matrix(&self, weights: &StoredTensor, bias: Option<&[f32]>) -> Result<Matrix> {
        let shape = weights.shape.as_slice();
        let bytes = Cow::Borrowed(weights.bytes());
        let encoding = ggml(weights.encoding);
        let weights = match self.multiplies_in(weights.encoding) {
            Some(dtype) => {
                // Converted on the host: the device never holds both forms.
                let storage = QStorage::from_data(bytes, &Device::Cpu, encoding)?;
                let weights = QTensor::new(storage, shape)?.dequantize(&Device::Cpu)?;
                Weights::Dense(weights.to_dtype(dtype)?.to_device(&self.device)?.t()?)
            }
            None => {
                let storage = QStorage::from_data(bytes, &self.device, encoding)?;
                let weights = Arc::new(QTensor::new(storage, shape)?);
                Weights::Blocks(QMatMul::from_arc(weights)?)
            }
        };
        Ok(Matrix {
            weights,
            bias: match bias {
                Some(bias) => Some(Tensor::new(bias, &self.device)?),
                None => None,
            },
        })
    }

    fn has_weights_on_host(&self) -> bool {
        false
    }

    fn settle(&self) -> Result<()> {
        self.device.synchronize()
    }

    fn matrix_bytes(&self, weights: &StoredTensor) -> u64 {
        match self.multiplies_in(weights.encoding) {
            Some(dtype) => (weights.numbers() * dtype.size_in_bytes()) as u64,
            None => weights.bytes().len() as u64,
        }
    }

    fn norm_weights(&self, weights: &[f32], bias: Option<&[f32]>) -> Result<Norm> {
        let bias = bias.map(|bias| Tensor::new(bias, &self.device));
        Ok(Norm {
            weights: Tensor::new(weights, &self.device)?,
            bias: bias.transpose()?,
        })
    }

    fn cache(&self, pages: usize, shape: &AttentionShape) -> Result<Cache> {
        let rows = |width: usize| {
            let shape = (pages * PAGE_TOKENS, shape.key_value_heads * width);
            Tensor::zeros(shape, self.cache_type, &self.device)
        };
        Ok(Cache {
            keys: rows(shape.key_width)?,
            values: rows(shape.value_width)?,
        })
    }

    fn page_bytes(&self, shape: &AttentionShape) -> u64 {
        let numbers = PAGE_TOKENS * shape.key_value_heads * (shape.key_width + shape.value_width);
        (numbers * self.cache_type.size_in_bytes()) as u64
    }

    fn copy_page(&mut self, cache: &mut Cache, from: Page, to: Page) -> Result<()> {
        let (from, to) = (from as usize * PAGE_TOKENS, to as usize * PAGE_TOKENS);
        for rows in [&cache.keys, &cache.values] {
            rows.slice_set(&rows.narrow(0, from, PAGE_TOKENS)?.copy()?, 0, to)?;
        }
        Ok(())
    }

    fn plan(
        &mut self,
        work: &Work<'_>,
        attention: &[AttentionShape],
        plan: &mut Plan,
    ) -> Result<()> {
        self.fill_plan(work, attention, plan)
    }

    fn linear<const N: usize>(
        &mut self,
        input: &Rows,
        matrices: [&Matrix; N],
        outputs: [&mut Rows; N],
    ) -> Result<()> {
        let input = input.get()?;
        for (matrix, output) in matrices.into_iter().zip(outputs) {
            output.set(matrix.apply(input)?);
        }
        Ok(())
    }

    fn norm(
        &mut self,
        weights: &Norm,
        epsilon: f32,
        input: &Rows,
        output: &mut Rows,
    ) -> Result<()> {
        output.set(weights.apply(&input.get()?.contiguous()?, epsilon)?);
        Ok(())
    }

    fn norm_parts(&mut self, weights: &Norm, epsilon: f32, rows: &mut Rows) -> Result<()> {
        let input = rows.get()?;
        let (count, width) = input.dims2()?;
        let parts = input.reshape(((), weights.weights.dim(0)?))?;
        let normed = weights.apply(&parts.contiguous()?, epsilon)?;
        rows.set(normed.reshape((count, width))?);
        Ok(())
    }

    fn turn(
        &mut self,
        work: &Work<'_>,
        plan: &Plan,
        part: TurnedPart,
        rows: &mut Rows,
    ) -> Result<()> {
        let input = rows.get()?;
        let (count, width) = input.dims2()?;
        let angles = &work.angles[part.rope];
        let (cosines, sines) = &plan.angles[part.rope];
        let heads = input.reshape((1, count, width / part.head_width, part.head_width))?;
        let turned_width = 2 * angles.pairs;
        let turned = heads.narrow(3, part.first, turned_width)?;
        let turned = if angles.interleaved {
            let turned = turned.transpose(1, 2)?.contiguous()?;
            candle_nn::rotary_emb::rope_i(&turned, cosines, sines)?.transpose(1, 2)?
        } else {
            candle_nn::rotary_emb::rope_thd(&turned.contiguous()?, cosines, sines)?
        };
        let end = part.first + turned_width;
        let all = Tensor::cat(
            &[
                &heads.narrow(3, 0, part.first)?,
                &turned,
                &heads.narrow(3, end, part.head_width - end)?,
            ],
            3,
        )?;
        rows.set(all.reshape((count, width))?);
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
        let (expanded, turned) = (expanded.get()?, turned.get()?);
        let (count, turned_width) = turned.dims2()?;
        let plain = shape.key_width - turned_width;
        let heads = expanded.reshape((count, shape.heads, plain + shape.value_width))?;
        let turned = turned.unsqueeze(1)?;
        let turned = turned.broadcast_as((count, shape.heads, turned_width))?;
        let joined = Tensor::cat(&[&heads.narrow(2, 0, plain)?, &turned], 2)?;
        keys.set(joined.reshape((count, shape.heads * shape.key_width))?);
        let own = heads.narrow(2, plain, shape.value_width)?;
        values.set(own.reshape((count, shape.heads * shape.value_width))?);
        Ok(())
    }

    fn split_heads(
        &mut self,
        shape: &AttentionShape,
        fused: &Rows,
        parts: [&mut Rows; 3],
    ) -> Result<()> {
        let fused = fused.get()?;
        let count = fused.dim(0)?;
        let heads = fused.reshape((count, shape.heads, 3, shape.key_width))?;
        for (index, part) in parts.into_iter().enumerate() {
            let own = heads.narrow(2, index, 1)?.contiguous()?;
            part.set(own.reshape((count, shape.heads * shape.key_width))?);
        }
        Ok(())
    }

    fn attend(
        &mut self,
        work: &Work<'_>,
        plan: &Plan,
        shape: &AttentionShape,
        cache: &mut Cache,
        queries: &Rows,
        keys: &Rows,
        values: &Rows,
        output: &mut Rows,
    ) -> Result<()> {
        for (rows, stored, slots) in [
            (keys, &cache.keys, &plan.key_slots),
            (values, &cache.values, &plan.value_slots),
        ] {
            if let Some(slots) = slots {
                let rows = rows.get()?.to_dtype(self.cache_type)?.contiguous()?;
                stored.scatter_set(slots, &rows, 0)?;
            }
        }
        let Some(view) = plan.views.iter().find(|view| view.window == shape.window) else {
            candle_core::bail!("a step was not prepared for a window of {:?}", shape.window);
        };
        let queries = queries.get()?;
        let mut mixed = Vec::with_capacity(view.spans.len());
        let mut row = 0;
        for (span, seen) in work.step.spans.iter().zip(&view.spans) {
            let queries = queries.narrow(0, row, span.count)?;
            mixed.push(self.attend_span(shape, cache, &queries, seen)?);
            row += span.count;
        }
        output.set(Tensor::cat(&mixed, 0)?);
        Ok(())
    }

    fn gate(&mut self, activation: Activation, gate: &mut Rows, up: &Rows) -> Result<()> {
        gate.set((activated(activation, gate.get()?)? * up.get()?)?);
        Ok(())
    }

    fn activate(&mut self, activation: Activation, rows: &mut Rows) -> Result<()> {
        rows.set(activated(activation, rows.get()?)?);
        Ok(())
    }

    fn add(&mut self, factor: f32, part: &Rows, sum: &mut Rows) -> Result<()> {
        let part = part.get()?;
        sum.set((sum.get()? + (part * f64::from(factor))?)?);
        Ok(())
    }

    fn zeros(&mut self, count: usize, width: usize, output: &mut Rows) -> Result<()> {
        output.set(Tensor::zeros((count, width), DType::F32, &self.device)?);
        Ok(())
    }

    fn pick(&mut self, input: &Rows, rows: &[usize], output: &mut Rows) -> Result<()> {
        output.set(input.get()?.index_select(&self.indices(rows)?, 0)?);
        Ok(())
    }

    fn add_picked(
        &mut self,
        part: &Rows,
        rows: &[usize],
        factors: &[f32],
        sum: &mut Rows,
    ) -> Result<()> {
        let factors = Tensor::new(factors, &self.device)?.unsqueeze(1)?;
        let part = part.get()?.broadcast_mul(&factors)?;
        sum.set(sum.get()?.index_add(&self.indices(rows)?, &part, 0)?);
        Ok(())
    }

    fn read(&mut self, rows: &Rows, numbers: &mut Vec<f32>) -> Result<()> {
        *numbers = rows.get()?.flatten_all()?.to_vec1()?;
        Ok(())
    }

    fn write(&mut self, numbers: &[f32], width: usize, rows: &mut Rows) -> Result<()> {
        let shape = (numbers.len() / width, width);
        rows.set(Tensor::from_slice(numbers, shape, &self.device)?);
        Ok(())
    }
}
