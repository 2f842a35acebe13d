//! Causal attention on candle's operations, with a cache for one sequence, for the families written here.

use candle_core::{D, Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;

/// Keys and values of one layer, of shape (1, heads, tokens, width).
#[derive(Debug, Default)]
pub(super) struct Cache(Option<(Tensor, Tensor)>);

impl Cache {
    /// Appends keys and values, and returns all of them.
    pub fn append(&mut self, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let all = match &self.0 {
            None => (keys.contiguous()?, values.contiguous()?),
            Some((old_keys, old_values)) => (
                Tensor::cat(&[old_keys, keys], 2)?,
                Tensor::cat(&[old_values, values], 2)?,
            ),
        };
        self.0 = Some(all.clone());
        Ok(all)
    }

    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// Attention of the queries, of shape (1, heads, rows, width), over the cached and the new tokens. Each key head
    /// serves consecutive queries. `bias` is added to the scaled scores.
    pub fn attend(
        &mut self,
        queries: &Tensor,
        (keys, values): (&Tensor, &Tensor),
        scale: f64,
        bias: &Tensor,
    ) -> Result<Tensor> {
        let (keys, values) = self.append(keys, values)?;
        attend(queries, (&keys, &values), scale, Some(bias))
    }
}

/// Attention of the queries over these keys and values, as [`Cache::attend`]. Both are contiguous.
pub(super) fn attend(
    queries: &Tensor,
    (keys, values): (&Tensor, &Tensor),
    scale: f64,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let (_, heads, rows, width) = queries.dims4()?;
    let key_heads = keys.dim(1)?;
    // The queries of one key head follow each other as rows, so keys and values need not be repeated.
    let grouped = (1, key_heads, heads / key_heads * rows, width);
    let queries = queries.contiguous()?.reshape(grouped)?;
    let scores = (queries.matmul(&keys.t()?)? * scale)?;
    let tokens = keys.dim(2)?;
    let scores = scores.reshape((1, heads, rows, tokens))?;
    let scores = match bias {
        Some(bias) => scores.broadcast_add(bias)?,
        None => scores,
    };
    let weights = softmax_last_dim(&scores)?;
    let weights = weights.reshape((1, key_heads, heads / key_heads * rows, tokens))?;
    let mixed = weights.matmul(values)?.reshape((1, heads, rows, width))?;
    mixed.transpose(1, 2)?.reshape((1, rows, heads * width))
}

/// The causal mask of `rows` rows after `past` tokens, of shape (1, 1, rows, past + rows): 0 or negative infinity.
pub(super) fn mask(rows: usize, past: usize, device: &Device) -> Result<Tensor> {
    let tokens = past + rows;
    let numbers: Vec<f32> = (0..rows)
        .flat_map(|row| {
            (0..tokens).map(move |token| {
                if token <= past + row {
                    0.0
                } else {
                    f32::NEG_INFINITY
                }
            })
        })
        .collect();
    Tensor::from_vec(numbers, (1, 1, rows, tokens), device)
}

/// Cosines and sines of all positions, each of shape (positions, width / 2).
#[derive(Debug)]
pub(super) struct Rotation {
    cosines: Tensor,
    sines: Tensor,
}

impl Rotation {
    pub fn new(width: usize, theta: f64, positions: usize, device: &Device) -> Result<Self> {
        let frequencies: Vec<f32> = (0..width)
            .step_by(2)
            .map(|nth| 1.0 / theta.powf(nth as f64 / width as f64) as f32)
            .collect();
        let frequencies = Tensor::from_vec(frequencies, (1, width / 2), device)?;
        let places: Vec<f32> = (0..positions).map(|place| place as f32).collect();
        let angles = Tensor::from_vec(places, (positions, 1), device)?.matmul(&frequencies)?;
        Ok(Self {
            cosines: angles.cos()?,
            sines: angles.sin()?,
        })
    }

    /// Rotates heads of shape (1, heads, rows, width) after `past` tokens.
    pub fn apply(&self, heads: &Tensor, past: usize) -> Result<Tensor> {
        let rows = heads.dim(D::Minus2)?;
        let cosines = self.cosines.narrow(0, past, rows)?;
        let sines = self.sines.narrow(0, past, rows)?;
        candle_nn::rotary_emb::rope(&heads.contiguous()?, &cosines, &sines)
    }
}
