//! Describes the older decoders with layer norms and without gates, whose `config.json` uses different fields: GPT-J, GPT-NeoX
//! (Pythia) and GPT-2.
//!
//! The descriptions follow `modeling_gptj.py`, `modeling_gpt_neox.py` and `modeling_gpt2.py` of `transformers` 5.

use super::family::{Defaults, defaults};
use super::fields::Fields;
use super::rope::{self, RopeContext};
use super::{BLOCKS_MAX, HEADS_MAX, HIDDEN_MAX, within_bounds};
use crate::spec::{
    Activation, AttentionSpec, BlockSpec, FeedForward, HeadNorm, Norm, Norms, PlainSpec,
    Projections, Rope, RopeScaling, Spec,
};
use model_files::families::DecoderFamily as Family;

/// The field names of a family, including the usual names, which `transformers` also accepts.
struct Names {
    hidden: &'static [&'static str],
    heads: &'static [&'static str],
    blocks: &'static [&'static str],
    width: &'static str,
    context: &'static [&'static str],
    activation: &'static str,
    epsilon: &'static str,
}

const GPT: Names = Names {
    hidden: &["n_embd", "hidden_size"],
    heads: &["n_head", "num_attention_heads"],
    blocks: &["n_layer", "num_hidden_layers"],
    width: "n_inner",
    context: &["n_positions", "max_position_embeddings", "n_ctx"],
    activation: "activation_function",
    epsilon: "layer_norm_epsilon",
};

const NEO_X: Names = Names {
    hidden: &["hidden_size"],
    heads: &["num_attention_heads"],
    blocks: &["num_hidden_layers"],
    width: "intermediate_size",
    context: &["max_position_embeddings"],
    activation: "hidden_act",
    epsilon: "layer_norm_eps",
};

/// The fields that several parts of a description need.
struct Reader<'a> {
    config: Fields<'a>,
    family: Family,
    names: &'static Names,
    defaults: Defaults,
    hidden: usize,
    heads: usize,
    head_width: usize,
    blocks: usize,
    context_tokens: usize,
}

/// Builds the description of a decoder of these families.
///
/// # Errors
/// If fields have a wrong type or contradict each other, or require something this engine does not compute.
pub(super) fn spec(
    config: Fields<'_>,
    family: Family,
    architecture: &str,
    has_head: bool,
) -> Result<Spec, String> {
    Reader::new(config, family)?.spec(architecture, has_head)
}

impl<'a> Reader<'a> {
    fn new(config: Fields<'a>, family: Family) -> Result<Self, String> {
        let defaults = defaults(family);
        let names = match family {
            Family::GptNeoX => &NEO_X,
            _ => &GPT,
        };
        let (hidden_name, hidden) = first(config, names.hidden, defaults.hidden)?;
        let (heads_name, heads) = first(config, names.heads, defaults.heads)?;
        let (blocks_name, blocks) = first(config, names.blocks, defaults.blocks)?;
        let (_, context_tokens) = first(config, names.context, defaults.context_tokens)?;
        within_bounds([
            (hidden_name, hidden, HIDDEN_MAX),
            (heads_name, heads, HEADS_MAX),
            (blocks_name, blocks, BLOCKS_MAX),
        ])?;
        if !hidden.is_multiple_of(heads) {
            return Err(format!(
                "{hidden_name} {hidden} does not divide into {heads} heads ({heads_name})"
            ));
        }
        let head_width = hidden / heads;
        if !head_width.is_multiple_of(2) {
            return Err(format!(
                "{hidden_name} {hidden} and {heads_name} {heads} give heads of {head_width} numbers, which is not even"
            ));
        }
        Ok(Self {
            config,
            family,
            names,
            defaults,
            hidden,
            heads,
            head_width,
            blocks,
            context_tokens,
        })
    }

    fn spec(&self, architecture: &str, has_head: bool) -> Result<Spec, String> {
        let config = self.config;
        if config.flag("add_cross_attention", false)? {
            return Err(
                "add_cross_attention is true, which this engine does not support".to_owned(),
            );
        }
        let ropes: Vec<Rope> = self.rope()?.into_iter().collect();
        let ties_head = config.flag("tie_word_embeddings", self.defaults.ties_head)?;
        Ok(Spec {
            architecture: architecture.to_owned(),
            vocabulary: config.count("vocab_size", self.defaults.vocabulary)?,
            hidden: self.hidden,
            heads: self.heads,
            key_value_heads: self.heads,
            key_width: self.head_width,
            value_width: self.head_width,
            context_tokens: self.context_tokens,
            norm: Norm {
                epsilon: config.positive(self.names.epsilon, self.defaults.epsilon)? as f32,
                adds_one: false,
                centred: true,
            },
            embedding_factor: 1.0,
            learned_positions: (self.family == Family::Gpt2).then_some(self.context_tokens),
            ties_head: ties_head || !has_head,
            head_bias: self.family == Family::GptJ && has_head,
            logit_cap: None,
            logit_factor: 1.0,
            residual_factor: 1.0,
            attention: self.attention()?,
            blocks: self.all_blocks(ropes.is_empty())?,
            ropes,
        })
    }

    fn attention(&self) -> Result<AttentionSpec, String> {
        let config = self.config;
        let (projections, bias) = match self.family {
            Family::GptNeoX => (Projections::ByHead, config.flag("attention_bias", true)?),
            Family::Gpt2 => (Projections::Fused, true),
            _ => (Projections::Separate, false),
        };
        let is_scaled = self.family != Family::Gpt2 || config.flag("scale_attn_weights", true)?;
        Ok(AttentionSpec {
            projections,
            score_factor: if is_scaled {
                (self.head_width as f64).powf(-0.5) as f32
            } else {
                1.0
            },
            score_cap: None,
            query_key_value_bias: bias,
            output_bias: bias,
            head_norm: HeadNorm::None,
        })
    }

    fn rope(&self) -> Result<Option<Rope>, String> {
        match self.family {
            Family::GptNeoX => self.neo_x_rope().map(Some),
            Family::GptJ => self.gpt_j_rope().map(Some),
            _ => Ok(None),
        }
    }

    fn neo_x_rope(&self) -> Result<Rope, String> {
        let config = self.config;
        let around = RopeContext {
            family: self.family,
            head_width: self.head_width,
            context_tokens: self.context_tokens,
            interleaved: false,
            theta: config.positive("rotary_emb_base", self.defaults.theta)?,
            share: Some(config.positive("rotary_pct", 0.25)?),
        };
        Ok(rope::of_all(config, &around)?.rope)
    }

    fn gpt_j_rope(&self) -> Result<Rope, String> {
        const NAME: &str = "rotary_dim";
        let turned_width = if self.config.has(NAME) {
            // The reference implementation fails on null here, unless the model has one head.
            self.config.maybe_count(NAME)?.unwrap_or(self.hidden)
        } else {
            64
        };
        if turned_width > self.head_width {
            return Err(format!(
                "{NAME} is {turned_width}, and a head has {} numbers (n_embd {} by n_head {})",
                self.head_width, self.hidden, self.heads
            ));
        }
        if !turned_width.is_multiple_of(2) {
            return Err(format!("{NAME} is {turned_width}, which is not even"));
        }
        Ok(Rope {
            theta: self.defaults.theta as f32,
            turned_width,
            interleaved: true,
            scaling: RopeScaling::None,
        })
    }

    fn all_blocks(&self, has_no_rope: bool) -> Result<Vec<BlockSpec>, String> {
        let config = self.config;
        let norms = match self.family {
            Family::GptJ => Norms::Shared,
            Family::GptNeoX if config.flag("use_parallel_residual", true)? => Norms::Parallel,
            _ => Norms::Before,
        };
        let by_place =
            self.family == Family::Gpt2 && config.flag("scale_attn_by_inverse_layer_idx", false)?;
        let width = match self.family {
            Family::GptNeoX => config.count(self.names.width, self.defaults.width)?,
            _ => config.count(self.names.width, 4 * self.hidden)?,
        };
        let feed_forward = FeedForward::Plain(PlainSpec {
            width,
            activation: self.activation()?,
            bias: true,
        });
        let block = |place: usize| BlockSpec {
            window: None,
            rope: (!has_no_rope).then_some(0),
            score_factor: if by_place {
                1.0 / (place + 1) as f32
            } else {
                1.0
            },
            norms,
            feed_forward: feed_forward.clone(),
        };
        Ok((0..self.blocks).map(block).collect())
    }

    fn activation(&self) -> Result<Activation, String> {
        let name = self.names.activation;
        match self.config.text(name)? {
            None if self.family == Family::GptNeoX => Ok(Activation::Gelu),
            // Three implementations of the same approximation.
            None | Some("gelu_new" | "gelu_fast" | "gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
            Some("gelu") => Ok(Activation::Gelu),
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some(other) => Err(format!(
                "{name} is {other}; this engine supports gelu, gelu_new, gelu_fast, gelu_pytorch_tanh and silu"
            )),
        }
    }
}

/// Returns the first field that is present, with its name.
fn first(
    config: Fields<'_>,
    names: &[&'static str],
    default: usize,
) -> Result<(&'static str, usize), String> {
    for name in names {
        if let Some(count) = config.maybe_count(name)? {
            return Ok((name, count));
        }
    }
    Ok((names[0], default))
}
