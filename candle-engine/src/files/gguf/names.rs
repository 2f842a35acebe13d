//! Maps GGUF tensor names to Hugging Face's names.

use crate::files::table::TensorLocation;
use crate::spec::{ExpertNames, FeedForward, Norms, Projections, Spec};
use std::collections::BTreeMap;

/// Renames the tensors as the description expects them, and drops unknown ones.
pub(super) fn renamed(
    spec: &Spec,
    tensors: BTreeMap<String, TensorLocation>,
) -> BTreeMap<String, TensorLocation> {
    let mut renamed = BTreeMap::new();
    for (name, place) in tensors {
        for (name, place) in names(spec, &name, place) {
            renamed.entry(name).or_insert(place);
        }
    }
    renamed
}

fn names(spec: &Spec, name: &str, place: TensorLocation) -> Vec<(String, TensorLocation)> {
    let one = |name: String, place: TensorLocation| vec![(name, place)];
    match name {
        "token_embd.weight" => return one("model.embed_tokens.weight".to_owned(), place),
        "output_norm.weight" => return one("model.norm.weight".to_owned(), place),
        "output.weight" => return one("lm_head.weight".to_owned(), place),
        "output.bias" => return one("lm_head.bias".to_owned(), place),
        _ => {}
    }
    let Some((block, rest)) = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return Vec::new();
    };
    let Some(described) = block
        .parse::<usize>()
        .ok()
        .and_then(|block| spec.blocks.get(block))
    else {
        return Vec::new();
    };
    let Some((part, ending)) = rest.rsplit_once('.') else {
        return Vec::new();
    };
    let within = format!("model.layers.{block}");
    let naming = match &described.feed_forward {
        FeedForward::Experts(experts) => experts.naming,
        FeedForward::Gated(_) | FeedForward::Plain(_) => ExpertNames::Qwen,
    };
    let (experts, [gate, up, down]) = match naming {
        ExpertNames::Mixtral => ("block_sparse_moe", ["w1", "w3", "w2"]),
        ExpertNames::Qwen => ("mlp", ["gate_proj", "up_proj", "down_proj"]),
    };
    let expert_part = |part: &str| match part {
        "ffn_gate_exps" | "ffn_gate" => Some(gate),
        "ffn_up_exps" | "ffn_up" => Some(up),
        "ffn_down_exps" | "ffn_down" => Some(down),
        _ => None,
    };
    // Older files have one tensor per expert: `ffn_gate.3.weight`.
    if let Some((stem, expert)) = part.split_once('.') {
        return match (expert_part(stem), expert.parse::<usize>()) {
            (Some(part), Ok(expert)) => one(
                format!("{within}.{experts}.experts.{expert}.{part}.{ending}"),
                place,
            ),
            _ => Vec::new(),
        };
    }
    if let (3, Some(part)) = (place.shape.len(), expert_part(part)) {
        let rows = place.shape[1];
        return (0..place.shape[0])
            .filter_map(|expert| {
                let name = format!("{within}.{experts}.experts.{expert}.{part}.{ending}");
                Some((name, place.part(expert, 0..rows)?))
            })
            .collect();
    }
    let fused = spec.attention.projections == Projections::Fused;
    let usual = match part {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_qkv" => "self_attn.qkv_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "post_attention_norm" => "post_attention_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "ffn_norm" if described.norms == Norms::BeforeAndAfter => "pre_feedforward_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" if fused => "mlp.gate_up_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        "ffn_gate_shexp" => "mlp.shared_expert.gate_proj",
        "ffn_up_shexp" => "mlp.shared_expert.up_proj",
        "ffn_down_shexp" => "mlp.shared_expert.down_proj",
        "ffn_gate_inp_shexp" => {
            // A single row, whose first dimension the file omits.
            let shape = vec![1, place.shape.iter().product()];
            return one(
                format!("{within}.mlp.shared_expert_gate.{ending}"),
                TensorLocation { shape, ..place },
            );
        }
        "ffn_gate_inp" => return one(format!("{within}.{experts}.gate.{ending}"), place),
        _ => return Vec::new(),
    };
    one(format!("{within}.{usual}.{ending}"), place)
}
