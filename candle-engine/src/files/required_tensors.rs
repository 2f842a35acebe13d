//! Lists the tensors of a decoder from its description: their names in Hugging Face's form, their shapes and their roles.

use crate::spec::{
    BlockSpec, ExpertNames, Experts, FeedForward, GatedSpec, HeadNorm, Norms, Projections, Spec,
};

/// The learned position embeddings; read on the host, like the embedding.
pub(crate) const POSITIONS: &str = "model.embed_positions.weight";

/// The role of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Embedding,
    Head,
    /// A matrix that multiplies hidden states.
    Matrix,
    /// The router of experts: small, and its decisions are sensitive to rounding.
    Router,
    /// Norm weights, biases, positions, and other rows of numbers.
    Row,
}

/// A tensor that a decoder must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequiredTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub role: Role,
}

/// Lists every tensor of the decoder, in order of use.
pub(crate) fn expected(spec: &Spec) -> Vec<RequiredTensor> {
    let mut list = List(Vec::new());
    list.add(
        "model.embed_tokens.weight",
        [spec.vocabulary, spec.hidden],
        Role::Embedding,
    );
    if let Some(rows) = spec.learned_positions {
        list.add(POSITIONS, [rows, spec.hidden], Role::Row);
    }
    for (place, block) in spec.blocks.iter().enumerate() {
        list.block(spec, block, &format!("model.layers.{place}"));
    }
    list.norm("model.norm", spec);
    if !spec.ties_head {
        list.add("lm_head.weight", [spec.vocabulary, spec.hidden], Role::Head);
    }
    if spec.head_bias {
        list.row("lm_head.bias", spec.vocabulary);
    }
    list.0
}

struct List(Vec<RequiredTensor>);

impl List {
    fn add(&mut self, name: impl Into<String>, shape: impl Into<Vec<usize>>, role: Role) {
        self.0.push(RequiredTensor {
            name: name.into(),
            shape: shape.into(),
            role,
        });
    }

    fn row(&mut self, name: impl Into<String>, numbers: usize) {
        self.add(name, [numbers], Role::Row);
    }

    /// Adds a matrix of `[outputs, inputs]`, and its bias.
    fn linear(&mut self, name: &str, outputs: usize, inputs: usize, bias: bool) {
        self.add(format!("{name}.weight"), [outputs, inputs], Role::Matrix);
        if bias {
            self.row(format!("{name}.bias"), outputs);
        }
    }

    fn block(&mut self, spec: &Spec, block: &BlockSpec, name: &str) {
        let norms: &[&str] = match block.norms {
            Norms::Before | Norms::Parallel => &["input_layernorm", "post_attention_layernorm"],
            Norms::Shared => &["input_layernorm"],
            Norms::BeforeAndAfter => &[
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
            ],
            Norms::After => &["post_attention_layernorm", "post_feedforward_layernorm"],
        };
        for norm in norms {
            self.norm(&format!("{name}.{norm}"), spec);
        }
        self.attention(spec, &format!("{name}.self_attn"));
        match &block.feed_forward {
            FeedForward::Gated(gated) => self.gated(spec.hidden, gated, &format!("{name}.mlp")),
            FeedForward::Plain(plain) => {
                let (up, down) = (
                    format!("{name}.mlp.up_proj"),
                    format!("{name}.mlp.down_proj"),
                );
                self.linear(&up, plain.width, spec.hidden, plain.bias);
                self.linear(&down, spec.hidden, plain.width, plain.bias);
            }
            FeedForward::Experts(experts) => self.experts(spec.hidden, experts, name),
        }
    }

    /// Adds a norm over hidden states.
    fn norm(&mut self, name: &str, spec: &Spec) {
        self.row(format!("{name}.weight"), spec.hidden);
        if spec.norm.centred {
            self.row(format!("{name}.bias"), spec.hidden);
        }
    }

    fn attention(&mut self, spec: &Spec, name: &str) {
        let attention = &spec.attention;
        let bias = attention.query_key_value_bias;
        let hidden = spec.hidden;
        let queries = spec.heads * spec.key_width;
        let keys = spec.key_value_heads * spec.key_width;
        let values = spec.key_value_heads * spec.value_width;
        match &attention.projections {
            Projections::Separate => {
                for (part, outputs) in [("q_proj", queries), ("k_proj", keys), ("v_proj", values)] {
                    self.linear(&format!("{name}.{part}"), outputs, hidden, bias);
                }
            }
            Projections::Fused | Projections::ByHead => {
                let outputs = queries + keys + values;
                self.linear(&format!("{name}.qkv_proj"), outputs, hidden, bias);
            }
            Projections::Latent {
                query_rank,
                key_value_rank,
                turned_width,
                plain_width,
            } => {
                match query_rank {
                    None => self.linear(&format!("{name}.q_proj"), queries, hidden, false),
                    Some(rank) => {
                        self.linear(&format!("{name}.q_a_proj"), *rank, hidden, bias);
                        self.row(format!("{name}.q_a_layernorm.weight"), *rank);
                        self.linear(&format!("{name}.q_b_proj"), queries, *rank, false);
                    }
                }
                self.linear(
                    &format!("{name}.kv_a_proj_with_mqa"),
                    key_value_rank + turned_width,
                    hidden,
                    bias,
                );
                self.row(format!("{name}.kv_a_layernorm.weight"), *key_value_rank);
                self.linear(
                    &format!("{name}.kv_b_proj"),
                    spec.heads * (plain_width + spec.value_width),
                    *key_value_rank,
                    false,
                );
            }
        }
        self.linear(
            &format!("{name}.o_proj"),
            hidden,
            spec.heads * spec.value_width,
            attention.output_bias,
        );
        let widths = match attention.head_norm {
            HeadNorm::None => None,
            HeadNorm::PerHead => Some((spec.key_width, spec.key_width)),
            HeadNorm::AllHeads => Some((queries, keys)),
        };
        if let Some((queries, keys)) = widths {
            self.row(format!("{name}.q_norm.weight"), queries);
            self.row(format!("{name}.k_norm.weight"), keys);
        }
    }

    fn gated(&mut self, hidden: usize, gated: &GatedSpec, name: &str) {
        let (width, bias) = (gated.width, gated.bias);
        if gated.fused {
            self.linear(&format!("{name}.gate_up_proj"), 2 * width, hidden, bias);
        } else {
            self.linear(&format!("{name}.gate_proj"), width, hidden, bias);
            self.linear(&format!("{name}.up_proj"), width, hidden, bias);
        }
        self.linear(&format!("{name}.down_proj"), hidden, width, bias);
    }

    fn experts(&mut self, hidden: usize, experts: &Experts, block: &str) {
        let (name, gate, up, down) = match experts.naming {
            ExpertNames::Mixtral => ("block_sparse_moe", "w1", "w3", "w2"),
            ExpertNames::Qwen => ("mlp", "gate_proj", "up_proj", "down_proj"),
        };
        let name = format!("{block}.{name}");
        self.add(
            format!("{name}.gate.weight"),
            [experts.count, hidden],
            Role::Router,
        );
        if experts.corrects_choice() {
            self.row(
                format!("{name}.gate.e_score_correction_bias"),
                experts.count,
            );
        }
        for expert in 0..experts.count {
            let name = format!("{name}.experts.{expert}");
            self.linear(&format!("{name}.{gate}"), experts.width, hidden, false);
            self.linear(&format!("{name}.{up}"), experts.width, hidden, false);
            self.linear(&format!("{name}.{down}"), hidden, experts.width, false);
        }
        let Some(width) = experts.shared_width else {
            return;
        };
        let shared = format!("{name}.{}", experts.shared_name());
        for (part, outputs, inputs) in [
            ("gate_proj", width, hidden),
            ("up_proj", width, hidden),
            ("down_proj", hidden, width),
        ] {
            self.linear(&format!("{shared}.{part}"), outputs, inputs, false);
        }
        if experts.gates_shared {
            self.add(
                format!("{name}.shared_expert_gate.weight"),
                [1, hidden],
                Role::Router,
            );
        }
    }
}
