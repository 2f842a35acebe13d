//! The consecutive blocks on one device, with their cache and working memory. Hidden states enter and leave through the host.

use super::attention::shape;
use super::block::{Block, Buffers};
use super::compute::{AttentionShape, Compute, Work};
use super::low_rank::{AdapterTensors, BlockAdapter, groups};
use super::weights::{HostTensors, Loader, Table, TensorRecorder, Tensors};
use crate::error::EngineError;
use crate::spec::Spec;
use crate::step::{AdapterNumber, Page};
use candle_core::Result;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The parts of a decoder in a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StageShare {
    pub embedding: bool,
    pub blocks: Range<usize>,
    pub head: bool,
}

/// A stage on any kind of device.
pub(super) trait Stage: Send {
    fn weights_bytes(&self) -> u64;
    fn page_bytes(&self) -> u64;
    fn copy_page(&mut self, from: Page, to: Page) -> Result<()>;
    /// Frees the cache, all working memory, and weights copied to the device.
    fn sleep(&mut self) -> Result<()>;
    /// Reallocates what `sleep` freed, and copies weights from the host again.
    fn wake(&mut self) -> Result<()>;
    /// Loads the adapter's parts for this stage's blocks; they were checked before.
    fn put_adapter(&mut self, number: AdapterNumber, tensors: &Arc<AdapterTensors>) -> Result<()>;
    fn drop_adapter(&mut self, number: AdapterNumber);
    /// Begins a step with the embedding of its tokens.
    fn embed(&mut self, work: &Work<'_>) -> Result<()>;
    /// Begins a step with the hidden states from the previous stage.
    fn take(&mut self, hidden: &[f32]) -> Result<()>;
    fn run(&mut self, work: &Work<'_>) -> Result<()>;
    fn give(&mut self, hidden: &mut Vec<f32>) -> Result<()>;
    /// Ends a step: normalises the requested rows.
    fn finish(&mut self, work: &Work<'_>, hidden: &mut Vec<f32>) -> Result<()>;
    /// Computes the head's logits of normalised rows.
    fn logits(&mut self, hidden: &[f32], logits: &mut Vec<f32>) -> Result<()>;
}

/// The inputs for loading a stage.
pub(super) struct Plans<'a> {
    pub spec: &'a Spec,
    pub tensors: &'a dyn Tensors,
    pub pages: usize,
    pub taken: &'a dyn Fn(u64) -> std::result::Result<(), EngineError>,
}

pub(super) struct StageOn<C: Compute> {
    compute: C,
    hidden_width: usize,
    weights: Weights<C>,
    /// Source for copying weights to the device again; `None` if they are used in place.
    source: Option<Source>,
    embedded: Vec<f32>,
    embedding_factor: f32,
    caches: Vec<C::Cache>,
    pages: usize,
    shapes: Vec<AttentionShape>,
    plan: C::Plan,
    hidden: C::Rows,
    picked: C::Rows,
    normed: C::Rows,
    logits: C::Rows,
    buffers: Buffers<C>,
    adapters: BTreeMap<AdapterNumber, StageAdapter<C>>,
    /// The spec for loading adapters.
    spec: Spec,
    first_block: usize,
}

struct StageAdapter<C: Compute> {
    tensors: Arc<AdapterTensors>,
    /// Empty while the device has no weights.
    blocks: Vec<BlockAdapter<C>>,
}

struct Head<C: Compute> {
    norm: C::Norm,
    epsilon: f32,
    matrix: C::Matrix,
}

/// The weights of a stage.
struct Weights<C: Compute> {
    embedding: Option<Table>,
    /// Position embeddings, added to the token embedding.
    positions: Option<Table>,
    blocks: Vec<Block<C>>,
    head: Option<Head<C>>,
    bytes: u64,
    /// The weights are on the device.
    are_here: bool,
}

/// Source of the weights on a device, for copying them again after sleep.
struct Source {
    spec: Spec,
    share: StageShare,
    tensors: HostTensors,
}

impl<C: Compute> Weights<C> {
    fn load(
        compute: &C,
        spec: &Spec,
        share: &StageShare,
        tensors: &dyn Tensors,
        taken: &dyn Fn(u64) -> std::result::Result<(), EngineError>,
    ) -> std::result::Result<Self, EngineError> {
        let loader = Loader {
            tensors,
            compute,
            taken,
            bytes: Cell::new(0),
        };
        let (rows, width) = (spec.vocabulary, spec.hidden);
        let embedding = if share.embedding {
            let counted = !(share.head && spec.ties_head);
            Some(loader.table("model.embed_tokens", rows, width, counted)?)
        } else {
            None
        };
        let positions = match spec.learned_positions {
            Some(rows) if share.embedding => {
                Some(loader.table("model.embed_positions", rows, width, true)?)
            }
            _ => None,
        };
        let blocks = share
            .blocks
            .clone()
            .map(|index| Block::load(&loader, spec, index, &spec.blocks[index]))
            .collect::<std::result::Result<_, _>>()?;
        let head = if share.head {
            Some(Head {
                norm: loader.hidden_norm("model.norm", spec)?,
                epsilon: spec.norm.epsilon,
                matrix: loader.head(spec)?,
            })
        } else {
            None
        };
        Ok(Self {
            embedding,
            positions,
            blocks,
            head,
            bytes: loader.bytes.get(),
            are_here: true,
        })
    }
}

impl<C: Compute> StageOn<C> {
    pub fn load(
        compute: C,
        plans: &Plans<'_>,
        share: &StageShare,
    ) -> std::result::Result<Self, EngineError> {
        let spec = plans.spec;
        let noting = TensorRecorder::new(plans.tensors);
        let weights = Weights::load(&compute, spec, share, &noting, plans.taken)?;
        let source = (!compute.has_weights_on_host()).then(|| Source {
            spec: spec.clone(),
            share: share.clone(),
            tensors: noting.kept(),
        });
        let blocks = spec.blocks[share.blocks.clone()].iter();
        let shapes: Vec<_> = blocks.map(|block| shape(spec, block)).collect();
        let caches = shapes.iter().map(|shape| {
            compute.cache(plans.pages, shape).map_err(|error| {
                EngineError::load(format!(
                    "no memory for {} pages of the KV cache ({error}); make the cache smaller",
                    plans.pages
                ))
            })
        });
        Ok(Self {
            caches: caches.collect::<std::result::Result<_, _>>()?,
            compute,
            hidden_width: spec.hidden,
            weights,
            source,
            embedded: Vec::new(),
            embedding_factor: spec.embedding_factor,
            pages: plans.pages,
            shapes,
            plan: C::Plan::default(),
            hidden: C::Rows::default(),
            picked: C::Rows::default(),
            normed: C::Rows::default(),
            logits: C::Rows::default(),
            buffers: Buffers::default(),
            adapters: BTreeMap::new(),
            spec: spec.clone(),
            first_block: share.blocks.start,
        })
    }

    fn adapter_blocks(&self, tensors: &AdapterTensors) -> Result<Vec<BlockAdapter<C>>> {
        let blocks = self.first_block..self.first_block + self.shapes.len();
        blocks
            .map(|index| BlockAdapter::load(&self.compute, &self.spec, index, tensors))
            .collect()
    }
}

impl<C: Compute> Stage for StageOn<C> {
    fn weights_bytes(&self) -> u64 {
        self.weights.bytes
    }

    fn page_bytes(&self) -> u64 {
        self.shapes
            .iter()
            .map(|shape| self.compute.page_bytes(shape))
            .sum()
    }

    fn copy_page(&mut self, from: Page, to: Page) -> Result<()> {
        for cache in &mut self.caches {
            self.compute.copy_page(cache, from, to)?;
        }
        Ok(())
    }

    fn sleep(&mut self) -> Result<()> {
        if self.source.is_some() {
            self.weights.blocks = Vec::new();
            self.weights.head = None;
            self.weights.are_here = false;
            for adapter in self.adapters.values_mut() {
                adapter.blocks = Vec::new();
            }
        }
        self.caches = Vec::new();
        self.embedded = Vec::new();
        self.plan = C::Plan::default();
        for rows in [
            &mut self.hidden,
            &mut self.picked,
            &mut self.normed,
            &mut self.logits,
        ] {
            *rows = C::Rows::default();
        }
        self.buffers = Buffers::default();
        self.compute.settle()
    }

    fn wake(&mut self) -> Result<()> {
        if let Some(source) = self.source.as_ref().filter(|_| !self.weights.are_here) {
            let (share, tensors) = (&source.share, &source.tensors);
            self.weights = Weights::load(&self.compute, &source.spec, share, tensors, &|_| Ok(()))
                .map_err(candle_core::Error::msg)?;
            let numbers: Vec<AdapterNumber> = self.adapters.keys().copied().collect();
            for number in numbers {
                let tensors = Arc::clone(&self.adapters[&number].tensors);
                self.put_adapter(number, &tensors)?;
            }
        }
        if self.caches.is_empty() {
            let caches = self.shapes.iter();
            self.caches = caches
                .map(|shape| self.compute.cache(self.pages, shape))
                .collect::<Result<_>>()?;
        }
        Ok(())
    }

    fn put_adapter(&mut self, number: AdapterNumber, tensors: &Arc<AdapterTensors>) -> Result<()> {
        let adapter = StageAdapter {
            blocks: self.adapter_blocks(tensors)?,
            tensors: Arc::clone(tensors),
        };
        self.adapters.insert(number, adapter);
        Ok(())
    }

    fn drop_adapter(&mut self, number: AdapterNumber) {
        self.adapters.remove(&number);
    }

    fn embed(&mut self, work: &Work<'_>) -> Result<()> {
        let Some(embedding) = &self.weights.embedding else {
            candle_core::bail!("this part of the model has no embedding");
        };
        let tokens = &work.step.tokens;
        self.embedded.resize(tokens.len() * self.hidden_width, 0.0);
        let rows = self.embedded.chunks_exact_mut(self.hidden_width);
        for (token, row) in tokens.iter().zip(rows) {
            embedding.row(*token, row)?;
        }
        if self.embedding_factor != 1.0 {
            for number in &mut self.embedded {
                *number *= self.embedding_factor;
            }
        }
        if let Some(table) = &self.weights.positions {
            let mut learned = vec![0.0; self.hidden_width];
            let spans = work.step.spans.iter();
            let positions = spans.flat_map(|span| span.past..span.past + span.count);
            let rows = self.embedded.chunks_exact_mut(self.hidden_width);
            for (position, row) in positions.zip(rows) {
                table.row(position as u32, &mut learned)?;
                for (number, learned) in row.iter_mut().zip(&learned) {
                    *number += learned;
                }
            }
        }
        self.compute
            .write(&self.embedded, self.hidden_width, &mut self.hidden)
    }

    fn take(&mut self, hidden: &[f32]) -> Result<()> {
        self.compute
            .write(hidden, self.hidden_width, &mut self.hidden)
    }

    fn run(&mut self, work: &Work<'_>) -> Result<()> {
        if self.weights.blocks.is_empty() {
            return Ok(());
        }
        self.compute.plan(work, &self.shapes, &mut self.plan)?;
        let groups = groups(work.step);
        let mut adapters = Vec::with_capacity(groups.len());
        for (number, rows) in &groups {
            let Some(adapter) = self.adapters.get(number) else {
                candle_core::bail!("the adapter of a request is not loaded");
            };
            adapters.push((rows.as_slice(), &adapter.blocks));
        }
        let blocks = self.weights.blocks.iter().zip(&mut self.caches);
        for (nth, (block, cache)) in blocks.enumerate() {
            let adapted = adapters.iter().map(|(rows, blocks)| (*rows, &blocks[nth]));
            let adapted: Vec<(&[usize], &BlockAdapter<C>)> = adapted.collect();
            block.forward(
                &mut self.compute,
                (work, &self.plan),
                cache,
                &mut self.buffers,
                &adapted,
                &mut self.hidden,
            )?;
        }
        Ok(())
    }

    fn give(&mut self, hidden: &mut Vec<f32>) -> Result<()> {
        self.compute.read(&self.hidden, hidden)
    }

    fn finish(&mut self, work: &Work<'_>, hidden: &mut Vec<f32>) -> Result<()> {
        let Some(head) = &self.weights.head else {
            candle_core::bail!("this part of the model has no head");
        };
        self.compute
            .pick(&self.hidden, &work.step.wanted, &mut self.picked)?;
        self.compute
            .norm(&head.norm, head.epsilon, &self.picked, &mut self.normed)?;
        self.compute.read(&self.normed, hidden)
    }

    fn logits(&mut self, hidden: &[f32], logits: &mut Vec<f32>) -> Result<()> {
        let Some(head) = &self.weights.head else {
            candle_core::bail!("this part of the model has no head");
        };
        self.compute
            .write(hidden, self.hidden_width, &mut self.normed)?;
        self.compute
            .linear(&self.normed, [&head.matrix], [&mut self.logits])?;
        self.compute.read(&self.logits, logits)
    }
}
