//! Estimates the size of a model's weights from its `config.json` alone, by counting parameters. Used until the weights are on
//! disk.

use std::path::Path;

use super::config_json::Keys;
use super::error::FileError;

/// Maximum deviation of `weights_by_config` in per cent of the true size, for architectures that `config_json` knows. Other
/// architectures may deviate more.
pub const CONFIG_TOLERANCE_PER_CENT: u64 = 5;

/// Parameter counts, computed from a model's architecture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    pub total: u64,
    /// Parameters of its experts, which some models store in fewer bits than the others.
    pub experts: u64,
    /// Embeddings and the output layer, which quantised models usually leave unquantised.
    pub embeddings: u64,
}

/// Bytes of the weights according to a `config.json`, using the width from its `dtype` or its `quantization_config`.
pub fn weights_by_config(path: &Path) -> Result<u64, FileError> {
    let keys = Keys::read(path)?;
    bytes(&keys).map_err(|problem| FileError::Broken {
        path: path.to_owned(),
        problem,
    })
}

/// Counts parameters from a `config.json`, without vision and audio parts.
pub fn parameters_by_config(path: &Path) -> Result<Parameters, FileError> {
    let keys = Keys::read(path)?;
    parameters(&keys).map_err(|problem| FileError::Broken {
        path: path.to_owned(),
        problem,
    })
}

fn bytes(keys: &Keys) -> Result<u64, String> {
    let count = parameters(keys)?;
    let plain_bits: u64 = match keys.text("torch_dtype").or(keys.text("dtype")) {
        Some("float32" | "float") => 32,
        Some("float8_e4m3fn" | "int8") => 8,
        _ => 16,
    };
    let quantised = keys.value(&["quantization_config"]);
    let text = |name: &str| quantised.and_then(|section| section.get(name)?.as_str());
    let bits = quantised.and_then(|section| section.get("bits").or(section.get("w_bit"))?.as_u64());
    // Quantised parameters, and thousandths of a bit for each of them.
    let (parts, milli_bits) = match (text("quant_method"), bits) {
        (None, None) => (0, 0_u64),
        // Four bits, and a byte of scale per 32 numbers.
        (Some("mxfp4"), _) => (count.experts, 4250),
        (Some("fp8" | "fbgemm_fp8"), _) | (_, Some(8)) => (count.total - count.embeddings, 8010),
        // Scales and offsets per group of 128.
        (_, Some(bits)) => (
            count.total - count.embeddings,
            bits.min(16).saturating_mul(1000).saturating_add(160),
        ),
        // Other quantisations usually use one byte.
        (Some(_), None) => (count.total - count.embeddings, 8010),
    };
    let rest = u128::from(count.total - parts) * u128::from(plain_bits) * 1000;
    let bits = rest + u128::from(parts) * u128::from(milli_bits);
    Ok(u64::try_from(bits / 8000).unwrap_or(u64::MAX))
}

fn product(factors: &[u64]) -> u64 {
    factors
        .iter()
        .fold(1_u64, |product, factor| product.saturating_mul(*factor))
}

fn sum(parts: &[u64]) -> u64 {
    parts
        .iter()
        .fold(0_u64, |sum, part| sum.saturating_add(*part))
}

fn parameters(keys: &Keys) -> Result<Parameters, String> {
    let kind = keys.kind();
    let hidden = keys.hidden()?;
    let layers = keys.layers()?;
    let vocabulary = keys.needed(&["vocab_size"])?;
    if matches!(
        kind,
        "bert" | "roberta" | "xlm-roberta" | "camembert" | "electra"
    ) {
        return encoder(keys, vocabulary, hidden, layers);
    }
    let one_table = product(&[vocabulary, hidden]);
    let is_tied = keys.flag("tie_word_embeddings").unwrap_or_else(|| {
        kind.starts_with("gemma")
            || matches!(
                kind,
                "gpt2" | "cohere" | "cohere2" | "opt" | "bloom" | "falcon"
            )
    });
    let learned_positions = match kind {
        "gpt2" => keys.number(&["n_positions", "max_position_embeddings", "n_ctx"])?,
        _ => None,
    };
    let embeddings = sum(&[
        product(&[one_table, if is_tied { 1 } else { 2 }]),
        product(&[learned_positions.unwrap_or(0), hidden]),
    ]);
    let attention = attention(keys, hidden)?;
    // Qwen3-Next uses a gated delta net instead of attention in three of four layers.
    let (attending, linear) = match keys
        .number(&["full_attention_interval"])?
        .filter(|every| *every > 0)
    {
        Some(every) if keys.number(&["linear_num_value_heads"])?.is_some() => (
            layers / every,
            product(&[layers - layers / every, delta_net(keys, hidden)?]),
        ),
        _ => (layers, 0),
    };
    let (experts, feed_forward) = feed_forward(keys, hidden, layers)?;
    let norms_per_layer = if matches!(kind, "gemma2" | "gemma3" | "gemma3_text") {
        4
    } else {
        2
    };
    let norms = sum(&[product(&[layers, norms_per_layer, hidden]), hidden]);
    let total = sum(&[
        embeddings,
        product(&[attending, attention]),
        linear,
        experts,
        feed_forward,
        norms,
    ]);
    Ok(Parameters {
        total,
        experts,
        embeddings,
    })
}

/// Parameters of the attention of one layer.
fn attention(keys: &Keys, hidden: u64) -> Result<u64, String> {
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
fn feed_forward(keys: &Keys, hidden: u64, layers: u64) -> Result<(u64, u64), String> {
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
    );
    let dense = |wide: u64| product(&[if is_gated { 3 } else { 2 }, hidden, wide]);
    let names = ["num_experts", "num_local_experts", "n_routed_experts"];
    let Some(experts) = keys.number(&names)?.filter(|count| *count > 1) else {
        return Ok((0, product(&[layers, dense(wide()?)])));
    };
    let expert = match keys.number(&["moe_intermediate_size"])? {
        Some(wide) => wide,
        None => wide()?,
    };
    let dense_layers = keys
        .number(&["first_k_dense_replace"])?
        .unwrap_or(0)
        .min(layers);
    let sparse_layers = layers - dense_layers;
    let shared = match keys.number(&["shared_expert_intermediate_size"])? {
        // The shared expert includes a gate for its output.
        Some(wide) => sum(&[dense(wide), hidden]),
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
        product(&[dense_layers, dense(wide()?)]),
        product(&[sparse_layers, sum(&[shared, router, biases])]),
    ]);
    Ok((in_experts, beside))
}

/// An encoder of BERT's form, with its pooler.
fn encoder(keys: &Keys, vocabulary: u64, hidden: u64, layers: u64) -> Result<Parameters, String> {
    let positions = keys.needed(&["max_position_embeddings"])?;
    let types = keys.number(&["type_vocab_size"])?.unwrap_or(2);
    let wide = keys.needed(&["intermediate_size"])?;
    let table = product(&[sum(&[vocabulary, positions, types]), hidden]);
    let square = sum(&[product(&[hidden, hidden]), hidden]);
    let layer = sum(&[
        product(&[4, square]),
        product(&[2, hidden, wide]),
        wide,
        hidden,
        product(&[4, hidden]),
    ]);
    Ok(Parameters {
        total: sum(&[
            table,
            product(&[2, hidden]),
            product(&[layers, layer]),
            square,
        ]),
        experts: 0,
        embeddings: table,
    })
}
