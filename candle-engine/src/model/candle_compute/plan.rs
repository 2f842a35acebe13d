//! The tensors that the blocks of a decoder share within a step.

use super::CandleCompute;
use crate::model::compute::{AttentionShape, Work};
use crate::step::{PAGE_TOKENS, Page};
use candle_core::{DType, Result, Tensor};
use candle_transformers::utils::build_additive_causal_mask;

#[derive(Default)]
pub(crate) struct Plan {
    /// Cosines and sines, per rope.
    pub angles: Vec<(Tensor, Tensor)>,
    /// Cache slots for the keys and values of each row, repeated for every number of a row.
    pub key_slots: Option<Tensor>,
    pub value_slots: Option<Tensor>,
    pub(super) views: Vec<View>,
}

/// The tokens visible to the rows of each span through one window.
pub(super) struct View {
    pub window: Option<usize>,
    pub spans: Vec<VisibleTokens>,
}

pub(super) struct VisibleTokens {
    pub slots: Tensor,
    /// Zero for visible tokens, minus infinity for others. `None` for a single row, which sees all.
    pub mask: Option<Tensor>,
}

impl CandleCompute {
    /// Prepares `plan` for a step.
    pub(super) fn fill_plan(
        &self,
        work: &Work<'_>,
        attention: &[AttentionShape],
        plan: &mut Plan,
    ) -> Result<()> {
        let rows = work.step.tokens.len();
        plan.angles.clear();
        for angles in work.angles {
            let shape = (rows, angles.pairs);
            plan.angles.push((
                Tensor::from_slice(&angles.cosines, shape, &self.device)?,
                Tensor::from_slice(&angles.sines, shape, &self.device)?,
            ));
        }
        let mut slots = Vec::with_capacity(rows);
        for span in &work.step.spans {
            let new = span.past..span.past + span.count;
            slots.extend(new.map(|token| slot(&span.pages, token)));
        }
        let slots = Tensor::from_vec(slots, (rows, 1), &self.device)?;
        // All blocks of a decoder have the same head widths; only windows differ.
        if let Some(shape) = attention.first() {
            let spread = |width| {
                let width = shape.key_value_heads * width;
                slots.broadcast_as((rows, width))?.contiguous()
            };
            plan.key_slots = Some(spread(shape.key_width)?);
            plan.value_slots = Some(spread(shape.value_width)?);
        }
        plan.views.clear();
        for shape in attention {
            if plan.views.iter().all(|view| view.window != shape.window) {
                let spans = self.visible(work, shape.window)?;
                plan.views.push(View {
                    window: shape.window,
                    spans,
                });
            }
        }
        Ok(())
    }

    fn visible(&self, work: &Work<'_>, window: Option<usize>) -> Result<Vec<VisibleTokens>> {
        let see = |span: &crate::step::Span| {
            let end = span.past + span.count;
            // The first row sees furthest back.
            let first = window.map_or(0, |window| (span.past + 1).saturating_sub(window));
            let slots: Vec<u32> = (first..end).map(|token| slot(&span.pages, token)).collect();
            let mask = (span.count > 1).then(|| {
                // Number of visible tokens before its own.
                let window = window.map(|window| window.saturating_sub(1));
                let (rows, before) = (span.count, span.past - first);
                build_additive_causal_mask(rows, before, window, &self.device, DType::F32)?
                    .reshape((rows, end - first))
            });
            Ok(VisibleTokens {
                slots: Tensor::new(slots, &self.device)?,
                mask: mask.transpose()?,
            })
        };
        work.step.spans.iter().map(see).collect()
    }
}

fn slot(pages: &[Page], token: usize) -> u32 {
    pages[token / PAGE_TOKENS] * PAGE_TOKENS as u32 + (token % PAGE_TOKENS) as u32
}
