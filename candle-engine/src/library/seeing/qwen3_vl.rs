//! Qwen3-VL: `text_config` and `vision_config` of `config.json`.

use super::config::{Config, TextForm, TowerNames, VisionConfig, check_tower, section, text};
use super::{Seeing, SeeingFamily};
use crate::files::ConfigFields;
use crate::library::fields::needed;

pub(crate) struct Family;

pub(crate) type Qwen3Vl = Seeing<Family>;

const NAMES: TowerNames = TowerNames {
    patch: "model.visual.patch_embed.proj",
    positions: "model.visual.pos_embed",
    blocks: "model.visual.blocks",
    norm: "norm1",
    projections: &["attn.qkv"],
    attention_output: "attn.proj",
    feed_forward_norm: "norm2",
    up: "mlp.linear_fc1",
    down: "mlp.linear_fc2",
    last_norm: None,
    merger: "model.visual.merger",
    deep_mergers: "model.visual.deepstack_merger_list",
    merger_norm: "norm",
    merger_up: "linear_fc1",
    merger_down: "linear_fc2",
};

impl SeeingFamily for Family {
    fn read(config: ConfigFields<'_>) -> Result<Config, String> {
        let inner = section(config, "text_config")?;
        let tied = inner.flag("tie_word_embeddings", false)?;
        let form = TextForm {
            prefix: "model.language_model",
            theta: 500_000.0,
            epsilon: 1e-6,
            sections: [24, 20, 20],
            interleaves: true,
            norms_heads: true,
            attention_bias: inner.flag("attention_bias", false)?,
            feed_forward_bias: false,
            tied_head: config.flag("tie_word_embeddings", tied)?,
        };
        Ok(Config {
            text: text(inner, &form)?,
            vision: vision(section(config, "vision_config")?)?,
        })
    }
}

fn vision(config: ConfigFields<'_>) -> Result<VisionConfig, String> {
    check_tower(config, "in_channels")?;
    let positions = config.count("num_position_embeddings", 2304)?;
    let side = positions.isqrt();
    if side * side != positions {
        return Err(format!(
            "num_position_embeddings is {positions}, which is not a square"
        ));
    }
    let deep = config.numbers_of("deepstack_visual_indexes")?;
    Ok(VisionConfig {
        names: &NAMES,
        hidden: needed(config, &["hidden_size"])?,
        layers: needed(config, &["depth"])?,
        heads: needed(config, &["num_heads"])?,
        wide: needed(config, &["intermediate_size"])?,
        patch: config.count("patch_size", 16)?,
        frames: Some(config.count("temporal_patch_size", 2)?),
        merge: config.count("spatial_merge_size", 2)?,
        side,
        aligns_corners: true,
        epsilon: 1e-6,
        merger_epsilon: 1e-6,
        output: needed(config, &["out_hidden_size"])?,
        deep: deep.unwrap_or_else(|| vec![8, 16, 24]),
    })
}
