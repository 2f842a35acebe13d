//! The tensor names of each encoder family.

use model_files::families::EncoderFamily as Family;

/// Possible prefixes of a model's tensors: bare, or part of a model with a head.
pub(crate) fn roots(family: Family) -> &'static [&'static str] {
    match family {
        Family::Bert => &["", "bert.", "roberta."],
        Family::DistilBert => &["", "distilbert."],
        Family::Mpnet => &["", "mpnet."],
        Family::ModernBert => &["", "model."],
        Family::NomicBert => &["", "nomic_bert.", "bert."],
        Family::Gte => &["", "gte.", "new."],
    }
}

/// The names outside the layers, without the root. Of several alternatives, the first present one counts.
pub(crate) struct OuterNames {
    pub embeddings: &'static str,
    pub norm: &'static [&'static str],
    pub last_norm: &'static str,
}

pub(crate) fn outer(family: Family) -> OuterNames {
    let (words, norm): (_, &[&str]) = match family {
        Family::ModernBert => ("embeddings.tok_embeddings", &["embeddings.norm"]),
        Family::NomicBert => (
            "embeddings.word_embeddings",
            &["emb_ln", "embeddings.LayerNorm"],
        ),
        _ => ("embeddings.word_embeddings", &["embeddings.LayerNorm"]),
    };
    OuterNames {
        embeddings: words,
        norm,
        last_norm: "final_norm",
    }
}

/// The names inside one layer, without the layer's prefix.
pub(crate) struct LayerNames {
    /// Prefix of a layer; `{}` stands for its number.
    pub layer: &'static str,
    pub query_key_value: QueryKeyValue,
    pub attention_output: &'static str,
    pub attention_norm: &'static str,
    pub feed_input: FeedInput,
    pub feed_output: &'static str,
    pub feed_norm: &'static str,
}

pub(crate) enum QueryKeyValue {
    Separate([&'static str; 3]),
    /// All three stacked in one tensor.
    Fused(&'static str),
}

pub(crate) enum FeedInput {
    Plain(&'static str),
    /// The activated matrix, then the plain one.
    Pair([&'static str; 2]),
    /// Both stacked in one tensor; the activated one first or last.
    Fused {
        name: &'static str,
        activated_first: bool,
    },
}

/// All naming schemes of a family's files. The scheme whose attention output exists is used.
pub(crate) fn layers(family: Family) -> Vec<LayerNames> {
    // Newer versions of transformers save NomicBERT and GTE with Llama's names.
    let newer = |feed_norm| LayerNames {
        layer: "layers.{}.",
        query_key_value: QueryKeyValue::Separate([
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
        ]),
        attention_output: "self_attn.o_proj",
        attention_norm: "post_attention_layernorm",
        feed_input: FeedInput::Pair(["mlp.gate_proj", "mlp.up_proj"]),
        feed_output: "mlp.down_proj",
        feed_norm,
    };
    match family {
        Family::Bert => vec![LayerNames {
            layer: "encoder.layer.{}.",
            query_key_value: QueryKeyValue::Separate([
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
            ]),
            attention_output: "attention.output.dense",
            attention_norm: "attention.output.LayerNorm",
            feed_input: FeedInput::Plain("intermediate.dense"),
            feed_output: "output.dense",
            feed_norm: "output.LayerNorm",
        }],
        Family::Mpnet => vec![LayerNames {
            layer: "encoder.layer.{}.",
            query_key_value: QueryKeyValue::Separate([
                "attention.attn.q",
                "attention.attn.k",
                "attention.attn.v",
            ]),
            attention_output: "attention.attn.o",
            attention_norm: "attention.LayerNorm",
            feed_input: FeedInput::Plain("intermediate.dense"),
            feed_output: "output.dense",
            feed_norm: "output.LayerNorm",
        }],
        Family::DistilBert => vec![LayerNames {
            layer: "transformer.layer.{}.",
            query_key_value: QueryKeyValue::Separate([
                "attention.q_lin",
                "attention.k_lin",
                "attention.v_lin",
            ]),
            attention_output: "attention.out_lin",
            attention_norm: "sa_layer_norm",
            feed_input: FeedInput::Plain("ffn.lin1"),
            feed_output: "ffn.lin2",
            feed_norm: "output_layer_norm",
        }],
        Family::ModernBert => vec![LayerNames {
            layer: "layers.{}.",
            query_key_value: QueryKeyValue::Fused("attn.Wqkv"),
            attention_output: "attn.Wo",
            attention_norm: "attn_norm",
            feed_input: FeedInput::Fused {
                name: "mlp.Wi",
                activated_first: true,
            },
            feed_output: "mlp.Wo",
            feed_norm: "mlp_norm",
        }],
        Family::NomicBert => vec![
            LayerNames {
                layer: "encoder.layers.{}.",
                query_key_value: QueryKeyValue::Fused("attn.Wqkv"),
                attention_output: "attn.out_proj",
                attention_norm: "norm1",
                // `fc12` is the gate, `fc11` the plain matrix.
                feed_input: FeedInput::Pair(["mlp.fc12", "mlp.fc11"]),
                feed_output: "mlp.fc2",
                feed_norm: "norm2",
            },
            newer("post_mlp_layernorm"),
        ],
        Family::Gte => vec![
            LayerNames {
                layer: "encoder.layer.{}.",
                query_key_value: QueryKeyValue::Fused("attention.qkv_proj"),
                attention_output: "attention.o_proj",
                attention_norm: "attn_ln",
                feed_input: FeedInput::Fused {
                    name: "mlp.up_gate_proj",
                    activated_first: false,
                },
                feed_output: "mlp.down_proj",
                feed_norm: "mlp_ln",
            },
            newer("post_mlp_layernorm"),
        ],
    }
}
