//! Calculates the memory of a decoder's parts on a device, before anything is loaded.

use super::attention::shape;
use super::weights::Tensors;
use crate::error::EngineError;
use crate::files::{POSITIONS, expected};
use crate::spec::Spec;
use crate::step::PAGE_TOKENS;
use crate::stored_tensor::Encoding;

/// Sizes of a decoder's parts, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub embedding: u64,
    /// Per layer: weights and pages of the KV cache.
    pub blocks: Vec<u64>,
    pub head: u64,
    /// Working memory of a step, on each device that has a layer.
    pub working: u64,
}

impl Sizes {
    /// The sizes on a GPU, for this number of pages and of rows in a step. Weights have the same size as in their files. The
    /// embedding is read on the host.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn new(
        spec: &Spec,
        tensors: &dyn Tensors,
        pages: usize,
        rows: usize,
    ) -> Result<Self, EngineError> {
        let mut sizes = Self {
            embedding: 0,
            blocks: vec![0; spec.blocks.len()],
            head: 0,
            working: 0,
        };
        let mut number_bytes = 2;
        for expected in expected(spec) {
            let Some(stored) = tensors.tensor(&expected.name)? else {
                continue;
            };
            let bytes = stored.bytes().len() as u64;
            if expected.name == "model.embed_tokens.weight" {
                number_bytes = if stored.encoding == Encoding::F32 {
                    4
                } else {
                    2
                };
                sizes.head += if spec.ties_head { bytes } else { 0 };
                continue;
            }
            if expected.name == POSITIONS {
                continue;
            }
            let layer = expected
                .name
                .strip_prefix("model.layers.")
                .and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
            match layer.and_then(|layer| sizes.blocks.get_mut(layer)) {
                Some(block) => *block += bytes,
                None => sizes.head += bytes,
            }
        }
        for (size, block) in sizes.blocks.iter_mut().zip(&spec.blocks) {
            let shape = shape(spec, block);
            let numbers =
                PAGE_TOKENS * shape.key_value_heads * (shape.key_width + shape.value_width);
            *size += (pages * numbers * number_bytes) as u64;
        }
        // A dozen rows of hidden states and of the widest intermediate result, plus the logits, all in F32.
        let widest = spec
            .blocks
            .iter()
            .map(|block| match &block.feed_forward {
                crate::spec::FeedForward::Gated(gated) => gated.width,
                crate::spec::FeedForward::Plain(plain) => plain.width,
                crate::spec::FeedForward::Experts(experts) => {
                    experts.width.max(experts.shared_width.unwrap_or(0))
                }
            })
            .fold(spec.hidden.max(spec.heads * spec.key_width), usize::max);
        sizes.working = (4 * rows * (12 * widest + spec.vocabulary)) as u64;
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::random::{InMemory, llama};
    use super::*;

    #[test]
    fn sizes_include_weights_and_cache_pages() {
        let spec = llama();
        let sizes = Sizes::new(&spec, &InMemory::random(&spec, 1), 3, 1).expect("readable");
        let block = 4 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64);
        let pages = 3 * 16 * 2 * 32 * 4;
        assert_eq!(sizes.blocks, [block + pages; 2]);
        assert_eq!(sizes.head, 4 * (71 * 64 + 64));
        assert_eq!(sizes.embedding, 0);
    }
}
