//! The tensors that the blocks of a decoder share within a step.

use super::CandleCompute;
use crate::model::compute::{AttentionShape, Work};
use crate::step::{PAGE_TOKENS, Page};
use candle_core::{Device, Result, Tensor};

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
                causal_mask(span.count, span.past - first, window, &self.device)
            });
            Ok(VisibleTokens {
                slots: Tensor::new(slots, &self.device)?,
                mask: mask.transpose()?,
            })
        };
        work.step.spans.iter().map(see).collect()
    }
}

/// A mask for `rows` tokens after `before` others: zero for the tokens that a row sees, which are its own and at most `window`
/// before it, and minus infinity for the rest.
fn causal_mask(
    rows: usize,
    before: usize,
    window: Option<usize>,
    device: &Device,
) -> Result<Tensor> {
    let columns = before + rows;
    let mut mask = vec![f32::NEG_INFINITY; rows * columns];
    for row in 0..rows {
        let own = before + row;
        let first = window.map_or(0, |window| own.saturating_sub(window));
        mask[row * columns..][first..=own].fill(0.0);
    }
    Tensor::from_vec(mask, (rows, columns), device)
}

fn slot(pages: &[Page], token: usize) -> u32 {
    pages[token / PAGE_TOKENS] * PAGE_TOKENS as u32 + (token % PAGE_TOKENS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::DType;
    use candle_transformers::utils::build_additive_causal_mask;

    #[test]
    fn masks_equal_those_of_candle_transformers() {
        let device = Device::Cpu;
        for (rows, before) in [(2, 0), (3, 4), (7, 1), (16, 33)] {
            for window in [None, Some(0), Some(1), Some(3), Some(100)] {
                let ours = causal_mask(rows, before, window, &device).unwrap();
                let theirs =
                    build_additive_causal_mask(rows, before, window, &device, DType::F32).unwrap();
                let theirs = theirs.reshape((rows, before + rows)).unwrap();
                assert_eq!(
                    ours.to_vec2::<f32>().unwrap(),
                    theirs.to_vec2::<f32>().unwrap(),
                    "{rows} {before} {window:?}"
                );
            }
        }
    }
}
