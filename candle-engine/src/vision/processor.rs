//! The preprocessing of Qwen3-VL and PaddleOCR-VL: the size an image is resized to, its patches, and their normalisation.

use crate::error::EngineError;
use crate::files::{ConfigFields, read_json};
use serde_json::Value;
use std::path::Path;

const FILE: &str = "preprocessor_config.json";
const REMEDY: &str = "download the model's folder completely";
/// A longer side than this number of times the shorter one is refused.
const RATIO_MAX: f64 = 200.0;
/// Maximum number of tokens of an image, which bounds the time and the memory of the vision tower. Larger images are reduced.
pub(super) const IMAGE_TOKENS_MAX: usize = 4096;

/// An image's size in patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    pub rows: usize,
    pub columns: usize,
}

/// The resizing of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResizeRule {
    Qwen,
    /// As Qwen, after sides that are shorter than a token are made as long, with the other in proportion.
    Paddle,
}

impl ResizeRule {
    /// The smallest and largest number of pixels of files without them.
    fn pixels(self) -> (usize, usize) {
        match self {
            Self::Qwen => (56 * 56, 28 * 28 * 1280),
            Self::Paddle => (384 * 384, 1536 * 1536),
        }
    }
}

/// The settings of `preprocessor_config.json`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Processor {
    rule: ResizeRule,
    /// Pixels of a side of a patch.
    pub patch: usize,
    /// Patches of a side of the square that becomes one token.
    pub merge: usize,
    pixels_min: usize,
    pixels_max: usize,
    mean: [f32; 3],
    deviation: [f32; 3],
}

impl Processor {
    /// Reads the settings from a model's folder, for a tower of patches of `patch` pixels, of which `merge` × `merge` are a token.
    ///
    /// # Errors
    /// If the file is missing, or contradicts the tower or itself.
    pub fn load(
        folder: &Path,
        rule: ResizeRule,
        (patch, merge): (usize, usize),
    ) -> Result<Self, EngineError> {
        let file = folder.join(FILE);
        let wrong = |problem: String| EngineError::model(&file, problem, REMEDY);
        let json = read_json(&file)?.ok_or_else(|| wrong("the file is missing".to_owned()))?;
        Self::parse(&json, rule, (patch, merge)).map_err(wrong)
    }

    fn parse(
        json: &Value,
        rule: ResizeRule,
        (patch, merge): (usize, usize),
    ) -> Result<Self, String> {
        let config = ConfigFields::new(json);
        for (name, tower) in [("patch_size", patch), ("merge_size", merge)] {
            let found = config.count(name, tower)?;
            if found != tower {
                return Err(format!("{name} is {found}, and config.json says {tower}"));
            }
        }
        for name in ["do_resize", "do_rescale", "do_normalize", "do_convert_rgb"] {
            if !config.flag(name, true)? {
                return Err(format!(
                    "{name} is false, which this engine does not compute"
                ));
            }
        }
        let factor = config.positive("rescale_factor", 1.0 / 255.0)?;
        if (factor * 255.0 - 1.0).abs() > 1e-6 {
            return Err(format!(
                "rescale_factor is {factor}; this engine computes 1 / 255"
            ));
        }
        // Pillow's number of the bicubic filter.
        let filter = config.count("resample", 3)?;
        if filter != 3 {
            return Err(format!(
                "resample is {filter}; this engine computes 3, the bicubic filter"
            ));
        }
        let size = config.value("size").unwrap_or(&Value::Null);
        let size = ConfigFields::new(size);
        let bound = |name: &str, other: &str, default: usize| {
            let found = match config.maybe_count(name)? {
                Some(found) => Some(found),
                None => size.maybe_count(other)?,
            };
            Ok::<usize, String>(found.unwrap_or(default))
        };
        let (least, most) = rule.pixels();
        let pixels_min = bound("min_pixels", "shortest_edge", least)?;
        let pixels_max = bound("max_pixels", "longest_edge", most)?;
        let token = (patch * merge).pow(2);
        let pixels_max = pixels_max.min(IMAGE_TOKENS_MAX * token);
        if pixels_min > pixels_max {
            return Err(format!(
                "an image has at least {pixels_min} pixels and at most {pixels_max}"
            ));
        }
        let three = |name: &str, default: [f32; 3]| {
            let Some(found) = config.positives(name)? else {
                return Ok(default);
            };
            let count = found.len();
            <[f32; 3]>::try_from(found)
                .map_err(|_| format!("{name} has {count} numbers; an image has 3 channels"))
        };
        Ok(Self {
            rule,
            patch,
            merge,
            pixels_min,
            pixels_max,
            mean: three("image_mean", [0.481_454_66, 0.457_827_5, 0.408_210_73])?,
            deviation: three("image_std", [0.268_629_54, 0.261_302_6, 0.275_777_1])?,
        })
    }

    /// The size in patches that an image of `width` × `height` pixels is resized to: sides that are multiples of a token's, with
    /// nearly the same ratio, between the smallest and the largest number of pixels.
    ///
    /// # Errors
    /// The problem if one side is more than 200 times the other.
    pub fn grid(&self, width: u32, height: u32) -> Result<Grid, String> {
        let (mut width, mut height) = (f64::from(width), f64::from(height));
        let factor = (self.patch * self.merge) as f64;
        if self.rule == ResizeRule::Paddle {
            if height < factor {
                width = (width * factor / height).round_ties_even();
                height = factor;
            }
            if width < factor {
                height = (height * factor / width).round_ties_even();
                width = factor;
            }
        }
        let ratio = width.max(height) / width.min(height);
        if ratio > RATIO_MAX {
            return Err(format!(
                "has {width} × {height} pixels; one side may be at most {RATIO_MAX} times the other"
            ));
        }
        let sides = [height, width];
        let mut rounded = sides.map(|side| (side / factor).round_ties_even() * factor);
        let pixels = rounded[0] * rounded[1];
        if pixels > self.pixels_max as f64 {
            let beta = (height * width / self.pixels_max as f64).sqrt();
            rounded = sides.map(|side| ((side / beta / factor).floor() * factor).max(factor));
        } else if pixels < self.pixels_min as f64 {
            let beta = (self.pixels_min as f64 / (height * width)).sqrt();
            rounded = sides.map(|side| (side * beta / factor).ceil() * factor);
        }
        let [rows, columns] = rounded.map(|side| side as usize / self.patch);
        Ok(Grid { rows, columns })
    }

    /// Number of tokens of an image of this size.
    pub fn tokens(&self, grid: Grid) -> usize {
        grid.rows * grid.columns / (self.merge * self.merge)
    }

    /// The normalised patches of `pixels`, in the order of tokens: three channels of `patch` × `patch` numbers for each patch.
    pub fn patches(&self, grid: Grid, pixels: &[u8]) -> Vec<f32> {
        let (patch, merge) = (self.patch, self.merge);
        let row = grid.columns * patch * 3;
        let mut numbers = Vec::with_capacity(pixels.len());
        for (top, left) in places(grid, merge) {
            for channel in 0..3 {
                let (mean, deviation) = (self.mean[channel], self.deviation[channel]);
                for y in top * patch..(top + 1) * patch {
                    let first = y * row + left * patch * 3 + channel;
                    let line = pixels[first..].iter().step_by(3).take(patch);
                    numbers.extend(line.map(|byte| (f32::from(*byte) / 255.0 - mean) / deviation));
                }
            }
        }
        numbers
    }
}

/// The row and column of every patch, in the order of tokens: the patches of a token follow each other.
pub(crate) fn places(grid: Grid, merge: usize) -> impl Iterator<Item = (usize, usize)> {
    let across = grid.columns / merge;
    (0..grid.rows * grid.columns).map(move |nth| {
        let (token, inside) = (nth / (merge * merge), nth % (merge * merge));
        (
            token / across * merge + inside / merge,
            token % across * merge + inside % merge,
        )
    })
}
