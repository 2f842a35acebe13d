//! The network of every decoder that the engine serves: takes a step and returns hidden states and logits; pages of keys and values
//! persist between steps.
//!
//! There is one flow of a block ([`block`]); the differences between families are data ([`crate::spec`]). candle-transformers has a
//! copy of the network for each family, for sequences of equal length with a cache per model; none of them takes rows of many
//! sequences and pages. A test compares this network with its Llama. [`crate::library`] computes further families with it.

mod attention;
mod block;
mod candle_compute;
mod check;
mod compute;
mod feed_forward;
mod low_rank;
mod native;
mod placement;
mod rope;
mod route;
mod sizes;
mod stage;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod vectors;
mod weights;

pub(crate) use low_rank::{AdapterTensors, LowRank};
pub(crate) use placement::{Placement, Room, divide};
pub(crate) use sizes::Sizes;
pub(crate) use weights::Tensors;

use crate::error::EngineError;
use crate::files::ModelFiles;
use crate::kernels::{Pool, Precision};
use crate::spec::Spec;
use crate::step::{AdapterNumber, Page, Step};
use crate::stored_tensor::Encoding;
use candle_compute::CandleCompute;
use candle_core::{DType, Device, Result};
use check::Bounds;
use compute::Work;
use native::Native;
use rope::{Angles, Frequencies};
use stage::{Plans, Stage, StageOn, StageShare};
use std::ops::Range;
use std::sync::Arc;

/// Hidden states of the requested rows of a step, after the last norm. The head turns them into logits, contrastive search compares
/// them, and embeddings pool them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HiddenStates {
    numbers: Vec<f32>,
    width: usize,
}

impl HiddenStates {
    /// Takes rows of `width` numbers, one after another.
    pub fn new(numbers: Vec<f32>, width: usize) -> Self {
        Self { numbers, width }
    }

    pub fn len(&self) -> usize {
        self.numbers.len().checked_div(self.width).unwrap_or(0)
    }

    pub fn row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.width..][..self.width]
    }
}

/// A decoder on one or more devices.
///
/// Blocks on several devices form a pipeline: one device after another computes its blocks, and hidden states move between them
/// through host memory. Tensor parallelism is not implemented: in each step, all devices but one wait. The benefit is memory, not
/// speed.
pub(crate) struct Decoder {
    stages: Vec<Box<dyn Stage>>,
    frequencies: Vec<Frequencies>,
    angles: Vec<Angles>,
    between: Vec<f32>,
    bounds: Bounds,
    targets: low_rank::Targets,
    hidden: usize,
    logit_cap: Option<f32>,
    logit_factor: f32,
}

/// The resources a decoder is loaded with.
pub(crate) struct Resources {
    /// Number of pages of the KV cache, all allocated on loading.
    pub pages: usize,
    /// Maximum length of a sequence.
    pub context_tokens: usize,
    /// The CPU's compute threads.
    pub pool: Arc<Pool>,
    /// Precision of keys and values on the CPU.
    pub cache: Precision,
}

/// The implementation to use on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cpu {
    /// This crate's kernels.
    Native,
    /// candle in F32, as a reference.
    #[cfg(test)]
    Plain,
    /// candle, with the types it uses on a GPU.
    #[cfg(test)]
    AsOnGpu,
}

/// On GPUs, keys and values are cached in BF16, unless the model's weights are F32.
fn cache_type(tensors: &dyn Tensors) -> std::result::Result<DType, EngineError> {
    let embedding = tensors.tensor("model.embed_tokens.weight")?;
    let exact = embedding.is_some_and(|embedding| embedding.encoding == Encoding::F32);
    Ok(if exact { DType::F32 } else { DType::BF16 })
}

fn stage(
    device: &Device,
    plans: &Plans<'_>,
    share: &StageShare,
    resources: &Resources,
    cpu: Cpu,
) -> std::result::Result<Box<dyn Stage>, EngineError> {
    Ok(match (device, cpu) {
        (Device::Cpu, Cpu::Native) => {
            let native = Native::new(Arc::clone(&resources.pool), resources.cache);
            Box::new(StageOn::load(native, plans, share)?)
        }
        #[cfg(test)]
        (Device::Cpu, Cpu::Plain) => {
            Box::new(StageOn::load(CandleCompute::reference(), plans, share)?)
        }
        _ => {
            let plain = CandleCompute::new(device.clone(), cache_type(plans.tensors)?);
            Box::new(StageOn::load(plain, plans, share)?)
        }
    })
}

impl Decoder {
    /// Loads the model's tensors onto their devices. `taken` is called with the size of each tensor, and may abort the load with an
    /// error.
    ///
    /// # Errors
    /// If a tensor is missing, a shape contradicts the spec, memory is insufficient, or `taken` fails.
    pub fn load(
        files: &ModelFiles,
        placement: &Placement,
        resources: &Resources,
        taken: &dyn Fn(u64) -> std::result::Result<(), EngineError>,
    ) -> std::result::Result<Self, EngineError> {
        let spec = files.spec()?;
        if placement.blocks.len() != spec.blocks.len() {
            return Err(EngineError::load(format!(
                "devices are given for {} layers, and the model has {}",
                placement.blocks.len(),
                spec.blocks.len()
            )));
        }
        Self::new(
            spec,
            files,
            &placement.shares(),
            resources,
            taken,
            Cpu::Native,
        )
    }

    fn new(
        spec: &Spec,
        tensors: &dyn Tensors,
        shares: &[(&Device, StageShare)],
        resources: &Resources,
        taken: &dyn Fn(u64) -> std::result::Result<(), EngineError>,
        cpu: Cpu,
    ) -> std::result::Result<Self, EngineError> {
        check::spec(spec).map_err(|problem| {
            EngineError::model(
                tensors.place(),
                problem,
                "the configuration contradicts itself: download the model again",
            )
        })?;
        let plans = Plans {
            spec,
            tensors,
            pages: resources.pages,
            taken,
        };
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        for (device, share) in shares {
            stages.push(stage(device, &plans, share, resources, cpu)?);
        }
        let frequencies: Vec<_> = spec
            .ropes
            .iter()
            .map(|rope| Frequencies::new(rope, resources.context_tokens))
            .collect();
        Ok(Self {
            stages,
            angles: vec![Angles::default(); frequencies.len()],
            frequencies,
            between: Vec::new(),
            bounds: Bounds {
                vocabulary: spec.vocabulary,
                pages: resources.pages,
                context_tokens: resources.context_tokens,
            },
            targets: low_rank::Targets::new(spec),
            hidden: spec.hidden,
            logit_cap: spec.logit_cap,
            logit_factor: spec.logit_factor,
        })
    }

    /// Computes all rows of a step and stores their keys and values in its pages. Writes the requested rows to `hidden`, in order,
    /// reusing its memory.
    ///
    /// # Errors
    /// If the step is invalid, in which case nothing was computed, or a device fails.
    pub fn forward(&mut self, step: &Step, hidden: &mut HiddenStates) -> Result<()> {
        self.bounds.check(step).map_err(candle_core::Error::msg)?;
        hidden.width = self.hidden;
        for (angles, frequencies) in self.angles.iter_mut().zip(&self.frequencies) {
            angles.fill(frequencies, step);
        }
        let work = Work {
            step,
            angles: &self.angles,
        };
        let last = self.stages.len() - 1;
        for (index, stage) in self.stages.iter_mut().enumerate() {
            if index == 0 {
                stage.embed(&work)?;
            } else {
                stage.take(&self.between)?;
            }
            stage.run(&work)?;
            if index < last {
                stage.give(&mut self.between)?;
            } else {
                hidden.numbers.clear();
                if !step.wanted.is_empty() {
                    stage.finish(&work, &mut hidden.numbers)?;
                }
            }
        }
        Ok(())
    }

    /// Computes the logits of a range of hidden rows: `rows × vocabulary` numbers, row by row, reusing the memory.
    ///
    /// # Errors
    /// If the rows do not exist, or a device fails.
    pub fn logits(
        &mut self,
        hidden: &HiddenStates,
        rows: Range<usize>,
        logits: &mut Vec<f32>,
    ) -> Result<()> {
        let range = rows.start * self.hidden..rows.end * self.hidden;
        let Some(numbers) = hidden.numbers.get(range) else {
            candle_core::bail!("rows {rows:?} are not among {}", hidden.len());
        };
        logits.clear();
        if numbers.is_empty() {
            return Ok(());
        }
        if let Some(stage) = self.stages.last_mut() {
            stage.logits(numbers, logits)?;
        }
        if self.logit_factor != 1.0 {
            for logit in logits.iter_mut() {
                *logit *= self.logit_factor;
            }
        }
        if let Some(cap) = self.logit_cap {
            for logit in logits.iter_mut() {
                *logit = cap * (*logit / cap).tanh();
            }
        }
        Ok(())
    }

    /// Makes `to` a copy of `from` in all layers.
    ///
    /// # Errors
    /// If a page does not exist, or a device fails.
    pub fn copy_page(&mut self, from: Page, to: Page) -> Result<()> {
        for page in [from, to] {
            if page as usize >= self.bounds.pages {
                candle_core::bail!("page {page} is not among {}", self.bounds.pages);
            }
        }
        if from == to {
            return Ok(());
        }
        self.stages
            .iter_mut()
            .try_for_each(|stage| stage.copy_page(from, to))
    }

    /// Loads an adapter for spans that name its number.
    ///
    /// # Errors
    /// If the adapter does not fit the model, or a device runs out of memory; no part of it remains loaded then.
    pub fn put_adapter(
        &mut self,
        number: AdapterNumber,
        tensors: &Arc<AdapterTensors>,
    ) -> Result<()> {
        let tensors = &self.targets.named(tensors);
        self.targets
            .check(tensors)
            .map_err(candle_core::Error::msg)?;
        let mut stages = self.stages.iter_mut();
        let put = stages.try_for_each(|stage| stage.put_adapter(number, tensors));
        if put.is_err() {
            self.drop_adapter(number);
        }
        put
    }

    /// Unloads an adapter that no step uses anymore.
    pub fn drop_adapter(&mut self, number: AdapterNumber) {
        for stage in &mut self.stages {
            stage.drop_adapter(number);
        }
    }

    /// Frees the KV cache, working memory, and weights copied to a GPU. The contents of the pages are lost.
    ///
    /// # Errors
    /// If a device fails.
    pub fn sleep(&mut self) -> Result<()> {
        self.between = Vec::new();
        self.stages.iter_mut().try_for_each(|stage| stage.sleep())
    }

    /// Reallocates what [`sleep`](Self::sleep) freed.
    ///
    /// # Errors
    /// If memory for the weights or the cache is insufficient.
    pub fn wake(&mut self) -> Result<()> {
        self.stages.iter_mut().try_for_each(|stage| stage.wake())
    }

    /// Size of one page of the KV cache over all layers, in bytes.
    pub fn page_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.page_bytes()).sum()
    }

    /// Size of the weights in bytes; on the CPU, in mapped files.
    pub fn weights_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.weights_bytes()).sum()
    }

    /// Length of one row of logits.
    pub fn vocabulary(&self) -> usize {
        self.bounds.vocabulary
    }
}
