//! The vision tower: from the patches of an image to rows of the text.

use super::config::VisionConfig;
use super::positions::TowerRows;
use crate::vision::{Grid, PlacedImage};
use candle_core::{Device, Module, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use candle_nn::{Embedding, LayerNorm, Linear, VarBuilder, embedding, layer_norm, linear};

const THETA: f64 = 10_000.0;
/// Maximum number of attention scores that exist at the same time.
const SCORES_MAX: usize = 8 * 1024 * 1024;

pub(super) struct Tower {
    config: VisionConfig,
    patch: Linear,
    positions: Embedding,
    blocks: Vec<Block>,
    last_norm: Option<LayerNorm>,
    merger: Merger,
    deep: Vec<Merger>,
}

struct Block {
    norm: LayerNorm,
    /// One matrix for queries, keys and values, or three.
    projections: Vec<Linear>,
    output: Linear,
    feed_forward_norm: LayerNorm,
    up: Linear,
    down: Linear,
}

/// Makes one row of the patches of a token.
struct Merger {
    norm: LayerNorm,
    /// The norm is applied to all patches of a token together.
    merges_first: bool,
    width: usize,
    up: Linear,
    down: Linear,
}

impl Tower {
    pub fn load(config: &VisionConfig, weights: &VarBuilder<'_>) -> Result<Self> {
        let names = config.names;
        let (hidden, side) = (config.hidden, config.patch);
        let patch = weights.pp(names.patch);
        let matrix = match config.frames {
            // All frames of an image are equal, so their matrices are added.
            Some(frames) => patch
                .get((hidden, 3, frames, side, side), "weight")?
                .sum(2)?,
            None => patch.get((hidden, 3, side, side), "weight")?,
        };
        let matrix = matrix.reshape((hidden, 3 * side * side))?;
        let positions = config.side * config.side;
        let blocks = weights.pp(names.blocks);
        let blocks = (0..config.layers).map(|nth| Block::load(config, &blocks.pp(nth)));
        let deep = weights.pp(names.deep_mergers);
        let deep = (0..config.deep.len()).map(|nth| Merger::load(config, true, &deep.pp(nth)));
        let last_norm = names
            .last_norm
            .map(|name| layer_norm(hidden, config.epsilon, weights.pp(name)));
        Ok(Self {
            patch: Linear::new(matrix, Some(patch.get(hidden, "bias")?)),
            positions: embedding(positions, hidden, weights.pp(names.positions))?,
            blocks: blocks.collect::<Result<_>>()?,
            last_norm: last_norm.transpose()?,
            merger: Merger::load(config, false, &weights.pp(names.merger))?,
            deep: deep.collect::<Result<_>>()?,
            config: config.clone(),
        })
    }

    pub fn forward(&self, image: &PlacedImage) -> Result<TowerRows> {
        let device = self.positions.embeddings().device();
        let count = image.grid.rows * image.grid.columns;
        let width = 3 * self.config.patch * self.config.patch;
        let patches = Tensor::from_vec(image.patches(), (count, width), device)?;
        let mut rows = (self.patch.forward(&patches)? + self.learned(image)?)?;
        let turn = self.turn(image, device)?;
        let mut deep = Vec::with_capacity(self.deep.len());
        for (nth, block) in self.blocks.iter().enumerate() {
            rows = block.forward(&self.config, &rows, &turn)?;
            let mergers = self.config.deep.iter().zip(&self.deep);
            for (_, merger) in mergers.filter(|(layer, _)| **layer == nth) {
                deep.push(merger.forward(&rows)?);
            }
        }
        if let Some(norm) = &self.last_norm {
            rows = norm.forward(&rows)?;
        }
        Ok(TowerRows {
            embeddings: self.merger.forward(&rows)?,
            deep,
        })
    }

    /// The learned positions of the image's patches, interpolated from a square.
    fn learned(&self, image: &PlacedImage) -> Result<Tensor> {
        let Grid { rows, columns } = image.grid;
        let side = self.config.side;
        let aligns = self.config.aligns_corners;
        // The two nearest positions along an axis, and the weight of the second.
        let near = |place: usize, count: usize| {
            let exact = if aligns {
                place as f32 * (side - 1) as f32 / count.saturating_sub(1).max(1) as f32
            } else {
                (place as f32 + 0.5) * side as f32 / count as f32 - 0.5
            };
            let floor = exact.floor();
            // Before the first position, both are the first.
            let first = (floor.max(0.0) as usize).min(side - 1);
            let second = ((floor + 1.0) as usize).min(side - 1);
            (first, second, exact - floor)
        };
        let count = rows * columns;
        let mut indices: [Vec<_>; 4] = std::array::from_fn(|_| Vec::with_capacity(count));
        let mut shares: [Vec<_>; 4] = std::array::from_fn(|_| Vec::with_capacity(count));
        for (row, column) in image.places() {
            let (top, bottom, down) = near(row, rows);
            let (left, right, across) = near(column, columns);
            let corners = [
                (top, left, (1.0 - down) * (1.0 - across)),
                (top, right, (1.0 - down) * across),
                (bottom, left, down * (1.0 - across)),
                (bottom, right, down * across),
            ];
            for (nth, (row, column, share)) in corners.into_iter().enumerate() {
                indices[nth].push((row * side + column) as u32);
                shares[nth].push(share);
            }
        }
        let device = self.positions.embeddings().device();
        let mut sum: Option<Tensor> = None;
        for (indices, shares) in indices.into_iter().zip(shares) {
            let rows = self
                .positions
                .forward(&Tensor::from_vec(indices, count, device)?)?;
            let part = rows.broadcast_mul(&Tensor::from_vec(shares, (count, 1), device)?)?;
            sum = Some(match sum {
                None => part,
                Some(sum) => (sum + part)?,
            });
        }
        sum.ok_or_else(|| candle_core::Error::msg("an image without patches"))
    }

    /// Cosines and sines that turn the heads of each patch: half of the pairs by its row, half by its column.
    fn turn(&self, image: &PlacedImage, device: &Device) -> Result<(Tensor, Tensor)> {
        let half = self.config.hidden / self.config.heads / 2;
        let frequencies: Vec<f32> = (0..half)
            .step_by(2)
            .map(|nth| 1.0 / (THETA.powf(nth as f64 / half as f64) as f32))
            .collect();
        let angles: Vec<f32> = image
            .places()
            .flat_map(|(row, column)| [row, column])
            .flat_map(|place| frequencies.iter().map(move |each| place as f32 * each))
            .collect();
        let angles =
            Tensor::from_vec(angles, (image.grid.rows * image.grid.columns, half), device)?;
        Ok((angles.cos()?, angles.sin()?))
    }
}

impl Block {
    fn load(config: &VisionConfig, weights: &VarBuilder<'_>) -> Result<Self> {
        let hidden = config.hidden;
        let names = config.names;
        let norm = |name: &str| layer_norm(hidden, config.epsilon, weights.pp(name));
        let width = 3 * hidden / names.projections.len();
        let projections = names.projections.iter();
        let projections = projections.map(|name| linear(hidden, width, weights.pp(name)));
        Ok(Self {
            norm: norm(names.norm)?,
            projections: projections.collect::<Result<_>>()?,
            output: linear(hidden, hidden, weights.pp(names.attention_output))?,
            feed_forward_norm: norm(names.feed_forward_norm)?,
            up: linear(hidden, config.wide, weights.pp(names.up))?,
            down: linear(config.wide, hidden, weights.pp(names.down))?,
        })
    }

    fn forward(
        &self,
        config: &VisionConfig,
        rows: &Tensor,
        (cosines, sines): &(Tensor, Tensor),
    ) -> Result<Tensor> {
        let (count, hidden) = rows.dims2()?;
        let head = hidden / config.heads;
        let normed = self.norm.forward(rows)?;
        let all = self
            .projections
            .iter()
            .map(|projection| projection.forward(&normed));
        let all = Tensor::cat(&all.collect::<Result<Vec<_>>>()?, 1)?;
        let all = all.reshape((count, 3, config.heads, head))?;
        let part = |nth: usize| {
            let part = all.narrow(1, nth, 1)?.squeeze(1)?.transpose(0, 1)?;
            part.unsqueeze(0)?.contiguous()
        };
        let queries = candle_nn::rotary_emb::rope(&part(0)?, cosines, sines)?;
        let keys = candle_nn::rotary_emb::rope(&part(1)?, cosines, sines)?;
        let (keys, values) = (keys.t()?.contiguous()?, part(2)?);
        let queries = (queries * (head as f64).powf(-0.5))?;
        let most = (SCORES_MAX / (config.heads * count)).max(1);
        let mut mixed = Vec::new();
        for first in (0..count).step_by(most) {
            let some = queries.narrow(2, first, most.min(count - first))?;
            let weights = softmax_last_dim(&some.contiguous()?.matmul(&keys)?)?;
            mixed.push(weights.matmul(&values)?);
        }
        let mixed = Tensor::cat(&mixed, 2)?.squeeze(0)?.transpose(0, 1)?;
        let rows = (rows + self.output.forward(&mixed.reshape((count, hidden))?)?)?;
        let wide = self.up.forward(&self.feed_forward_norm.forward(&rows)?)?;
        &rows + self.down.forward(&wide.gelu()?)?
    }
}

impl Merger {
    fn load(config: &VisionConfig, merges_first: bool, weights: &VarBuilder<'_>) -> Result<Self> {
        let names = config.names;
        let width = config.hidden * config.merge * config.merge;
        let normed = if merges_first { width } else { config.hidden };
        Ok(Self {
            norm: layer_norm(normed, config.merger_epsilon, weights.pp(names.merger_norm))?,
            merges_first,
            width,
            up: linear(width, width, weights.pp(names.merger_up))?,
            down: linear(width, config.output, weights.pp(names.merger_down))?,
        })
    }

    fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        let merged = if self.merges_first {
            self.norm.forward(&rows.reshape(((), self.width))?)?
        } else {
            self.norm.forward(rows)?.reshape(((), self.width))?
        };
        self.down.forward(&self.up.forward(&merged)?.gelu_erf()?)
    }
}
