//! Owns what the network of plain Llamas needs to be told of a description, and refuses descriptions that it does not compute.
//! Never reads a file.

use crate::error::EngineError;
use crate::files::ModelFiles;
use crate::spec::{Activation, BlockSpec, FeedForward, HeadNorm, Norms, Projections, RopeScaling};
use candle_transformers::models::llama::{Config, Llama3RopeConfig, Llama3RopeType};

/// The description in the network's terms.
///
/// # Errors
/// When it is of more than a plain Llama.
pub(crate) fn of_plain_llama(files: &ModelFiles) -> Result<Config, EngineError> {
    let spec = files.spec()?;
    let refused = |what: &str| {
        EngineError::model(
            files.description(),
            format!("the model has {what}, which this engine does not compute"),
            "serve another model",
        )
    };
    let attention = &spec.attention;
    let plain = attention.projections == Projections::Separate
        && attention.head_norm == HeadNorm::None
        && attention.score_cap.is_none()
        && spec.logit_cap.is_none()
        && !spec.norm.adds_one;
    if !plain {
        return Err(refused("an attention of another kind than Llama's"));
    }
    if attention.query_key_value_bias || attention.output_bias {
        return Err(refused("biases"));
    }
    if spec.hidden != spec.heads * spec.key_width {
        return Err(refused("heads of another width than hidden_size / heads"));
    }
    if [
        spec.embedding_factor,
        spec.logit_factor,
        spec.residual_factor,
    ] != [1.0; 3]
    {
        return Err(refused("factors"));
    }
    let mut width = 0;
    for block in &spec.blocks {
        match block {
            BlockSpec {
                window: None,
                rope: Some(0),
                norms: Norms::Before,
                feed_forward: FeedForward::Gated(gated),
            } if gated.activation == Activation::Silu && !gated.fused && !gated.bias => {
                width = gated.width;
            }
            _ => return Err(refused("blocks of another kind than Llama's")),
        }
    }
    let rope = &spec.ropes[0];
    let rope_scaling = match rope.scaling {
        _ if rope.interleaved => return Err(refused("a rope that turns neighbours together")),
        RopeScaling::None => None,
        RopeScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            first_context_tokens,
        } => Some(Llama3RopeConfig {
            factor,
            low_freq_factor: low_frequency_factor,
            high_freq_factor: high_frequency_factor,
            original_max_position_embeddings: first_context_tokens,
            rope_type: Llama3RopeType::Llama3,
        }),
        _ => {
            return Err(refused(
                "a rope that is scaled in another way than Llama 3's",
            ));
        }
    };
    Ok(Config {
        hidden_size: spec.hidden,
        intermediate_size: width,
        vocab_size: spec.vocabulary,
        num_hidden_layers: spec.blocks.len(),
        num_attention_heads: spec.heads,
        num_key_value_heads: spec.key_value_heads,
        use_flash_attn: false,
        rms_norm_eps: f64::from(spec.norm.epsilon),
        rope_theta: rope.theta,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling,
        max_position_embeddings: spec.context_tokens,
        tie_word_embeddings: spec.ties_head,
    })
}
