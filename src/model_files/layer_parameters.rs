//! Counts the parameters of a model's layers from its `config.json`: attention, states, and feed-forward parts.

use super::config_json::Keys;
use super::layer_kinds::{self, LayerKind};

pub(super) fn product(factors: &[u64]) -> u64 {
    factors
        .iter()
        .fold(1_u64, |product, factor| product.saturating_mul(*factor))
}

pub(super) fn sum(parts: &[u64]) -> u64 {
    parts
        .iter()
        .fold(0_u64, |sum, part| sum.saturating_add(*part))
}

/// Numbers of layers with attention, with a state, and with a feed-forward part.
pub(super) struct Mixers {
    pub attending: u64,
    pub with_state: u64,
    pub feed_forward: FeedForwardLayers,
}

/// Layers with a feed-forward part.
#[derive(Clone, Copy, Debug)]
pub(super) enum FeedForwardLayers {
    /// This many; other keys tell which of them have experts.
    All(u64),
    Listed {
        dense: u64,
        sparse: u64,
    },
}

pub(super) fn mixers(keys: &Keys, layers: u64) -> Result<Mixers, String> {
    let mut mixers = Mixers {
        attending: 0,
        with_state: 0,
        feed_forward: FeedForwardLayers::All(layers),
    };
    if matches!(keys.kind(), "mamba" | "mamba2" | "falcon_mamba") {
        mixers.with_state = layers;
        mixers.feed_forward = FeedForwardLayers::All(0);
        return Ok(mixers);
    }
    for (count, kind) in layer_kinds::layer_kinds(keys, layers, &mut Vec::new())? {
        match kind {
            LayerKind::Full | LayerKind::Window(_) => mixers.attending += count,
            LayerKind::State => mixers.with_state += count,
            LayerKind::Both => {
                mixers.attending += count;
                mixers.with_state += count;
            }
            LayerKind::Nothing => {}
        }
    }
    // Attention, states and feed-forward parts are separate layers.
    if let Some(word) = keys.text("hybrid_override_pattern") {
        let taken = usize::try_from(layers).unwrap_or(usize::MAX);
        let count = |wanted: char| {
            let letters = word.chars().take(taken);
            letters.filter(|letter| *letter == wanted).count() as u64
        };
        mixers.feed_forward = FeedForwardLayers::Listed {
            dense: count('-'),
            sparse: count('E'),
        };
    }
    Ok(mixers)
}

/// Parameters of a layer that keeps a state instead of a cache. An unknown form counts as attention.
pub(super) fn state_parameters(keys: &Keys, hidden: u64) -> Result<u64, String> {
    if keys.number(&["linear_num_value_heads"])?.is_some() {
        return delta_net(keys, hidden);
    }
    if let Some(count) = layer_kinds::state_space_parameters(keys)? {
        return Ok(count);
    }
    if let Some(length) = keys.number(&["conv_L_cache"])? {
        return Ok(product(&[hidden, sum(&[product(&[4, hidden]), length])]));
    }
    attention(keys, hidden)
}

/// Parameters of the attention of one layer.
pub(super) fn attention(keys: &Keys, hidden: u64) -> Result<u64, String> {
    let kind = keys.kind();
    let heads = keys.heads()?;
    if let Some(rank) = keys.number(&["kv_lora_rank"])? {
        let (nope, rope) = (
            keys.needed(&["qk_nope_head_dim"])?,
            keys.needed(&["qk_rope_head_dim"])?,
        );
        let value = keys.needed(&["v_head_dim"])?;
        let query = product(&[heads, nope.saturating_add(rope)]);
        let queries = match keys.number(&["q_lora_rank"])? {
            Some(rank) => sum(&[product(&[hidden, rank]), rank, product(&[rank, query])]),
            None => product(&[hidden, query]),
        };
        let compressed = sum(&[product(&[hidden, rank.saturating_add(rope)]), rank]);
        let expanded = product(&[rank, heads, nope.saturating_add(value)]);
        return Ok(sum(&[
            queries,
            compressed,
            expanded,
            product(&[heads, value, hidden]),
        ]));
    }
    let size = keys.head_size()?;
    let (query, key) = (
        product(&[heads, size]),
        product(&[keys.key_value_heads()?, size]),
    );
    let is_gated = kind == "qwen3_next" || keys.flag("attn_output_gate") == Some(true);
    let queries = if is_gated { 2 } else { 1 };
    let mut count = sum(&[
        product(&[queries, hidden, query]),
        product(&[2, hidden, key]),
        product(&[query, hidden]),
    ]);
    let has_all_biases = keys.flag("attention_bias") == Some(true);
    if has_all_biases || kind.starts_with("qwen2") {
        count = sum(&[count, query, product(&[2, key])]);
    }
    if has_all_biases {
        count = sum(&[count, hidden]);
    }
    if kind.starts_with("qwen3") || kind.starts_with("gemma3") {
        count = sum(&[count, product(&[2, size])]);
    }
    if kind == "gpt_oss" {
        count = sum(&[count, heads]);
    }
    Ok(count)
}

/// Parameters of one gated delta net.
fn delta_net(keys: &Keys, hidden: u64) -> Result<u64, String> {
    let heads = keys.needed(&["linear_num_value_heads"])?;
    let value_size = keys.needed(&["linear_value_head_dim"])?;
    let keys_wide = product(&[
        keys.needed(&["linear_num_key_heads"])?,
        keys.needed(&["linear_key_head_dim"])?,
    ]);
    let values_wide = product(&[heads, value_size]);
    let kernel = keys.number(&["linear_conv_kernel_dim"])?.unwrap_or(4);
    let both = sum(&[keys_wide, values_wide]);
    Ok(sum(&[
        product(&[hidden, 2, both]),
        product(&[hidden, 2, heads]),
        product(&[kernel, sum(&[keys_wide, both])]),
        product(&[2, heads]),
        value_size,
        product(&[values_wide, hidden]),
    ]))
}

/// Parameters of the experts, and of everything else between the attention blocks, in all layers.
pub(super) fn feed_forward(
    keys: &Keys,
    hidden: u64,
    blocks: FeedForwardLayers,
) -> Result<(u64, u64), String> {
    let kind = keys.kind();
    let wide = || match keys.number(&["intermediate_size", "n_inner", "ffn_hidden_size"])? {
        Some(wide) if wide > 0 => Ok::<u64, String>(wide),
        _ => Ok(product(&[4, hidden])),
    };
    let is_gated = !matches!(
        kind,
        "gpt2"
            | "gpt_neox"
            | "gptj"
            | "gpt_bigcode"
            | "opt"
            | "bloom"
            | "falcon"
            | "mpt"
            | "phi"
            | "starcoder2"
            | "nemotron"
            | "nemotron_h"
    );
    let dense = |wide: u64| product(&[if is_gated { 3 } else { 2 }, hidden, wide]);
    let names = ["num_experts", "num_local_experts", "n_routed_experts"];
    let Some(experts) = keys.number(&names)?.filter(|count| *count > 1) else {
        let layers = match blocks {
            FeedForwardLayers::All(layers) => layers,
            FeedForwardLayers::Listed { dense, sparse } => sum(&[dense, sparse]),
        };
        return Ok((0, product(&[layers, dense(wide()?)])));
    };
    let expert = match keys.number(&["moe_intermediate_size"])? {
        Some(wide) => wide,
        None => wide()?,
    };
    let (dense_layers, sparse_layers) = match blocks {
        FeedForwardLayers::Listed { dense, sparse } => (dense, sparse),
        FeedForwardLayers::All(layers) => {
            let first = keys.number(&["first_k_dense_replace"])?;
            let every = keys.number(&[
                "decoder_sparse_step",
                "expert_layer_period",
                "interleave_moe_layer_step",
            ])?;
            let left = layers - first.unwrap_or(0).min(layers);
            let sparse = left / every.filter(|every| *every > 0).unwrap_or(1);
            (layers - sparse, sparse)
        }
    };
    let dense_wide = match keys.number(&["intermediate_size_mlp"])? {
        Some(wide) => wide,
        None => wide()?,
    };
    let names = [
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
    ];
    let shared = match keys.number(&names)? {
        // The shared expert includes a gate for its output.
        Some(wide) => sum(&[dense(wide), hidden]),
        // Llama 4 has one, without a key.
        None if kind.starts_with("llama4") => dense(expert),
        None => dense(product(&[
            expert,
            keys.number(&["n_shared_experts"])?.unwrap_or(0),
        ])),
    };
    let mut router = product(&[hidden, experts]);
    let mut biases = 0;
    if kind == "gpt_oss" {
        router = sum(&[router, experts]);
        biases = product(&[experts, sum(&[product(&[2, expert]), hidden])]);
    } else if kind == "deepseek_v3" || kind == "kimi_k2" {
        // A bias per expert that balances the load.
        router = sum(&[router, experts]);
    }
    let in_experts = product(&[sparse_layers, experts, dense(expert)]);
    let beside = sum(&[
        product(&[dense_layers, dense(dense_wide)]),
        product(&[sparse_layers, sum(&[shared, router, biases])]),
    ]);
    Ok((in_experts, beside))
}
