//! StarCoder and SantaCoder (GPT-BigCode).

use super::fields::{needed, one_of, only, shape};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bigcode::{Config, GPTBigCode};

/// The library has no way to forget a sequence, and its configuration cannot be cloned.
pub(super) struct GptBigCode(GPTBigCode);

impl LibraryModel for GptBigCode {
    type Config = Box<dyn Fn() -> Config + Send>;

    fn describe(
        config: ConfigFields<'_>,
        context: usize,
    ) -> std::result::Result<(Self::Config, Sizes), String> {
        let shape = shape(
            config,
            &["n_embd", "hidden_size"],
            &["n_layer", "num_hidden_layers"],
            &["n_head", "num_attention_heads"],
        )?;
        one_of(
            config,
            "activation_function",
            &["gelu_pytorch_tanh", "gelu_new", "gelu_fast"],
        )?;
        only(config, "scale_attn_weights", true)?;
        only(config, "tie_word_embeddings", true)?;
        // The library splits the queries, keys and values of separate heads otherwise than `transformers`.
        only(config, "multi_query", true)?;
        let context_tokens = needed(config, &["n_positions", "max_position_embeddings"])?;
        let epsilon = config.positive("layer_norm_epsilon", 1e-5)?;
        let n_inner = config.maybe_count("n_inner")?;
        let create = move || Config {
            vocab_size: shape.vocabulary,
            // The library allocates a mask of its square, and only these positions are read from the files.
            max_position_embeddings: context.min(context_tokens),
            num_hidden_layers: shape.layers,
            hidden_size: shape.hidden,
            layer_norm_epsilon: epsilon,
            n_inner,
            num_attention_heads: shape.heads,
            multi_query: true,
            use_cache: true,
        };
        let sizes = Sizes {
            vocabulary: shape.vocabulary,
            context_tokens,
            cache_numbers: 2 * shape.head * shape.layers,
        };
        Ok((Box::new(create), sizes))
    }

    fn load(config: &Self::Config, weights: VarBuilder<'_>) -> Result<Self> {
        GPTBigCode::load(weights, config()).map(Self)
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        self.0.forward(tokens, past)
    }
}
