//! Independent check: candle-transformers' Llama gives the same logits.

use super::random::{InMemory, llama};
use super::*;
use crate::spec::RopeScaling;
use candle_core::Tensor;
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{
    self as reference, Config, Llama3RopeConfig, Llama3RopeType,
};

fn config(spec: &Spec, rope_scaling: Option<Llama3RopeConfig>) -> Config {
    Config {
        hidden_size: spec.hidden,
        intermediate_size: 96,
        vocab_size: spec.vocabulary,
        num_hidden_layers: spec.blocks.len(),
        num_attention_heads: spec.heads,
        num_key_value_heads: spec.key_value_heads,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling,
        max_position_embeddings: spec.context_tokens,
        tie_word_embeddings: spec.ties_head,
    }
}

fn builder(tensors: &InMemory) -> VarBuilder<'static> {
    #[expect(
        clippy::disallowed_types,
        reason = "candle's VarBuilder takes this map; its order does not matter"
    )]
    let mut map = std::collections::HashMap::new();
    for (name, stored) in &tensors.0 {
        let tensor =
            Tensor::from_raw_buffer(stored.bytes(), DType::F32, &stored.shape, &Device::Cpu);
        map.insert(name.clone(), tensor.unwrap());
    }
    VarBuilder::from_tensors(map, DType::F32, &Device::Cpu)
}

#[test]
fn logits_equal_those_of_the_candle_reference() {
    let llama3 = Llama3RopeConfig {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 16,
        rope_type: Llama3RopeType::Llama3,
    };
    for (scaling, ties_head) in [(None, true), (None, false), (Some(llama3), false)] {
        let mut spec = Spec {
            ties_head,
            ..llama()
        };
        if scaling.is_some() {
            spec.ropes[0].scaling = RopeScaling::Llama3 {
                factor: 8.0,
                low_frequency_factor: 1.0,
                high_frequency_factor: 4.0,
                first_context_tokens: 16,
            };
        }
        let tensors = InMemory::random(&spec, 1);
        let config = config(&spec, scaling);
        let theirs = reference::Llama::load(builder(&tensors), &config).unwrap();
        for cpu in [Cpu::Plain, Cpu::Native] {
            let mut ours = decoder(&spec, &tensors, cpu);
            let mut sequence = Sequence::new([5, 2, 9]);
            let mut cache = reference::Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
            let mut position = 0;
            for tokens in [&[3u32, 7, 1, 9, 30][..], &[4], &[5, 49, 2], &[8; 20], &[0]] {
                let input = Tensor::new(tokens, &Device::Cpu)
                    .unwrap()
                    .unsqueeze(0)
                    .unwrap();
                let wanted = theirs.forward(&input, position, &mut cache).unwrap();
                let wanted: Vec<f32> = wanted.squeeze(0).unwrap().to_vec1().unwrap();
                let rows = alone(&mut ours, &mut sequence, tokens);
                let last = rows[tokens.len() - 1][spec.hidden..].to_vec();
                let distance = distance(&[last], &[wanted]);
                assert!(distance < 2e-5, "{distance}");
                position += tokens.len();
            }
        }
    }
}
