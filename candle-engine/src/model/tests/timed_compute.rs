//! Operations that measure their own duration, to profile a step.

use super::super::compute::{AttentionShape, Compute, TurnedPart, Work};
use crate::spec::Activation;
use crate::step::Page;
use crate::stored_tensor::StoredTensor;
use candle_core::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Total time and number of calls, by operation.
pub(super) type Times = Arc<Mutex<BTreeMap<&'static str, (Duration, usize)>>>;

pub(super) struct TimedCompute<C> {
    pub inner: C,
    pub times: Times,
}

impl<C> TimedCompute<C> {
    fn timed<T>(&mut self, name: &'static str, work: impl FnOnce(&mut C) -> T) -> T {
        #[expect(clippy::disallowed_methods, reason = "this is the measurement")]
        let start = Instant::now();
        let result = work(&mut self.inner);
        let mut times = self.times.lock().expect("no panic");
        let time = times.entry(name).or_default();
        time.0 += start.elapsed();
        time.1 += 1;
        result
    }
}

impl<C: Compute> Compute for TimedCompute<C> {
    type Rows = C::Rows;
    type Matrix = C::Matrix;
    type Norm = C::Norm;
    type Cache = C::Cache;
    type Plan = C::Plan;

    fn has_weights_on_host(&self) -> bool {
        self.inner.has_weights_on_host()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn matrix(&self, weights: &StoredTensor, bias: Option<&[f32]>) -> Result<C::Matrix> {
        self.inner.matrix(weights, bias)
    }

    fn matrix_bytes(&self, weights: &StoredTensor) -> u64 {
        self.inner.matrix_bytes(weights)
    }

    fn norm_weights(&self, weights: &[f32], bias: Option<&[f32]>) -> Result<C::Norm> {
        self.inner.norm_weights(weights, bias)
    }

    fn cache(&self, pages: usize, shape: &AttentionShape) -> Result<C::Cache> {
        self.inner.cache(pages, shape)
    }

    fn page_bytes(&self, shape: &AttentionShape) -> u64 {
        self.inner.page_bytes(shape)
    }

    fn copy_page(&mut self, cache: &mut C::Cache, from: Page, to: Page) -> Result<()> {
        self.inner.copy_page(cache, from, to)
    }

    fn plan(
        &mut self,
        work: &Work<'_>,
        attention: &[AttentionShape],
        plan: &mut C::Plan,
    ) -> Result<()> {
        self.timed("plan", |inner| inner.plan(work, attention, plan))
    }

    fn linear<const N: usize>(
        &mut self,
        input: &C::Rows,
        matrices: [&C::Matrix; N],
        outputs: [&mut C::Rows; N],
    ) -> Result<()> {
        self.timed("linear", |inner| inner.linear(input, matrices, outputs))
    }

    fn norm(
        &mut self,
        weights: &C::Norm,
        epsilon: f32,
        input: &C::Rows,
        output: &mut C::Rows,
    ) -> Result<()> {
        self.timed("norm", |inner| inner.norm(weights, epsilon, input, output))
    }

    fn norm_parts(&mut self, weights: &C::Norm, epsilon: f32, rows: &mut C::Rows) -> Result<()> {
        self.timed("norm", |inner| inner.norm_parts(weights, epsilon, rows))
    }

    fn add_and_norm(
        &mut self,
        part: (f32, &C::Rows),
        sum: &mut C::Rows,
        weights: &C::Norm,
        epsilon: f32,
        output: &mut C::Rows,
    ) -> Result<()> {
        self.timed("add and norm", |inner| {
            inner.add_and_norm(part, sum, weights, epsilon, output)
        })
    }

    fn turn(
        &mut self,
        work: &Work<'_>,
        plan: &C::Plan,
        part: TurnedPart,
        rows: &mut C::Rows,
    ) -> Result<()> {
        self.timed("turn", |inner| inner.turn(work, plan, part, rows))
    }

    fn join_latent(
        &mut self,
        shape: &AttentionShape,
        expanded: &C::Rows,
        turned: &C::Rows,
        keys: &mut C::Rows,
        values: &mut C::Rows,
    ) -> Result<()> {
        self.timed("join", |inner| {
            inner.join_latent(shape, expanded, turned, keys, values)
        })
    }

    fn split_heads(
        &mut self,
        shape: &AttentionShape,
        fused: &C::Rows,
        parts: [&mut C::Rows; 3],
    ) -> Result<()> {
        self.timed("split", |inner| inner.split_heads(shape, fused, parts))
    }

    fn attend(
        &mut self,
        work: &Work<'_>,
        plan: &C::Plan,
        shape: &AttentionShape,
        cache: &mut C::Cache,
        queries: &C::Rows,
        keys: &C::Rows,
        values: &C::Rows,
        output: &mut C::Rows,
    ) -> Result<()> {
        self.timed("attend", |inner| {
            inner.attend(work, plan, shape, cache, queries, keys, values, output)
        })
    }

    fn gate(&mut self, activation: Activation, gate: &mut C::Rows, up: &C::Rows) -> Result<()> {
        self.timed("gate", |inner| inner.gate(activation, gate, up))
    }

    fn activate(&mut self, activation: Activation, rows: &mut C::Rows) -> Result<()> {
        self.timed("activate", |inner| inner.activate(activation, rows))
    }

    fn add(&mut self, factor: f32, part: &C::Rows, sum: &mut C::Rows) -> Result<()> {
        self.timed("add", |inner| inner.add(factor, part, sum))
    }

    fn zeros(&mut self, count: usize, width: usize, output: &mut C::Rows) -> Result<()> {
        self.timed("zeros", |inner| inner.zeros(count, width, output))
    }

    fn pick(&mut self, input: &C::Rows, rows: &[usize], output: &mut C::Rows) -> Result<()> {
        self.timed("pick", |inner| inner.pick(input, rows, output))
    }

    fn add_picked(
        &mut self,
        part: &C::Rows,
        rows: &[usize],
        factors: &[f32],
        sum: &mut C::Rows,
    ) -> Result<()> {
        self.timed("add picked", |inner| {
            inner.add_picked(part, rows, factors, sum)
        })
    }

    fn read(&mut self, rows: &C::Rows, numbers: &mut Vec<f32>) -> Result<()> {
        self.timed("read", |inner| inner.read(rows, numbers))
    }

    fn write(&mut self, numbers: &[f32], width: usize, rows: &mut C::Rows) -> Result<()> {
        self.timed("write", |inner| inner.write(numbers, width, rows))
    }
}
