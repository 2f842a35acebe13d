//! The operations that decoders consist of, implemented for every kind of device.
//!
//! The flow of a block is written once over this trait. [`super::candle_compute`] implements it with candle, on GPUs, and on the CPU as the
//! reference for tests. [`super::native`] implements it on the CPU with this crate's own kernels.
//!
//! Results are written to rows that the caller keeps from step to step, which lets implementations reuse their memory.

use super::rope::Angles;
use crate::spec::Activation;
use crate::step::{Page, Step};
use crate::stored_tensor::StoredTensor;
use candle_core::Result;

/// The inputs that all blocks share in a step.
pub(super) struct Work<'a> {
    pub step: &'a Step,
    /// By index of the rope in the spec.
    pub angles: &'a [Angles],
}

/// The attention parameters of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AttentionShape {
    pub heads: usize,
    pub key_value_heads: usize,
    pub key_width: usize,
    pub value_width: usize,
    pub factor: f32,
    pub cap: Option<f32>,
    pub window: Option<usize>,
}

/// The location of the rotated numbers within each head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnedPart {
    pub rope: usize,
    pub head_width: usize,
    pub first: usize,
}

/// Operations on rows of numbers (`rows × width`) on one device.
pub(super) trait Compute: Send + 'static {
    /// Rows of F32 numbers; the default is empty.
    type Rows: Default + Send;
    /// Weights of shape `[outputs, inputs]`, with an optional bias.
    type Matrix: Send + Sync;
    /// Weights of an RMS norm or, with a bias, of a layer norm.
    type Norm: Send + Sync;
    /// The keys and values of one block, for all pages.
    type Cache: Send;
    /// Data that an implementation prepares once per step.
    type Plan: Default + Send;

    /// Returns true if weights are used in place on the host, false if they are copied to the device.
    fn has_weights_on_host(&self) -> bool;
    /// Waits for all pending work of the device, after which dropped memory is free.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn matrix(&self, weights: &StoredTensor, bias: Option<&[f32]>) -> Result<Self::Matrix>;
    /// Size of such a matrix on the device, in bytes.
    fn matrix_bytes(&self, weights: &StoredTensor) -> u64;
    fn norm_weights(&self, weights: &[f32], bias: Option<&[f32]>) -> Result<Self::Norm>;

    fn cache(&self, pages: usize, shape: &AttentionShape) -> Result<Self::Cache>;
    /// Size of one page in one block's cache, in bytes.
    fn page_bytes(&self, shape: &AttentionShape) -> u64;
    fn copy_page(&mut self, cache: &mut Self::Cache, from: Page, to: Page) -> Result<()>;

    fn plan(
        &mut self,
        work: &Work<'_>,
        attention: &[AttentionShape],
        plan: &mut Self::Plan,
    ) -> Result<()>;

    /// Multiplies one input with several matrices.
    fn linear<const N: usize>(
        &mut self,
        input: &Self::Rows,
        matrices: [&Self::Matrix; N],
        outputs: [&mut Self::Rows; N],
    ) -> Result<()>;

    /// RMS norm or layer norm of complete rows.
    fn norm(
        &mut self,
        weights: &Self::Norm,
        epsilon: f32,
        input: &Self::Rows,
        output: &mut Self::Rows,
    ) -> Result<()>;

    /// Norm in place, for each part of a row that is as wide as the weights.
    fn norm_parts(
        &mut self,
        weights: &Self::Norm,
        epsilon: f32,
        rows: &mut Self::Rows,
    ) -> Result<()>;

    /// Adds `factor · part` to `sum`, and writes its norm to `output`.
    fn add_and_norm(
        &mut self,
        part: (f32, &Self::Rows),
        sum: &mut Self::Rows,
        weights: &Self::Norm,
        epsilon: f32,
        output: &mut Self::Rows,
    ) -> Result<()> {
        self.add(part.0, part.1, sum)?;
        self.norm(weights, epsilon, sum, output)
    }

    /// Rotates a part of every head by the angles of its row's position.
    fn turn(
        &mut self,
        work: &Work<'_>,
        plan: &Self::Plan,
        part: TurnedPart,
        rows: &mut Self::Rows,
    ) -> Result<()>;

    /// Builds heads of keys and values from DeepSeek's expanded latent vectors. `expanded` has, per head, the plain part of its key
    /// and its value; `turned` has the rest of the key, which all heads share.
    fn join_latent(
        &mut self,
        shape: &AttentionShape,
        expanded: &Self::Rows,
        turned: &Self::Rows,
        keys: &mut Self::Rows,
        values: &mut Self::Rows,
    ) -> Result<()>;

    /// Splits fused rows into queries, keys and values. The fused layout has, per head, first its query, then its key, then its
    /// value.
    fn split_heads(
        &mut self,
        shape: &AttentionShape,
        fused: &Self::Rows,
        parts: [&mut Self::Rows; 3],
    ) -> Result<()>;

    /// Writes the keys and values of all rows to the cache, then computes attention for the queries of each span.
    #[expect(
        clippy::too_many_arguments,
        reason = "three inputs, one output, and the state of the step"
    )]
    fn attend(
        &mut self,
        work: &Work<'_>,
        plan: &Self::Plan,
        shape: &AttentionShape,
        cache: &mut Self::Cache,
        queries: &Self::Rows,
        keys: &Self::Rows,
        values: &Self::Rows,
        output: &mut Self::Rows,
    ) -> Result<()>;

    /// Replaces `gate` by `activation(gate) · up`.
    fn gate(
        &mut self,
        activation: Activation,
        gate: &mut Self::Rows,
        up: &Self::Rows,
    ) -> Result<()>;

    /// Applies the activation to each number.
    fn activate(&mut self, activation: Activation, rows: &mut Self::Rows) -> Result<()>;

    /// Adds `factor · part` to `sum`.
    fn add(&mut self, factor: f32, part: &Self::Rows, sum: &mut Self::Rows) -> Result<()>;

    /// Writes rows of zeros.
    fn zeros(&mut self, count: usize, width: usize, output: &mut Self::Rows) -> Result<()>;

    /// Copies the rows with these indices, in this order.
    fn pick(&mut self, input: &Self::Rows, rows: &[usize], output: &mut Self::Rows) -> Result<()>;

    /// Adds each row of `part`, times its factor, to the row of `sum` with its index. Indices must be unique.
    fn add_picked(
        &mut self,
        part: &Self::Rows,
        rows: &[usize],
        factors: &[f32],
        sum: &mut Self::Rows,
    ) -> Result<()>;

    /// Copies the numbers of all rows to the host.
    fn read(&mut self, rows: &Self::Rows, numbers: &mut Vec<f32>) -> Result<()>;

    /// Copies rows of numbers from the host.
    fn write(&mut self, numbers: &[f32], width: usize, rows: &mut Self::Rows) -> Result<()>;
}
