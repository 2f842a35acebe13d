//! Mamba, the first version. A state of constant size replaces the cache, and tokens are computed one after another.

use super::fields::{needed, only, only_count};
use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use candle_core::{DType, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::mamba::{Config, Model, State};

pub(super) struct Mamba {
    model: Model,
    config: Config,
    state: State,
}

impl LibraryModel for Mamba {
    type Config = Config;

    fn describe(
        config: ConfigFields<'_>,
        _context: usize,
    ) -> std::result::Result<(Config, Sizes), String> {
        let hidden = needed(config, &["hidden_size"])?;
        only_count(config, "state_size", 16)?;
        only_count(config, "conv_kernel", 4)?;
        only_count(config, "expand", 2)?;
        if config
            .value("time_step_rank")
            .is_some_and(|rank| rank != "auto")
        {
            only_count(config, "time_step_rank", hidden.div_ceil(16))?;
        }
        only(config, "use_bias", false)?;
        only(config, "use_conv_bias", true)?;
        only(config, "tie_word_embeddings", true)?;
        if config.positive("layer_norm_epsilon", 1e-5)? != 1e-5 {
            return Err("layer_norm_epsilon is not 0.00001, the only value that this engine computes for this family".to_owned());
        }
        let library = Config {
            d_model: hidden,
            n_layer: needed(config, &["num_hidden_layers"])?,
            vocab_size: needed(config, &["vocab_size"])?,
            pad_vocab_size_multiple: 1,
        };
        let sizes = Sizes::without_cache(library.vocab_size);
        Ok((library, sizes))
    }

    fn load(config: &Config, weights: VarBuilder<'_>) -> Result<Self> {
        // Published files say `embeddings`, as `transformers` does.
        let weights = weights
            .rename_f(|name| name.replace("backbone.embedding.", "backbone.embeddings."))
            .pp("backbone");
        let state = State::new(1, config, DType::F32, weights.device())?;
        let model = Model::new(config, weights)?;
        Ok(Self {
            model,
            config: config.clone(),
            state,
        })
    }

    fn forward(&mut self, tokens: &Tensor, _past: usize) -> Result<Tensor> {
        let count = tokens.dim(1)?;
        let mut logits = None;
        for nth in 0..count {
            let token = tokens.narrow(1, nth, 1)?.squeeze(1)?;
            logits = Some(self.model.forward(&token, &mut self.state)?);
        }
        logits.ok_or_else(|| candle_core::Error::msg("no tokens to compute"))
    }

    fn reset(&mut self) -> bool {
        let device = self.state.hs.first().map(|state| state.device().clone());
        let device = device.unwrap_or(candle_core::Device::Cpu);
        match State::new(1, &self.config, DType::F32, &device) {
            Ok(state) => {
                self.state = state;
                true
            }
            Err(_) => false,
        }
    }
}
