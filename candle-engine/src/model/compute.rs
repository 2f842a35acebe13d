//! The list of operations that a decoder is made of, which every kind of device offers.
//!
//! A block's flow is written once over this trait. [`super::plain`] computes it with candle, on a GPU, and on the CPU as the
//! reference that tests compare with; [`super::native`] computes it on the CPU with this crate's own kernels.
//!
//! Results go into rows that the caller keeps from step to step, so that an implementation may use their memory again.

use super::rope::Angles;
use crate::spec::Activation;
use crate::step::{Page, Step};
use crate::stored::Stored;
use candle_core::Result;

/// What is the same for all blocks in a step.
pub(super) struct Work<'a> {
    pub step: &'a Step,
    /// By the index of the rope in the spec.
    pub angles: &'a [Angles],
}

/// How a block's attention reads heads and scores.
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

/// Where in each head lie the numbers that positions turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnedPart {
    pub rope: usize,
    pub head_width: usize,
    pub first: usize,
}

/// Operations on rows of numbers, each `rows × width`, on one device.
pub(super) trait Compute: Send + 'static {
    /// Rows of F32 numbers. The default has none.
    type Rows: Default + Send;
    /// Weights `[outputs, inputs]`, with a bias where the model has one.
    type Matrix: Send + Sync;
    /// Weights of a norm; with a bias, of one that takes off the mean too.
    type Norm: Send + Sync;
    /// Keys and values of one block, for all pages.
    type Cache: Send;
    /// What an implementation prepares once a step.
    type Plan: Default + Send;

    /// Whether weights are computed with where the files have them; else they are copied to a device.
    fn has_weights_on_host(&self) -> bool;
    /// Waits until the device has done all, so that what was dropped is free.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn matrix(&self, weights: &Stored, bias: Option<&[f32]>) -> Result<Self::Matrix>;
    /// Bytes that such a matrix takes on the device.
    fn matrix_bytes(&self, weights: &Stored) -> u64;
    fn norm_weights(&self, weights: &[f32], bias: Option<&[f32]>) -> Result<Self::Norm>;

    fn cache(&self, pages: usize, shape: &AttentionShape) -> Result<Self::Cache>;
    /// Bytes of one page in one block's cache.
    fn page_bytes(&self, shape: &AttentionShape) -> u64;
    fn copy_page(&mut self, cache: &mut Self::Cache, from: Page, to: Page) -> Result<()>;

    fn plan(
        &mut self,
        work: &Work<'_>,
        attention: &[AttentionShape],
        plan: &mut Self::Plan,
    ) -> Result<()>;

    /// Several matrices on one input.
    fn linear<const N: usize>(
        &mut self,
        input: &Self::Rows,
        matrices: [&Self::Matrix; N],
        outputs: [&mut Self::Rows; N],
    ) -> Result<()>;

    /// Norm of whole rows, by the root of their mean square or as a layer norm.
    fn norm(
        &mut self,
        weights: &Self::Norm,
        epsilon: f32,
        input: &Self::Rows,
        output: &mut Self::Rows,
    ) -> Result<()>;

    /// The same in place, for each part of a row that is as wide as the weights.
    fn norm_parts(
        &mut self,
        weights: &Self::Norm,
        epsilon: f32,
        rows: &mut Self::Rows,
    ) -> Result<()>;

    /// `sum` becomes `sum + factor · part`, and `output` its norm.
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

    /// Turns a part of every head by the angles of its row's position.
    fn turn(
        &mut self,
        work: &Work<'_>,
        plan: &Self::Plan,
        part: TurnedPart,
        rows: &mut Self::Rows,
    ) -> Result<()>;

    /// Makes heads of keys and of values from what DeepSeek's latent vectors were expanded to: `expanded` has for each head
    /// the plain part of its key and its value, `turned` has the other part of the key, which all heads share.
    fn join_latent(
        &mut self,
        shape: &AttentionShape,
        expanded: &Self::Rows,
        turned: &Self::Rows,
        keys: &mut Self::Rows,
        values: &mut Self::Rows,
    ) -> Result<()>;

    /// Takes apart queries, keys and values that lie head by head: of each head first its query, then its key, then its value.
    fn split_heads(
        &mut self,
        shape: &AttentionShape,
        fused: &Self::Rows,
        parts: [&mut Self::Rows; 3],
    ) -> Result<()>;

    /// Puts keys and values of all rows into the cache, then mixes values for the queries of each span.
    #[expect(
        clippy::too_many_arguments,
        reason = "three inputs, one output, and what the step is"
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

    /// `gate` becomes `activation(gate) · up`.
    fn gate(
        &mut self,
        activation: Activation,
        gate: &mut Self::Rows,
        up: &Self::Rows,
    ) -> Result<()>;

    /// Each number becomes its activation.
    fn activate(&mut self, activation: Activation, rows: &mut Self::Rows) -> Result<()>;

    /// `sum` becomes `sum + factor · part`.
    fn add(&mut self, factor: f32, part: &Self::Rows, sum: &mut Self::Rows) -> Result<()>;

    /// Rows of nothing but zeros.
    fn zeros(&mut self, count: usize, width: usize, output: &mut Self::Rows) -> Result<()>;

    /// The rows with these numbers, in this order.
    fn pick(&mut self, input: &Self::Rows, rows: &[usize], output: &mut Self::Rows) -> Result<()>;

    /// Adds each row of `part`, multiplied by its factor, to the row of `sum` that has its number. No number comes twice.
    fn add_picked(
        &mut self,
        part: &Self::Rows,
        rows: &[usize],
        factors: &[f32],
        sum: &mut Self::Rows,
    ) -> Result<()>;

    /// Numbers of all rows, on the host.
    fn read(&mut self, rows: &Self::Rows, numbers: &mut Vec<f32>) -> Result<()>;

    /// Rows from numbers on the host.
    fn write(&mut self, numbers: &[f32], width: usize, rows: &mut Self::Rows) -> Result<()>;
}
