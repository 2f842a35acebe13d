//! Turns hidden states into one vector per text: pooling, dense layers and normalisation of Sentence Transformers' modules.

mod plan;

pub(crate) use plan::{PoolingPlan, Reduction};

use super::linear::Linear;
use super::network::{HiddenStates, Sequence};
use super::tensors::Tensors;
use crate::error::EngineError;
use crate::files::ModelFiles;
use crate::kernels::Pool;
use candle_core::{Device, Result, Tensor};
use plan::DenseActivation;
use std::sync::Arc;

/// Converts hidden states to vectors.
pub(crate) struct Pooling {
    pools: Vec<Reduction>,
    dense: Vec<(Linear, Option<DenseActivation>)>,
    /// Normalises vectors to length one unless the request decides.
    pub normalises: bool,
    /// Length of a vector.
    pub width: usize,
    pub bytes: u64,
    pub mapped_bytes: u64,
    device: Device,
}

impl Pooling {
    /// Reads the weights of the dense layers.
    ///
    /// # Errors
    /// If the widths of successive layers do not match, or weights are missing.
    pub fn load(
        plan: PoolingPlan,
        hidden: usize,
        device: &Device,
        pool: Option<&Arc<Pool>>,
    ) -> std::result::Result<Self, EngineError> {
        let mut width = hidden * plan.pools.len();
        let (mut dense, mut bytes, mut mapped_bytes) = (Vec::new(), 0, 0);
        for layer in plan.dense {
            if layer.inputs != width {
                return Err(EngineError::model(
                    layer.folder.join("config.json"),
                    format!(
                        "in_features is {}, but its input has width {width}",
                        layer.inputs
                    ),
                    "download the model's folder completely",
                ));
            }
            let files = ModelFiles::open_tensors(&layer.folder)?;
            let mut tensors = Tensors::new(&files, device, pool.cloned());
            let name = "linear";
            let linear = Linear::read(
                &mut tensors,
                name,
                layer.inputs,
                layer.outputs,
                layer.has_bias,
            )?;
            bytes += tensors.bytes;
            mapped_bytes += tensors.mapped_bytes;
            width = layer.outputs;
            dense.push((linear, layer.activation));
        }
        Ok(Self {
            pools: plan.pools,
            dense,
            normalises: plan.normalises,
            width,
            bytes,
            mapped_bytes,
            device: device.clone(),
        })
    }

    /// Computes one vector per text, not normalised.
    ///
    /// # Errors
    /// If the device fails.
    pub fn vectors(&self, sequences: &[&Sequence], hidden: &HiddenStates) -> Result<Vec<Vec<f32>>> {
        let pooled: Vec<Vec<f32>> = match self.pools.as_slice() {
            // Only one row of each text has to leave the device.
            [Reduction::FirstToken] => rows_at(hidden, hidden.starts.iter().copied())?,
            [Reduction::LastToken] => {
                let ends = sequences.iter().zip(&hidden.starts);
                rows_at(
                    hidden,
                    ends.map(|(sequence, start)| start + sequence.tokens.len() - 1),
                )?
            }
            pools => {
                let width = hidden.rows.dim(1)?;
                let all: Vec<f32> = hidden.rows.flatten_all()?.to_vec1()?;
                let of = |(sequence, start): (&&Sequence, &usize)| {
                    let end = start + sequence.tokens.len();
                    // A text that consists only of its prompt is pooled with the prompt.
                    let skipped = sequence.passed_over;
                    let skipped = skipped * usize::from(skipped < sequence.tokens.len());
                    let rows = &all[(start + skipped) * width..end * width];
                    pools
                        .iter()
                        .flat_map(|reduction| pool(*reduction, rows, width))
                        .collect()
                };
                sequences.iter().zip(&hidden.starts).map(of).collect()
            }
        };
        self.after(pooled)
    }

    /// Returns true if this is the only pooling.
    pub fn is_of(&self, pools: [Reduction; 1]) -> bool {
        self.pools == pools
    }

    /// Pools the rows of a text: all of them, or only the last. Returns `None` without rows.
    pub fn of_rows(&self, rows: &[Vec<f32>], passed_over: usize) -> Option<Vec<f32>> {
        let skipped = passed_over * usize::from(passed_over < rows.len());
        let width = rows.first()?.len();
        let rows = rows[skipped..].concat();
        let pools = self.pools.iter();
        Some(
            pools
                .flat_map(|reduction| pool(*reduction, &rows, width))
                .collect(),
        )
    }

    /// Applies the steps after pooling.
    ///
    /// # Errors
    /// If the device fails.
    pub fn after(&self, pooled: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        if self.dense.is_empty() {
            return Ok(pooled);
        }
        let (count, width) = (pooled.len(), pooled.first().map_or(0, Vec::len));
        let mut rows = Tensor::from_vec(pooled.concat(), (count, width), &self.device)?;
        for (linear, activation) in &self.dense {
            rows = linear.apply(&rows)?;
            rows = match activation {
                None => rows,
                Some(DenseActivation::Sigmoid) => candle_nn::ops::sigmoid(&rows)?,
                Some(DenseActivation::Of(activation)) => {
                    super::operations::activate(rows, *activation)?
                }
            };
        }
        rows.to_vec2()
    }
}

/// Copies rows of hidden states from the device.
pub(crate) fn rows_at(
    hidden: &HiddenStates,
    rows: impl Iterator<Item = usize>,
) -> Result<Vec<Vec<f32>>> {
    let rows: Vec<u32> = rows.map(|row| row as u32).collect();
    let count = rows.len();
    let rows = Tensor::from_vec(rows, count, hidden.rows.device())?;
    hidden.rows.index_select(&rows, 0)?.to_vec2()
}

/// Pools the rows of a text, at least one, into one vector.
pub(crate) fn pool(pool: Reduction, rows: &[f32], width: usize) -> Vec<f32> {
    let count = rows.len() / width;
    let sum = |weight: &dyn Fn(usize) -> f32| {
        let mut sum = vec![0.0f32; width];
        for (place, row) in rows.chunks_exact(width).enumerate() {
            let weight = weight(place);
            for (sum, number) in sum.iter_mut().zip(row) {
                *sum += weight * number;
            }
        }
        sum
    };
    let over = |mut sum: Vec<f32>, divisor: f32| {
        sum.iter_mut().for_each(|number| *number /= divisor);
        sum
    };
    match pool {
        Reduction::FirstToken => rows[..width].to_vec(),
        Reduction::LastToken => rows[rows.len() - width..].to_vec(),
        Reduction::Mean => over(sum(&|_| 1.0), count as f32),
        Reduction::RootMean => over(sum(&|_| 1.0), (count as f32).sqrt()),
        Reduction::WeightedMean => {
            let all = count as f32 * (count as f32 + 1.0) / 2.0;
            over(sum(&|place| place as f32 + 1.0), all)
        }
        Reduction::Max => {
            rows.chunks_exact(width)
                .fold(vec![f32::NEG_INFINITY; width], |mut most, row| {
                    for (most, number) in most.iter_mut().zip(row) {
                        *most = most.max(*number);
                    }
                    most
                })
        }
    }
}

/// Scales a vector to length one. A zero vector is unchanged.
pub(crate) fn normalise(vector: &mut [f32]) {
    let squares = vector
        .iter()
        .map(|number| f64::from(*number) * f64::from(*number));
    let length = squares.sum::<f64>().sqrt().max(1e-12);
    for number in vector {
        *number = (f64::from(*number) / length) as f32;
    }
}

#[cfg(test)]
mod tests;
