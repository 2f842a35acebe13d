//! The network of every decoder that the engine serves: a step in, hidden states and logits out, and the pages of keys
//! and values between steps.
//!
//! There is one flow of a block ([`block`]); what distinguishes families is data ([`crate::spec`]). candle-transformers has
//! a copy of the network for each family, each for sequences of equal length with a cache of its own; none takes rows of many
//! sequences and pages. A test holds ours and its Llama equal.

mod attention;
mod block;
mod check;
mod compute;
mod feed_forward;
mod low_rank;
mod native;
mod place;
mod plain;
mod rope;
mod route;
mod sizes;
mod stage;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
mod weights;

pub(crate) use low_rank::{AdapterTensors, LowRank};
pub(crate) use place::{Placement, Room, divide};
pub(crate) use sizes::Sizes;
pub(crate) use weights::Tensors;

use crate::error::EngineError;
use crate::files::ModelFiles;
use crate::kernels::{Pool, Precision};
use crate::spec::Spec;
use crate::step::{AdapterNumber, Page, Step};
use crate::stored::Encoding;
use candle_core::{DType, Device, Result};
use check::Bounds;
use compute::Work;
use native::Native;
use plain::Plain;
use rope::{Angles, Frequencies};
use stage::{Plans, Share, Stage, StageOn};
use std::ops::Range;
use std::sync::Arc;

/// Hidden states of the wanted rows of a step, after the last norm: what the head makes logits of, what contrastive search
/// compares, and what embeddings pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Hidden {
    numbers: Vec<f32>,
    width: usize,
}

impl Hidden {
    pub fn len(&self) -> usize {
        self.numbers.len().checked_div(self.width).unwrap_or(0)
    }

    pub fn row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.width..][..self.width]
    }
}

/// A decoder on its devices.
///
/// Where blocks lie on several devices they are pipelined: one device after another computes its blocks, and hidden states
/// move between them over the host. There is no tensor parallelism; in a step all devices but one wait. What is gained is
/// memory.
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

/// What a decoder is loaded for.
pub(crate) struct Resources {
    /// Pages of the KV cache, allocated at once.
    pub pages: usize,
    /// Longest sequence that is served.
    pub context_tokens: usize,
    /// The threads that compute on the CPU.
    pub pool: Arc<Pool>,
    /// Of keys and values on the CPU.
    pub cache: Precision,
}

/// What computes on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cpu {
    /// This crate's kernels.
    Native,
    /// candle in F32, as a reference.
    #[cfg(test)]
    Plain,
    /// candle, with the types that it computes with on a GPU.
    #[cfg(test)]
    AsOnGpu,
}

/// Keys and values are kept in BF16 on a GPU, unless the model's numbers are F32.
fn cache_type(tensors: &dyn Tensors) -> std::result::Result<DType, EngineError> {
    let embedding = tensors.tensor("model.embed_tokens.weight")?;
    let exact = embedding.is_some_and(|embedding| embedding.encoding == Encoding::F32);
    Ok(if exact { DType::F32 } else { DType::BF16 })
}

fn stage(
    device: &Device,
    plans: &Plans<'_>,
    share: &Share,
    resources: &Resources,
    cpu: Cpu,
) -> std::result::Result<Box<dyn Stage>, EngineError> {
    Ok(match (device, cpu) {
        (Device::Cpu, Cpu::Native) => {
            let native = Native::new(Arc::clone(&resources.pool), resources.cache);
            Box::new(StageOn::load(native, plans, share)?)
        }
        #[cfg(test)]
        (Device::Cpu, Cpu::Plain) => Box::new(StageOn::load(Plain::reference(), plans, share)?),
        _ => {
            let plain = Plain::new(device.clone(), cache_type(plans.tensors)?);
            Box::new(StageOn::load(plain, plans, share)?)
        }
    })
}

impl Decoder {
    /// Takes the model's tensors onto their devices. `taken` gets the bytes of each tensor, and ends the load by an error.
    ///
    /// # Errors
    /// A missing tensor, a shape that contradicts the spec, memory that does not suffice, or what `taken` says.
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
        Self::of(
            spec,
            files,
            &placement.shares(),
            resources,
            taken,
            Cpu::Native,
        )
    }

    fn of(
        spec: &Spec,
        tensors: &dyn Tensors,
        shares: &[(&Device, Share)],
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
            targets: low_rank::Targets::of(spec),
            hidden: spec.hidden,
            logit_cap: spec.logit_cap,
            logit_factor: spec.logit_factor,
        })
    }

    /// Computes all rows of a step and puts their keys and values into its pages. `hidden` becomes the wanted rows, in their
    /// order; its memory is used again.
    ///
    /// # Errors
    /// When the step is not sound (then nothing was computed), or a device fails.
    pub fn forward(&mut self, step: &Step, hidden: &mut Hidden) -> Result<()> {
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

    /// Logits of some rows of hidden states: `rows × vocabulary` numbers behind each other. Memory is used again.
    ///
    /// # Errors
    /// When there are no such rows, or a device fails.
    pub fn logits(
        &mut self,
        hidden: &Hidden,
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
    /// When there is no such page, or a device fails.
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

    /// Takes an adapter, for spans that name its number.
    ///
    /// # Errors
    /// What of it does not fit to the model, or when a device has no memory for it; then it has none of it.
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

    /// Forgets an adapter; no step names it any more.
    pub fn drop_adapter(&mut self, number: AdapterNumber) {
        for stage in &mut self.stages {
            stage.drop_adapter(number);
        }
    }

    /// Gives the KV cache and working memory back, and weights that were copied to a GPU; what was in the pages is lost.
    ///
    /// # Errors
    /// When a device fails.
    pub fn sleep(&mut self) -> Result<()> {
        self.between = Vec::new();
        self.stages.iter_mut().try_for_each(|stage| stage.sleep())
    }

    /// Takes again what [`sleep`](Self::sleep) gave back.
    ///
    /// # Errors
    /// When there is no memory for weights or the cache.
    pub fn wake(&mut self) -> Result<()> {
        self.stages.iter_mut().try_for_each(|stage| stage.wake())
    }

    /// Bytes of one page of the KV cache, in all layers.
    pub fn page_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.page_bytes()).sum()
    }

    /// Bytes that the weights take: on the CPU those of the mapped files.
    pub fn weights_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.weights_bytes()).sum()
    }

    /// Numbers of one row of logits.
    pub fn vocabulary(&self) -> usize {
        self.bounds.vocabulary
    }
}
