//! Tensor names of the older decoder families, and which of their matrices are stored transposed.

use super::table::{Table, TensorLocation};
use model_files::families::{self, DecoderFamily as Family};

/// The tensor names of one family. Each pair is the family's name and the usual name, without prefixes and suffixes.
#[derive(Debug)]
pub(crate) struct LegacyNames {
    /// Prefix of all names except the head's. Omitted in files of a decoder without its head, and often in GPT-2's.
    prefix: &'static str,
    head: &'static str,
    outer: &'static [(&'static str, &'static str)],
    /// The family's name for `model.layers`.
    blocks: &'static str,
    within: &'static [(&'static str, &'static str)],
    /// Matrices that are stored with one row per input, by their usual names.
    transposed: &'static [&'static str],
}

const GPT_J: LegacyNames = LegacyNames {
    prefix: "transformer.",
    head: "lm_head",
    outer: &[("wte", "model.embed_tokens"), ("ln_f", "model.norm")],
    blocks: "h",
    within: &[
        ("ln_1", "input_layernorm"),
        ("attn.q_proj", "self_attn.q_proj"),
        ("attn.k_proj", "self_attn.k_proj"),
        ("attn.v_proj", "self_attn.v_proj"),
        ("attn.out_proj", "self_attn.o_proj"),
        ("mlp.fc_in", "mlp.up_proj"),
        ("mlp.fc_out", "mlp.down_proj"),
    ],
    transposed: &[],
};

const GPT_NEO_X: LegacyNames = LegacyNames {
    prefix: "gpt_neox.",
    head: "embed_out",
    outer: &[
        ("embed_in", "model.embed_tokens"),
        ("final_layer_norm", "model.norm"),
    ],
    blocks: "layers",
    within: &[
        ("input_layernorm", "input_layernorm"),
        ("post_attention_layernorm", "post_attention_layernorm"),
        ("attention.query_key_value", "self_attn.qkv_proj"),
        ("attention.dense", "self_attn.o_proj"),
        ("mlp.dense_h_to_4h", "mlp.up_proj"),
        ("mlp.dense_4h_to_h", "mlp.down_proj"),
    ],
    transposed: &[],
};

const GPT_2: LegacyNames = LegacyNames {
    prefix: "transformer.",
    head: "lm_head",
    outer: &[
        ("wte", "model.embed_tokens"),
        ("wpe", "model.embed_positions"),
        ("ln_f", "model.norm"),
    ],
    blocks: "h",
    within: &[
        ("ln_1", "input_layernorm"),
        ("ln_2", "post_attention_layernorm"),
        ("attn.c_attn", "self_attn.qkv_proj"),
        ("attn.c_proj", "self_attn.o_proj"),
        ("mlp.c_fc", "mlp.up_proj"),
        ("mlp.c_proj", "mlp.down_proj"),
    ],
    transposed: &[
        "self_attn.qkv_proj",
        "self_attn.o_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    ],
};

const BLOCKS: &str = "model.layers.";
const HEAD: &str = "lm_head";

impl LegacyNames {
    /// Returns the names of an architecture, or `None` if it uses the usual ones.
    pub fn new(architecture: &str) -> Option<&'static Self> {
        match families::decoder(architecture)?.0 {
            Family::GptJ => Some(&GPT_J),
            Family::GptNeoX => Some(&GPT_NEO_X),
            Family::Gpt2 => Some(&GPT_2),
            _ => None,
        }
    }

    /// Renames tensors to their usual names. Unknown tensors, such as the masks in older files, are unused and keep theirs. Returns
    /// true if the files omit the prefix.
    pub(super) fn rename(&self, table: &mut Table) -> bool {
        let is_bare = !table
            .places
            .keys()
            .any(|name| name.starts_with(self.prefix));
        table.places = std::mem::take(&mut table.places)
            .into_iter()
            .map(|(name, place)| match self.usual(&name) {
                Some(usual) => {
                    let place = self.turned(&usual, place);
                    (usual, place)
                }
                None => (name, place),
            })
            .collect();
        is_bare
    }

    /// Returns the usual name of a matrix, without `.weight`, from the architecture's name for it.
    pub fn usual_module(&self, module: &str) -> Option<String> {
        let usual = self.usual(&format!("{module}.weight"))?;
        usual.strip_suffix(".weight").map(str::to_owned)
    }

    fn usual(&self, name: &str) -> Option<String> {
        let name = name.strip_prefix(self.prefix).unwrap_or(name);
        let (stem, ending) = name.rsplit_once('.')?;
        if stem == self.head {
            return Some(format!("{HEAD}.{ending}"));
        }
        if let Some((_, usual)) = self.outer.iter().find(|(own, _)| *own == stem) {
            return Some(format!("{usual}.{ending}"));
        }
        let (blocks, rest) = stem.split_once('.')?;
        let (block, part) = rest.split_once('.').filter(|_| blocks == self.blocks)?;
        let (_, usual) = self.within.iter().find(|(own, _)| *own == part)?;
        Some(format!("{BLOCKS}{block}.{usual}.{ending}"))
    }

    /// Returns the family's name of a tensor, for messages.
    pub fn own(&self, usual: &str) -> Option<String> {
        let (stem, ending) = usual.rsplit_once('.')?;
        if stem == HEAD {
            return Some(format!("{}.{ending}", self.head));
        }
        let prefix = self.prefix;
        if let Some((own, _)) = self.outer.iter().find(|(_, usual)| *usual == stem) {
            return Some(format!("{prefix}{own}.{ending}"));
        }
        let (block, part) = stem.strip_prefix(BLOCKS)?.split_once('.')?;
        let (own, _) = self.within.iter().find(|(_, usual)| *usual == part)?;
        Some(format!("{prefix}{}.{block}.{own}.{ending}", self.blocks))
    }

    fn turned(&self, usual: &str, mut place: TensorLocation) -> TensorLocation {
        let part = usual
            .strip_prefix(BLOCKS)
            .and_then(|rest| rest.split_once('.')?.1.strip_suffix(".weight"));
        if part.is_some_and(|part| self.transposed.contains(&part)) && place.shape.len() == 2 {
            place.shape.reverse();
            place.transposed = true;
        }
        place
    }
}

/// The name of a tensor in the architecture's files.
pub(super) fn own(architecture: &str, usual: &str) -> String {
    LegacyNames::new(architecture)
        .and_then(|names| names.own(usual))
        .unwrap_or_else(|| usual.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legacy_tensor_names_map_to_usual_ones_and_back() {
        for names in [&GPT_J, &GPT_NEO_X, &GPT_2] {
            let blocks = names
                .within
                .iter()
                .map(|(own, _)| format!("{}{}.11.{own}.weight", names.prefix, names.blocks));
            let outer = names
                .outer
                .iter()
                .map(|(own, _)| format!("{}{own}.bias", names.prefix));
            for own in blocks.chain(outer).chain([format!("{}.bias", names.head)]) {
                let usual = names.usual(&own).expect("it has one");
                assert!(
                    usual.starts_with("model.") || usual.starts_with("lm_head."),
                    "{usual}"
                );
                assert_eq!(names.own(&usual), Some(own));
            }
            assert_eq!(
                names.usual(&format!("{}h.0.attn.masked_bias", names.prefix)),
                None
            );
        }
    }

    #[test]
    fn a_missing_prefix_is_tolerated() {
        assert_eq!(
            GPT_2.usual("h.3.mlp.c_fc.bias"),
            Some("model.layers.3.mlp.up_proj.bias".to_owned())
        );
        assert_eq!(
            own("GPTJForCausalLM", "model.layers.0.self_attn.q_proj.weight"),
            "transformer.h.0.attn.q_proj.weight"
        );
        assert_eq!(
            own("LlamaForCausalLM", "model.norm.weight"),
            "model.norm.weight"
        );
    }
}
