//! Memory of the vision tower of an embedded-engine model that reads images: its weights until they are on disk, the rows of one
//! image, and the images that wait.

use std::path::Path;

use model_files::config_json::Keys;
use model_files::families::LibraryFamily;
use serde_json::Value;

use crate::documents::ComputeDevice;
use crate::recipes::{CandleRecipe, candle_models};

/// Maximum number of tokens of an image.
const IMAGE_TOKENS: u64 = 4096;
/// Scores of attention that exist at the same time: as computed, their exponentials, and their products.
const SCORES: u64 = 3 * (8 << 20);
/// Bytes of an image while it is decoded, in its own form and with three bytes for each pixel, and of resized images that wait.
const IMAGE_BYTES: u64 = (128 + 72 + 256) << 20;

/// The sizes of a tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VisionTower {
    hidden: u64,
    wide: u64,
    layers: u64,
    output: u64,
    positions: u64,
    /// Numbers of a patch in all its frames.
    patch: u64,
    /// Patches of a token.
    merged: u64,
    /// Layers whose rows the text gets in addition to the last ones.
    deep: u64,
}

impl VisionTower {
    /// Reads the tower of the model that this `config.json` describes; `None` if the engine computes none for it.
    pub fn read(config: &Path) -> Option<Self> {
        let family = candle_models::library_family(config)?;
        let keys = Keys::read(config).ok()?;
        let tower = keys.value(&["vision_config"])?;
        let count =
            |name: &str, default: u64| tower.get(name).and_then(Value::as_u64).unwrap_or(default);
        let merge = count("spatial_merge_size", 2);
        let (hidden, wide) = (count("hidden_size", 1152), count("intermediate_size", 4304));
        let merged = product(merge, merge);
        match family {
            LibraryFamily::Qwen3Vl => {
                let side = count("patch_size", 16);
                let frames = count("temporal_patch_size", 2);
                let deep = tower.get("deepstack_visual_indexes");
                let deep = deep.and_then(Value::as_array);
                Some(Self {
                    hidden,
                    wide,
                    layers: count("depth", 27),
                    output: count("out_hidden_size", 3584),
                    positions: count("num_position_embeddings", 2304),
                    patch: product(product(side, side), frames.saturating_mul(3)),
                    merged,
                    deep: deep.map_or(3, |deep| deep.len() as u64),
                })
            }
            LibraryFamily::PaddleOcrVl => {
                let side = count("patch_size", 14).max(1);
                let across = count("image_size", 384) / side;
                let text = keys.value(&["hidden_size"]).and_then(Value::as_u64);
                Some(Self {
                    hidden,
                    wide,
                    layers: count("num_hidden_layers", 27),
                    output: text.unwrap_or(1024),
                    positions: product(across, across),
                    patch: product(product(side, side), 3),
                    merged,
                    deep: 0,
                })
            }
            _ => None,
        }
    }

    /// Bytes of its weights in four bytes a number.
    pub fn weights(&self) -> u64 {
        let block = product(self.hidden, self.hidden)
            .saturating_mul(4)
            .saturating_add(product(self.hidden, self.wide).saturating_mul(2))
            .saturating_add(self.hidden.saturating_mul(9))
            .saturating_add(self.wide);
        let merged = product(self.hidden, self.merged);
        let merger = product(merged, merged)
            .saturating_add(product(merged, self.output))
            .saturating_add(merged.saturating_mul(3))
            .saturating_add(self.output);
        let patch = self.patch.saturating_add(1).saturating_add(self.positions);
        block
            .saturating_mul(self.layers)
            .saturating_add(merger.saturating_mul(self.deep.saturating_add(1)))
            .saturating_add(product(patch, self.hidden))
            .saturating_mul(4)
    }

    /// Bytes of the largest image while it is computed, of the images of all sequences, and on the CPU of images that wait.
    pub fn images(&self, recipe: &CandleRecipe, context: u64) -> u64 {
        let patches = product(context.min(IMAGE_TOKENS), self.merged);
        let row = self
            .hidden
            .saturating_mul(8)
            .saturating_add(self.wide.saturating_mul(2))
            .saturating_add(self.patch);
        let kept = product(context, self.output)
            .saturating_mul(self.deep.saturating_add(1))
            .saturating_mul(u64::from(recipe.concurrency));
        let waiting = match recipe.device {
            ComputeDevice::Cpu => IMAGE_BYTES,
            ComputeDevice::Cuda | ComputeDevice::Metal => 0,
        };
        product(patches, row)
            .saturating_add(SCORES)
            .saturating_add(kept)
            .saturating_mul(4)
            .saturating_add(waiting)
    }
}

fn product(a: u64, b: u64) -> u64 {
    a.saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes::recipe::tests::candle as recipe;

    #[test]
    fn a_tower_of_a_published_model_counts_with_its_weights_and_an_image() {
        let folder = tempfile::tempdir().expect("a folder");
        let origin = folder.path().join("config.json");
        let write = |name: &str| {
            let config = format!(
                r#"{{"architectures": ["{name}"], "vision_config": {{"hidden_size": 1024, "intermediate_size": 4096, "depth": 24,
                    "out_hidden_size": 2048, "num_position_embeddings": 2304, "patch_size": 16, "temporal_patch_size": 2,
                    "spatial_merge_size": 2, "deepstack_visual_indexes": [5, 11, 17]}}}}"#
            );
            std::fs::write(&origin, config).expect("written");
        };
        write("Qwen3ForCausalLM");
        assert_eq!(VisionTower::read(&origin), None);
        write("Qwen3VLForConditionalGeneration");
        let tower = VisionTower::read(&origin).expect("a tower");
        // The tower of Qwen3-VL 2B has 406,957,056 parameters; norms after merging have other widths.
        let parameters = tower.weights() / 4;
        assert!(parameters.abs_diff(406_957_056) < 100_000, "{parameters}");
        let config = r#"{"architectures": ["PaddleOCRVLForConditionalGeneration"], "hidden_size": 1024, "vision_config": {}}"#;
        std::fs::write(&origin, config).expect("written");
        let paddle = VisionTower::read(&origin).expect("a tower");
        assert_eq!(
            (paddle.output, paddle.positions, paddle.deep),
            (1024, 729, 0)
        );
        let need = |device, context| tower.images(&recipe(device), context);
        let concurrency = u64::from(recipe(ComputeDevice::Cpu).concurrency);
        let row = 8 * 1024 + 2 * 4096 + 1536;
        let numbers = 4000 * row + SCORES + 1000 * 2048 * 4 * concurrency;
        assert_eq!(need(ComputeDevice::Cuda, 1000), numbers * 4);
        assert_eq!(need(ComputeDevice::Cpu, 1000), numbers * 4 + IMAGE_BYTES);
        let large = 16_384 * row + SCORES + 10_000 * 2048 * 4 * concurrency;
        assert_eq!(need(ComputeDevice::Cuda, 10_000), large * 4);
    }
}
