//! Owns the blocks that lie on one device behind each other, with their cache and their memory. Never knows other devices:
//! hidden states come in from the host and go out to it.

use super::attention::shape;
use super::block::{Block, Buffers};
use super::compute::{AttentionShape, Compute, Work};
use super::weights::{Loader, Table, Tensors};
use crate::error::EngineError;
use crate::spec::Spec;
use crate::step::Page;
use candle_core::Result;
use std::cell::Cell;
use std::ops::Range;

/// Which parts of a decoder a stage has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    pub embedding: bool,
    pub blocks: Range<usize>,
    pub head: bool,
}

/// A stage, whatever computes it.
pub(super) trait Stage: Send {
    fn weights_bytes(&self) -> u64;
    fn page_bytes(&self) -> u64;
    fn copy_page(&mut self, from: Page, to: Page) -> Result<()>;
    /// Gives the cache and all working memory back.
    fn sleep(&mut self) -> Result<()>;
    /// Takes the cache again, where it was given back.
    fn wake(&mut self) -> Result<()>;
    /// Begins a step with the embedding of its tokens.
    fn embed(&mut self, work: &Work<'_>) -> Result<()>;
    /// Begins a step with the hidden states that the stage before gave out.
    fn take(&mut self, hidden: &[f32]) -> Result<()>;
    fn run(&mut self, work: &Work<'_>) -> Result<()>;
    fn give(&mut self, hidden: &mut Vec<f32>) -> Result<()>;
    /// Ends a step: the wanted rows, normed.
    fn finish(&mut self, work: &Work<'_>, hidden: &mut Vec<f32>) -> Result<()>;
    /// Logits of normed rows, as the head gives them.
    fn logits(&mut self, hidden: &[f32], logits: &mut Vec<f32>) -> Result<()>;
}

/// What a stage is loaded from and for.
pub(super) struct Plans<'a> {
    pub spec: &'a Spec,
    pub tensors: &'a dyn Tensors,
    pub pages: usize,
    pub taken: &'a dyn Fn(u64) -> std::result::Result<(), EngineError>,
}

pub(super) struct StageOn<C: Compute> {
    compute: C,
    hidden_width: usize,
    embedding: Option<Table>,
    embedded: Vec<f32>,
    embedding_factor: f32,
    blocks: Vec<Block<C>>,
    caches: Vec<C::Cache>,
    pages: usize,
    shapes: Vec<AttentionShape>,
    head: Option<Head<C>>,
    plan: C::Plan,
    hidden: C::Rows,
    picked: C::Rows,
    normed: C::Rows,
    logits: C::Rows,
    buffers: Buffers<C>,
    weights_bytes: u64,
}

struct Head<C: Compute> {
    norm: C::Vector,
    epsilon: f32,
    matrix: C::Matrix,
}

impl<C: Compute> StageOn<C> {
    pub fn load(
        compute: C,
        plans: &Plans<'_>,
        share: &Share,
    ) -> std::result::Result<Self, EngineError> {
        let spec = plans.spec;
        let loader = Loader {
            tensors: plans.tensors,
            compute: &compute,
            taken: plans.taken,
            bytes: Cell::new(0),
        };
        let (rows, width) = (spec.vocabulary, spec.hidden);
        let embedding = if share.embedding {
            let counted = !(share.head && spec.ties_head);
            Some(loader.table("model.embed_tokens", rows, width, counted)?)
        } else {
            None
        };
        let mut blocks = Vec::new();
        let mut caches = Vec::new();
        let mut shapes = Vec::new();
        for index in share.blocks.clone() {
            blocks.push(Block::load(&loader, spec, index, &spec.blocks[index])?);
            shapes.push(shape(spec, &spec.blocks[index]));
        }
        for shape in &shapes {
            let cache = compute.cache(plans.pages, shape).map_err(|error| {
                EngineError::load(format!(
                    "no memory for {} pages of the KV cache ({error}); give the cache less",
                    plans.pages
                ))
            })?;
            caches.push(cache);
        }
        let head = if share.head {
            Some(Head {
                norm: loader.norm("model.norm", spec.hidden, spec.norm.adds_one)?,
                epsilon: spec.norm.epsilon,
                matrix: if spec.ties_head {
                    loader.matrix("model.embed_tokens", rows, width, false)?
                } else {
                    loader.matrix("lm_head", rows, width, spec.head_bias)?
                },
            })
        } else {
            None
        };
        let weights_bytes = loader.bytes.get();
        Ok(Self {
            compute,
            hidden_width: spec.hidden,
            embedding,
            embedded: Vec::new(),
            embedding_factor: spec.embedding_factor,
            blocks,
            caches,
            pages: plans.pages,
            shapes,
            head,
            plan: C::Plan::default(),
            hidden: C::Rows::default(),
            picked: C::Rows::default(),
            normed: C::Rows::default(),
            logits: C::Rows::default(),
            buffers: Buffers::default(),
            weights_bytes,
        })
    }
}

impl<C: Compute> Stage for StageOn<C> {
    fn weights_bytes(&self) -> u64 {
        self.weights_bytes
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
        if !self.compute.has_weights_on_host() {
            candle_core::bail!(
                "weights on a GPU are not moved to the host's memory; let this model be stopped instead"
            );
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
        Ok(())
    }

    fn wake(&mut self) -> Result<()> {
        if self.caches.is_empty() {
            let caches = self.shapes.iter();
            self.caches = caches
                .map(|shape| self.compute.cache(self.pages, shape))
                .collect::<Result<_>>()?;
        }
        Ok(())
    }

    fn embed(&mut self, work: &Work<'_>) -> Result<()> {
        let Some(embedding) = &self.embedding else {
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
        self.compute
            .write(&self.embedded, self.hidden_width, &mut self.hidden)
    }

    fn take(&mut self, hidden: &[f32]) -> Result<()> {
        self.compute
            .write(hidden, self.hidden_width, &mut self.hidden)
    }

    fn run(&mut self, work: &Work<'_>) -> Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        self.compute.plan(work, &self.shapes, &mut self.plan)?;
        for (block, cache) in self.blocks.iter().zip(&mut self.caches) {
            block.forward(
                &mut self.compute,
                (work, &self.plan),
                cache,
                &mut self.buffers,
                &mut self.hidden,
            )?;
        }
        Ok(())
    }

    fn give(&mut self, hidden: &mut Vec<f32>) -> Result<()> {
        self.compute.read(&self.hidden, hidden)
    }

    fn finish(&mut self, work: &Work<'_>, hidden: &mut Vec<f32>) -> Result<()> {
        let Some(head) = &self.head else {
            candle_core::bail!("this part of the model has no head");
        };
        self.compute
            .pick(&self.hidden, &work.step.wanted, &mut self.picked)?;
        self.compute
            .norm(&head.norm, head.epsilon, &self.picked, &mut self.normed)?;
        self.compute.read(&self.normed, hidden)
    }

    fn logits(&mut self, hidden: &[f32], logits: &mut Vec<f32>) -> Result<()> {
        let Some(head) = &self.head else {
            candle_core::bail!("this part of the model has no head");
        };
        self.compute
            .write(hidden, self.hidden_width, &mut self.normed)?;
        self.compute
            .linear(&self.normed, [&head.matrix], [&mut self.logits])?;
        self.compute.read(&self.logits, logits)
    }
}
