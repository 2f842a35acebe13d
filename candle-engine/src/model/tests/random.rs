//! Specs of small decoders, and random weights for any spec.

use crate::error::EngineError;
use crate::files::expected;
use crate::model::Tensors;
use crate::spec::{
    Activation, AttentionSpec, BlockSpec, FeedForward, GatedSpec, HeadNorm, Norm, Norms,
    Projections, Rope, RopeScaling, Spec,
};
use crate::stored_tensor::{Encoding, StoredTensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A small Llama; other families are derived from it by changing fields.
pub(in crate::model) fn llama() -> Spec {
    let block = BlockSpec {
        window: None,
        rope: Some(0),
        score_factor: 1.0,
        norms: Norms::Before,
        feed_forward: FeedForward::Gated(GatedSpec {
            width: 96,
            activation: Activation::Silu,
            fused: false,
            bias: false,
        }),
    };
    Spec {
        architecture: "LlamaForCausalLM".to_owned(),
        vocabulary: 71,
        hidden: 64,
        heads: 4,
        key_value_heads: 2,
        key_width: 16,
        value_width: 16,
        context_tokens: 128,
        norm: Norm {
            epsilon: 1e-5,
            adds_one: false,
            centred: false,
        },
        embedding_factor: 1.0,
        learned_positions: None,
        ties_head: false,
        head_bias: false,
        logit_cap: None,
        logit_factor: 1.0,
        residual_factor: 1.0,
        attention: AttentionSpec {
            projections: Projections::Separate,
            score_factor: 0.25,
            score_cap: None,
            query_key_value_bias: false,
            output_bias: false,
            head_norm: HeadNorm::None,
        },
        ropes: vec![rope(16)],
        blocks: vec![block; 2],
    }
}

pub(in crate::model) fn rope(turned_width: usize) -> Rope {
    Rope {
        theta: 10_000.0,
        turned_width,
        interleaved: false,
        scaling: RopeScaling::None,
    }
}

/// Tensors in memory.
#[derive(Default)]
pub(in crate::model) struct InMemory(pub BTreeMap<String, StoredTensor>);

impl Tensors for InMemory {
    fn place(&self) -> &Path {
        Path::new("in memory")
    }

    fn tensor(&self, name: &str) -> Result<Option<StoredTensor>, EngineError> {
        Ok(self.0.get(name).cloned())
    }
}

impl InMemory {
    /// All tensors of a spec: matrices that preserve the magnitude of their inputs, norms near one, small biases.
    pub fn random(spec: &Spec, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut all = Self::default();
        for tensor in expected(spec) {
            let numbers: usize = tensor.shape.iter().product();
            let (middle, spread) = match tensor.shape.as_slice() {
                [_, columns] => (0.0, (3.0 / *columns as f32).sqrt()),
                _ if tensor.name.ends_with("bias") => (0.0, 0.5),
                _ if spec.norm.adds_one => (0.0, 0.3),
                _ => (1.0, 0.3),
            };
            let numbers: Vec<f32> = (0..numbers)
                .map(|_| middle + spread * random.random_range(-1.0..1.0f32))
                .collect();
            all.add(tensor.name, tensor.shape, &numbers);
        }
        all
    }

    pub fn add(&mut self, name: String, shape: Vec<usize>, numbers: &[f32]) {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let range = 0..bytes.len();
        let stored = StoredTensor::new(Encoding::F32, shape, Arc::new(bytes), range);
        self.0.insert(name, stored.expect("bytes for the shape"));
    }
}
