//! Attention of Whisper's layers, for a single sequence: of a window's frames to each other, of text to the text before it, and of
//! text to the window.

use crate::encoder::{Linear, Tensors, operations};
use crate::error::EngineError;
use candle_core::{DType, Device, Result, Tensor};

/// Maximum number of scores that exist at the same time: 32 MiB.
const SCORES_MAX: usize = 1 << 23;

/// The projections of an attention.
pub(super) struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: usize,
}

/// Keys and values, `[heads, rows, head width]` each.
pub(super) struct KeysValues {
    keys: Tensor,
    values: Tensor,
}

/// Keys and values of the text so far, with room for the longest.
pub(super) struct TextCache {
    room: KeysValues,
    length: usize,
}

impl TextCache {
    pub fn new(heads: usize, rows: usize, width: usize, device: &Device) -> Result<Self> {
        let empty = || Tensor::zeros((heads, rows, width / heads), DType::F32, device);
        Ok(Self {
            room: KeysValues {
                keys: empty()?,
                values: empty()?,
            },
            length: 0,
        })
    }

    pub fn clear(&mut self) {
        self.length = 0;
    }
}

impl Attention {
    pub fn read(
        tensors: &mut Tensors<'_>,
        name: &str,
        width: usize,
        heads: usize,
    ) -> std::result::Result<Self, EngineError> {
        let mut linear = |part: &str, has_bias: bool| {
            Linear::read(tensors, &format!("{name}.{part}"), width, width, has_bias)
        };
        Ok(Self {
            query: linear("q_proj", true)?,
            key: linear("k_proj", false)?,
            value: linear("v_proj", true)?,
            output: linear("out_proj", true)?,
            heads,
        })
    }

    /// Each row attends to all rows.
    pub fn over_all(&self, rows: &Tensor) -> Result<Tensor> {
        let seen = self.keys_values(rows)?;
        self.mix(rows, &seen.keys, &seen.values, None)
    }

    /// Each row attends to the rows of another sequence.
    pub fn over(&self, rows: &Tensor, seen: &KeysValues) -> Result<Tensor> {
        self.mix(rows, &seen.keys, &seen.values, None)
    }

    /// The scores of some heads before their softmax: `[heads, rows, seen rows]`.
    pub fn scores(&self, rows: &Tensor, seen: &KeysValues, heads: &[usize]) -> Result<Tensor> {
        let heads: Vec<u32> = heads.iter().map(|head| *head as u32).collect();
        let heads = Tensor::from_slice(&heads, heads.len(), rows.device())?;
        let queries = self.queries(rows)?.index_select(&heads, 0)?;
        let keys = seen.keys.index_select(&heads, 0)?;
        queries.matmul(&keys.transpose(1, 2)?)
    }

    /// Each row attends to itself, the rows before it and the cached ones; the rows join the cache.
    pub fn over_text(&self, rows: &Tensor, cache: &mut TextCache) -> Result<Tensor> {
        let count = rows.dim(0)?;
        let new = self.keys_values(rows)?;
        cache.room.keys.slice_set(&new.keys, 1, cache.length)?;
        cache.room.values.slice_set(&new.values, 1, cache.length)?;
        let past = cache.length;
        cache.length += count;
        let keys = cache.room.keys.narrow(1, 0, cache.length)?;
        let values = cache.room.values.narrow(1, 0, cache.length)?;
        let mask = (count > 1)
            .then(|| causal_mask(past, count, rows.device()))
            .transpose()?;
        self.mix(rows, &keys, &values, mask.as_ref())
    }

    /// The keys and values of rows.
    pub fn keys_values(&self, rows: &Tensor) -> Result<KeysValues> {
        Ok(KeysValues {
            keys: self.by_heads(&self.key.apply(rows)?)?,
            values: self.by_heads(&self.value.apply(rows)?)?,
        })
    }

    fn queries(&self, rows: &Tensor) -> Result<Tensor> {
        let scale = ((rows.dim(1)? / self.heads) as f64).powf(-0.5);
        self.by_heads(&(self.query.apply(rows)? * scale)?)
    }

    /// From `[rows, width]` to `[heads, rows, head width]`.
    fn by_heads(&self, rows: &Tensor) -> Result<Tensor> {
        let (count, width) = rows.dims2()?;
        rows.reshape((count, self.heads, width / self.heads))?
            .transpose(0, 1)?
            .contiguous()
    }

    /// Mixes in blocks of rows, which bounds the memory of the scores.
    fn mix(
        &self,
        rows: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (count, width) = rows.dims2()?;
        let queries = self.queries(rows)?;
        let keys = keys.transpose(1, 2)?;
        let block = (SCORES_MAX / (self.heads * keys.dim(2)?)).clamp(1, count);
        let mut mixed = Vec::with_capacity(count.div_ceil(block));
        for first in (0..count).step_by(block) {
            let size = block.min(count - first);
            let scores = queries
                .narrow(1, first, size)?
                .contiguous()?
                .matmul(&keys)?;
            let scores = match mask {
                Some(mask) => scores.broadcast_add(&mask.narrow(0, first, size)?)?,
                None => scores,
            };
            mixed.push(operations::softmax(scores)?.matmul(values)?);
        }
        let mixed = match mixed.as_slice() {
            [one] => one.clone(),
            several => Tensor::cat(several, 1)?,
        };
        let mixed = mixed.transpose(0, 1)?.reshape((count, width))?;
        self.output.apply(&mixed)
    }
}

/// Zero for a row itself and the rows before it; otherwise less than any score.
fn causal_mask(past: usize, count: usize, device: &Device) -> Result<Tensor> {
    let row = |row: usize| {
        (0..past + count).map(move |key| {
            if key <= past + row {
                0.0
            } else {
                f32::NEG_INFINITY
            }
        })
    };
    let numbers: Vec<f32> = (0..count).flat_map(row).collect();
    Tensor::from_vec(numbers, (count, past + count), device)
}
