//! PaddleOCR-VL, whose published `config.json` has the fields of the text at its root.

use super::config::{Config, TextForm, TowerNames, VisionConfig, check_tower, section, text};
use super::{Seeing, SeeingFamily};
use crate::files::ConfigFields;
use crate::library::fields::needed;

pub(crate) struct Family;

pub(crate) type PaddleOcrVl = Seeing<Family>;

const NAMES: TowerNames = TowerNames {
    patch: "visual.vision_model.embeddings.patch_embedding",
    positions: "visual.vision_model.embeddings.position_embedding",
    blocks: "visual.vision_model.encoder.layers",
    norm: "layer_norm1",
    projections: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    attention_output: "self_attn.out_proj",
    feed_forward_norm: "layer_norm2",
    up: "mlp.fc1",
    down: "mlp.fc2",
    last_norm: Some("visual.vision_model.post_layernorm"),
    merger: "mlp_AR",
    deep_mergers: "",
    merger_norm: "pre_norm",
    merger_up: "linear_1",
    merger_down: "linear_2",
};

impl SeeingFamily for Family {
    fn read(config: ConfigFields<'_>) -> Result<Config, String> {
        let inner = section(config, "text_config").unwrap_or(config);
        let bias = inner.flag("use_bias", false)?;
        let tied = inner.flag("tie_word_embeddings", false)?;
        let form = TextForm {
            prefix: "model",
            theta: 500_000.0,
            epsilon: 1e-5,
            sections: [16, 24, 24],
            interleaves: false,
            norms_heads: false,
            attention_bias: bias,
            feed_forward_bias: bias,
            tied_head: config.flag("tie_word_embeddings", true)? || tied,
        };
        let text = text(inner, &form)?;
        Ok(Config {
            vision: vision(section(config, "vision_config")?, text.hidden)?,
            text,
        })
    }
}

fn vision(config: ConfigFields<'_>, output: usize) -> Result<VisionConfig, String> {
    check_tower(config, "num_channels")?;
    let patch = config.count("patch_size", 14)?;
    Ok(VisionConfig {
        names: &NAMES,
        hidden: needed(config, &["hidden_size"])?,
        layers: needed(config, &["num_hidden_layers"])?,
        heads: needed(config, &["num_attention_heads"])?,
        wide: needed(config, &["intermediate_size"])?,
        patch,
        frames: None,
        merge: config.count("spatial_merge_size", 2)?,
        side: config.count("image_size", 384)? / patch,
        aligns_corners: false,
        epsilon: config.positive("layer_norm_eps", 1e-6)?,
        merger_epsilon: 1e-5,
        output,
        deep: Vec::new(),
    })
}
