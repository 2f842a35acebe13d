//! Attention within each text: every token attends to all others, or to those within a window.
//!
//! On the CPU, this crate's kernels compute it ([`paged_attention`](super::paged_attention)), except for models with relative position biases. Those,
//! and all models on other devices, use candle's operations with queries in blocks, which bounds the memory that the scores of a
//! long text take.

use super::operations;
use super::paged_attention::PagedTexts;
use super::spec::{Activation, EncoderSpec, LayerSpec, Positions};
use crate::kernels::{Pool, Turns};
use candle_core::{Device, Result, Tensor};
use candle_nn::rotary_emb::{rope, rope_i};
use std::sync::Arc;

/// Maximum number of scores that exist at the same time: 32 MiB.
const SCORES_MAX: usize = 1 << 23;
/// Rows per block with windowed attention; more rows would compute more masked scores.
const WINDOW_BLOCK_ROWS: usize = 128;

/// Consecutive texts of the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub first_row: usize,
    pub texts: usize,
    pub tokens: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Groups(Vec<Group>);

impl Groups {
    /// Groups ascending lengths.
    pub fn new(lengths: impl Iterator<Item = usize>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut row = 0;
        for tokens in lengths {
            match groups.last_mut() {
                Some(group) if group.tokens == tokens => group.texts += 1,
                _ => groups.push(Group {
                    first_row: row,
                    texts: 1,
                    tokens,
                }),
            }
            row += tokens;
        }
        Self(groups)
    }

    /// The token count of each text, in order.
    fn lengths(&self) -> impl Iterator<Item = usize> {
        let each = self.0.iter();
        each.flat_map(|group| std::iter::repeat_n(group.tokens, group.texts))
    }
}

/// The inputs that all layers share for the texts of a batch.
pub(crate) enum SharedInputs {
    ByKernels {
        texts: PagedTexts,
        /// Cosines and sines of each row, per base of the layers.
        turns: Vec<(f64, Vec<f32>, Vec<f32>)>,
    },
    /// Computed by candle's operations. One tensor of position biases per group; empty for models without them.
    ByOperations { masks: Vec<Tensor> },
}

/// The attention of an encoder.
pub(crate) struct Attention {
    heads: usize,
    head_width: usize,
    layers: Vec<LayerSpec>,
    interleaved: bool,
    /// Relative position biases per head: `[heads][distance + reach]`.
    distances: Option<Vec<Vec<f32>>>,
    reach: usize,
    /// Cosines and sines, per base of the layers.
    turns: Vec<(f64, Tensor, Tensor)>,
    pub activation: Activation,
    device: Device,
    /// The CPU's compute threads; `None` on other devices.
    pool: Option<Arc<Pool>>,
}

impl Attention {
    /// Builds attention for texts of at most `longest` tokens. `distances` are the biases of each bucket, `[buckets, heads]`.
    /// `pool` must be set if the device is the CPU.
    pub fn new(
        spec: &EncoderSpec,
        distances: Option<&Tensor>,
        longest: usize,
        device: &Device,
        pool: Option<Arc<Pool>>,
    ) -> Result<Self> {
        let reach = longest;
        let mut turns: Vec<(f64, Tensor, Tensor)> = Vec::new();
        for theta in spec.layers.iter().filter_map(|layer| layer.theta) {
            if !turns.iter().any(|(other, _, _)| *other == theta) {
                let (cos, sin) = turns_of(theta, spec.hidden / spec.heads, longest, device)?;
                turns.push((theta, cos, sin));
            }
        }
        let distances = match distances {
            None => None,
            Some(table) => {
                let table: Vec<Vec<f32>> = table.to_vec2()?;
                let buckets = table.len();
                let of_head = |head: usize| {
                    let distances = -(reach as i64)..=reach as i64;
                    distances
                        .map(|distance| table[bucket_of(distance, buckets)][head])
                        .collect()
                };
                Some((0..spec.heads).map(of_head).collect())
            }
        };
        Ok(Self {
            heads: spec.heads,
            head_width: spec.hidden / spec.heads,
            layers: spec.layers.clone(),
            interleaved: matches!(spec.positions, Positions::Turned { interleaved: true }),
            distances,
            reach,
            turns,
            activation: spec.activation,
            device: device.clone(),
            pool,
        })
    }

    /// Computes the inputs that all layers share for the texts of a batch.
    pub fn prepare(&self, groups: &Groups) -> Result<SharedInputs> {
        let Some(pool) = self.pool.as_ref().filter(|_| self.distances.is_none()) else {
            let masks = self.masks(groups)?;
            return Ok(SharedInputs::ByOperations { masks });
        };
        let (pool, lengths) = (Arc::clone(pool), groups.lengths());
        let texts = PagedTexts::new(pool, lengths, self.heads, self.head_width);
        let longest = groups.lengths().max().unwrap_or(0);
        let half = self.head_width / 2;
        // Repeats the rows of the first positions for every text.
        let of_rows = |table: &Tensor| -> Result<Vec<f32>> {
            let table = table.narrow(0, 0, longest)?.flatten_all()?;
            let table: Vec<f32> = table.to_vec1()?;
            let rows = groups.lengths().flat_map(|count| &table[..count * half]);
            Ok(rows.copied().collect())
        };
        let turns = self
            .turns
            .iter()
            .map(|(theta, cos, sin)| Ok((*theta, of_rows(cos)?, of_rows(sin)?)))
            .collect::<Result<_>>()?;
        Ok(SharedInputs::ByKernels { texts, turns })
    }

    /// Position biases per group, the same in all layers. Empty for models without them.
    fn masks(&self, groups: &Groups) -> Result<Vec<Tensor>> {
        let Some(distances) = &self.distances else {
            return Ok(Vec::new());
        };
        let mask = |group: &Group| {
            let tokens = group.tokens;
            let mut numbers = Vec::with_capacity(self.heads * tokens * tokens);
            for head in distances {
                for query in 0..tokens {
                    let first = self.reach - query;
                    numbers.extend_from_slice(&head[first..first + tokens]);
                }
            }
            Tensor::from_vec(numbers, (1, self.heads, tokens, tokens), &self.device)
        };
        groups.0.iter().map(mask).collect()
    }

    /// Computes attention from queries, keys and values of `[rows, hidden]` each.
    pub fn mix(
        &self,
        layer: usize,
        query_key_value: &[Tensor],
        groups: &Groups,
        prepared: &SharedInputs,
    ) -> Result<Tensor> {
        let layer = &self.layers[layer];
        let masks = match prepared {
            SharedInputs::ByOperations { masks } => masks,
            SharedInputs::ByKernels { texts, turns } => {
                let turns = turns
                    .iter()
                    .find(|(theta, _, _)| Some(*theta) == layer.theta);
                let turns = turns.map(|(_, cosines, sines)| Turns {
                    cosines,
                    sines,
                    half: self.head_width / 2,
                    interleaved: self.interleaved,
                });
                return texts.mix(query_key_value, layer.window, turns);
            }
        };
        let turns = layer
            .theta
            .and_then(|theta| self.turns.iter().find(|(other, _, _)| *other == theta));
        let mixed: Vec<Tensor> = groups
            .0
            .iter()
            .enumerate()
            .map(|(index, group)| {
                self.mix_group(query_key_value, *group, layer, turns, masks.get(index))
            })
            .collect::<Result<_>>()?;
        match mixed.as_slice() {
            [one] => Ok(one.clone()),
            several => Tensor::cat(several, 0),
        }
    }

    fn mix_group(
        &self,
        query_key_value: &[Tensor],
        group: Group,
        layer: &LayerSpec,
        turns: Option<&(f64, Tensor, Tensor)>,
        mask: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (texts, tokens) = (group.texts, group.tokens);
        let (heads, width) = (self.heads, self.head_width);
        let part = |index: usize| -> Result<Tensor> {
            query_key_value[index]
                .narrow(0, group.first_row, texts * tokens)?
                .reshape((texts, tokens, heads, width))?
                .transpose(1, 2)?
                .contiguous()
        };
        let (mut query, mut key, value) = (part(0)?, part(1)?, part(2)?);
        if let Some((_, cos, sin)) = turns {
            let (cos, sin) = (cos.narrow(0, 0, tokens)?, sin.narrow(0, 0, tokens)?);
            let turn = if self.interleaved { rope_i } else { rope };
            (query, key) = (turn(&query, &cos, &sin)?, turn(&key, &cos, &sin)?);
        }
        let query = (query * (1.0 / (width as f64).sqrt()))?;
        let key = key.transpose(2, 3)?;
        let window = layer.window.filter(|window| *window < tokens);
        let mut block = (SCORES_MAX / (texts * heads * tokens)).clamp(1, tokens);
        if window.is_some() {
            block = block.min(WINDOW_BLOCK_ROWS);
        }
        let mut mixed = Vec::new();
        for first in (0..tokens).step_by(block) {
            let count = block.min(tokens - first);
            let (from, to) = match window {
                None => (0, tokens),
                Some(window) => (
                    first.saturating_sub(window),
                    (first + count + window).min(tokens),
                ),
            };
            let looked_at = to - from;
            let scores = query
                .narrow(2, first, count)?
                .matmul(&key.narrow(3, from, looked_at)?)?;
            let scores = match (window, mask) {
                (Some(window), _) => {
                    let mask = self.window(window, first..first + count, from..to)?;
                    scores.broadcast_add(&mask)?
                }
                (None, Some(mask)) => scores.broadcast_add(&mask.narrow(2, first, count)?)?,
                (None, None) => scores,
            };
            mixed.push(operations::softmax(scores)?.matmul(&value.narrow(2, from, looked_at)?)?);
        }
        let mixed = match mixed.as_slice() {
            [one] => one.clone(),
            several => Tensor::cat(several, 2)?,
        };
        mixed
            .transpose(1, 2)?
            .reshape((texts * tokens, heads * width))
    }

    /// Zero for keys at most `window` away; otherwise less than any score.
    fn window(
        &self,
        window: usize,
        queries: std::ops::Range<usize>,
        keys: std::ops::Range<usize>,
    ) -> Result<Tensor> {
        let shape = (queries.len(), keys.len());
        let numbers: Vec<f32> = queries
            .flat_map(|query| {
                let keys = keys.clone();
                keys.map(move |key| {
                    if query.abs_diff(key) <= window {
                        0.0
                    } else {
                        f32::NEG_INFINITY
                    }
                })
            })
            .collect();
        Tensor::from_vec(numbers, shape, &self.device)
    }
}

/// Cosines and sines per position and pair of numbers, computed entirely in F32 like transformers.
fn turns_of(
    theta: f64,
    head_width: usize,
    tokens: usize,
    device: &Device,
) -> Result<(Tensor, Tensor)> {
    let half = head_width / 2;
    let frequencies: Vec<f32> = (0..half)
        .map(|pair| 1.0 / (theta as f32).powf((2 * pair) as f32 / head_width as f32))
        .collect();
    let mut cos = Vec::with_capacity(tokens * half);
    let mut sin = Vec::with_capacity(tokens * half);
    for position in 0..tokens {
        for frequency in &frequencies {
            let (sine, cosine) = (position as f32 * frequency).sin_cos();
            cos.push(cosine);
            sin.push(sine);
        }
    }
    Ok((
        Tensor::from_vec(cos, (tokens, half), device)?,
        Tensor::from_vec(sin, (tokens, half), device)?,
    ))
}

/// T5's distance buckets: half of them per direction. The first half of those hold single distances, the rest a logarithmic scale
/// up to 128 (`relative_position_bucket` of MPNet in transformers).
fn bucket_of(distance: i64, buckets: usize) -> usize {
    const FARTHEST: f64 = 128.0;
    let half = buckets / 2;
    let away = distance.unsigned_abs() as usize;
    let single = half / 2;
    let within = if away < single || single == 0 {
        away.min(half.saturating_sub(1))
    } else {
        let scale = (half - single) as f64 / (FARTHEST / single as f64).ln();
        // The reference computes this logarithm in F32.
        let steps = f64::from((away as f32 / single as f32).ln()) * scale;
        (single + steps as usize).min(half - 1)
    };
    // Keys after the query use the second half.
    within + if distance > 0 { half } else { 0 }
}

#[cfg(test)]
mod tests;
