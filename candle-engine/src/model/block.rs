//! One block of a decoder: norms, attention, feed-forward part, and their additions to the residual stream.

use super::attention::{self, Attention};
use super::compute::{Compute, Work};
use super::feed_forward::{self, FeedForward};
use super::low_rank::AdaptedRows;
use super::weights::Loader;
use crate::error::EngineError;
use crate::spec::{BlockSpec, Norms, Spec};
use candle_core::Result;

pub(super) struct Block<C: Compute> {
    pub attention: Attention<C>,
    feed_forward: FeedForward<C>,
    before_attention: Option<C::Norm>,
    after_attention: Option<C::Norm>,
    before_feed_forward: Option<C::Norm>,
    after_feed_forward: Option<C::Norm>,
    /// The feed-forward part reads the block's input instead of the attention's output.
    is_parallel: bool,
    epsilon: f32,
    residual_factor: f32,
}

/// Working memory that the blocks share.
pub(super) struct Buffers<C: Compute> {
    normed: C::Rows,
    part: C::Rows,
    attention: attention::Buffers<C>,
    feed_forward: feed_forward::Buffers<C>,
}

impl<C: Compute> Default for Buffers<C> {
    fn default() -> Self {
        Self {
            normed: C::Rows::default(),
            part: C::Rows::default(),
            attention: attention::Buffers::default(),
            feed_forward: feed_forward::Buffers::default(),
        }
    }
}

impl<C: Compute> Block<C> {
    pub fn load(
        loader: &Loader<'_, C>,
        spec: &Spec,
        index: usize,
        block: &BlockSpec,
    ) -> std::result::Result<Self, EngineError> {
        let name = format!("model.layers.{index}");
        let norm = |part: &str| {
            let name = format!("{name}.{part}");
            loader.hidden_norm(&name, spec).map(Some)
        };
        let before = block.norms != Norms::After;
        let after = matches!(block.norms, Norms::After | Norms::BeforeAndAfter);
        // Llama names the second norm after the part it follows, not the part it precedes.
        let (after_attention, before_feed_forward) = match block.norms {
            Norms::Before | Norms::Parallel => (None, norm("post_attention_layernorm")?),
            Norms::Shared => (None, None),
            Norms::BeforeAndAfter => (
                norm("post_attention_layernorm")?,
                norm("pre_feedforward_layernorm")?,
            ),
            Norms::After => (norm("post_attention_layernorm")?, None),
        };
        Ok(Self {
            before_attention: if before {
                norm("input_layernorm")?
            } else {
                None
            },
            attention: Attention::load(loader, &format!("{name}.self_attn"), spec, block)?,
            after_attention,
            before_feed_forward,
            feed_forward: FeedForward::load(loader, &name, spec.hidden, &block.feed_forward)?,
            after_feed_forward: if after {
                norm("post_feedforward_layernorm")?
            } else {
                None
            },
            is_parallel: matches!(block.norms, Norms::Shared | Norms::Parallel),
            epsilon: spec.norm.epsilon,
            residual_factor: spec.residual_factor,
        })
    }

    pub fn forward(
        &self,
        compute: &mut C,
        (work, plan): (&Work<'_>, &C::Plan),
        cache: &mut C::Cache,
        buffers: &mut Buffers<C>,
        adapted: AdaptedRows<'_, C>,
        hidden: &mut C::Rows,
    ) -> Result<()> {
        let Buffers {
            normed,
            part,
            attention,
            feed_forward,
        } = buffers;
        let input = match &self.before_attention {
            Some(norm) => {
                compute.norm(norm, self.epsilon, hidden, normed)?;
                &*normed
            }
            None => &*hidden,
        };
        self.attention.forward(
            compute,
            (work, plan),
            cache,
            attention,
            adapted,
            input,
            part,
        )?;
        if let Some(norm) = &self.after_attention {
            compute.norm_parts(norm, self.epsilon, part)?;
        }
        let added = (self.residual_factor, &*part);
        let input = match &self.before_feed_forward {
            norm if self.is_parallel => {
                if let Some(norm) = norm {
                    compute.norm(norm, self.epsilon, hidden, normed)?;
                }
                compute.add(added.0, added.1, hidden)?;
                &*normed
            }
            Some(norm) => {
                compute.add_and_norm(added, hidden, norm, self.epsilon, normed)?;
                &*normed
            }
            None => {
                compute.add(added.0, added.1, hidden)?;
                &*hidden
            }
        };
        let rows = work.step.tokens.len();
        self.feed_forward
            .forward(compute, rows, feed_forward, adapted, input, part)?;
        if let Some(norm) = &self.after_feed_forward {
            compute.norm_parts(norm, self.epsilon, part)?;
        }
        compute.add(self.residual_factor, part, hidden)
    }
}
