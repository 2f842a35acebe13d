//! Validates the inputs of a decoder: a consistent spec, and steps within the decoder's bounds.

use crate::spec::{FeedForward, GatedSpec, PlainSpec, Projections, Spec};
use crate::step::{PAGE_TOKENS, Step};

/// The bounds of every step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub vocabulary: usize,
    pub pages: usize,
    pub context_tokens: usize,
}

impl Bounds {
    /// # Errors
    /// The problem of an invalid step.
    pub fn check(&self, step: &Step) -> Result<(), String> {
        let rows = step.tokens.len();
        let counted: usize = step.spans.iter().map(|span| span.count).sum();
        if rows == 0 || counted != rows {
            return Err(format!("a step has {rows} tokens for {counted} rows"));
        }
        if let Some(token) = step
            .tokens
            .iter()
            .find(|token| **token as usize >= self.vocabulary)
        {
            return Err(format!(
                "token {token} is not in the vocabulary of {}",
                self.vocabulary
            ));
        }
        for span in &step.spans {
            let end = span.past + span.count;
            if span.count == 0 {
                return Err("a span has no rows".to_owned());
            }
            if end > self.context_tokens {
                return Err(format!(
                    "a sequence of {end} tokens is longer than the context of {}",
                    self.context_tokens
                ));
            }
            if span.pages.len() * PAGE_TOKENS < end {
                return Err(format!(
                    "{} pages of {PAGE_TOKENS} do not hold {end} tokens",
                    span.pages.len()
                ));
            }
            if let Some(page) = span.pages.iter().find(|page| **page as usize >= self.pages) {
                return Err(format!("page {page} is not among {}", self.pages));
            }
        }
        let ascend = step.wanted.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascend || step.wanted.last().is_some_and(|row| *row >= rows) {
            return Err(format!("the wanted rows are not among {rows} in order"));
        }
        Ok(())
    }
}

/// # Errors
/// The contradiction in the spec.
pub(super) fn spec(spec: &Spec) -> Result<(), String> {
    let named = [
        ("vocabulary", spec.vocabulary),
        ("hidden size", spec.hidden),
        ("number of heads", spec.heads),
        ("number of key-value heads", spec.key_value_heads),
        ("width of a head", spec.key_width),
        ("width of a value", spec.value_width),
        ("number of layers", spec.blocks.len()),
    ];
    if let Some((name, _)) = named.iter().find(|(_, number)| *number == 0) {
        return Err(format!("the {name} is zero"));
    }
    if !spec.heads.is_multiple_of(spec.key_value_heads) {
        return Err(format!(
            "{} heads cannot share {} heads of keys and values",
            spec.heads, spec.key_value_heads
        ));
    }
    let turnable = match spec.attention.projections {
        Projections::Latent {
            turned_width,
            plain_width,
            ..
        } => {
            if turned_width + plain_width != spec.key_width || spec.key_value_heads != spec.heads {
                return Err(format!(
                    "latent attention with parts of {plain_width} and {turned_width} does not make keys of {} for {} heads",
                    spec.key_width, spec.key_value_heads
                ));
            }
            turned_width
        }
        Projections::ByHead
            if spec.key_value_heads != spec.heads || spec.value_width != spec.key_width =>
        {
            return Err(format!(
                "queries, keys and values fused by head need equal heads, but there are {} heads with keys of {} numbers and {} with values of {}",
                spec.heads, spec.key_width, spec.key_value_heads, spec.value_width
            ));
        }
        Projections::Separate | Projections::Fused | Projections::ByHead => spec.key_width,
    };
    if let Some(rows) = spec
        .learned_positions
        .filter(|rows| *rows < spec.context_tokens)
    {
        return Err(format!(
            "{rows} positions were learned for a context of {} tokens",
            spec.context_tokens
        ));
    }
    for rope in &spec.ropes {
        if rope.turned_width > turnable || rope.turned_width % 2 != 0 {
            return Err(format!(
                "rotary width {} is odd or more than a head's {turnable}",
                rope.turned_width
            ));
        }
    }
    for (index, block) in spec.blocks.iter().enumerate() {
        if block.rope.is_some_and(|rope| rope >= spec.ropes.len()) {
            return Err(format!("layer {index} names a rope that does not exist"));
        }
        if block.window == Some(0) {
            return Err(format!("layer {index} has a window of no tokens"));
        }
        match &block.feed_forward {
            FeedForward::Gated(GatedSpec { width: 0, .. })
            | FeedForward::Plain(PlainSpec { width: 0, .. }) => {
                return Err(format!(
                    "layer {index} has a feed-forward part of width zero"
                ));
            }
            FeedForward::Experts(experts)
                if experts.chosen == 0
                    || experts.chosen > experts.count
                    || experts.groups.is_some_and(|groups| {
                        groups.count == 0
                            || !experts.count.is_multiple_of(groups.count)
                            || groups.chosen == 0
                            || groups.chosen > groups.count
                    }) =>
            {
                return Err(format!(
                    "layer {index} cannot choose {} of {} experts in {:?}",
                    experts.chosen, experts.count, experts.groups
                ));
            }
            FeedForward::Gated(_) | FeedForward::Plain(_) | FeedForward::Experts(_) => {}
        }
    }
    Ok(())
}
