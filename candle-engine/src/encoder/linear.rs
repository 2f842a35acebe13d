//! Owns matrices, norms and embeddings of an encoder: how they are read by name and how they are applied to rows. Never
//! knows what they mean in a model.

use super::operations;
use super::spec::Activation;
use super::tensors::Tensors;
use crate::error::EngineError;
use candle_core::{Result, Tensor};

/// `input · weightᵀ + bias`.
pub(crate) struct Linear {
    /// `[outputs, inputs]`.
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    pub fn read(
        tensors: &mut Tensors<'_>,
        name: &str,
        inputs: usize,
        outputs: usize,
        has_bias: bool,
    ) -> std::result::Result<Self, EngineError> {
        let weight = tensors.read(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = match has_bias {
            true => Some(tensors.read(&format!("{name}.bias"), &[outputs])?),
            false => None,
        };
        Ok(Self { weight, bias })
    }

    /// Several under each other: one product in place of several.
    pub fn stacked(parts: &[Self]) -> Result<Self> {
        let weights: Vec<&Tensor> = parts.iter().map(|part| &part.weight).collect();
        let biases: Option<Vec<&Tensor>> = parts.iter().map(|part| part.bias.as_ref()).collect();
        Ok(Self {
            weight: Tensor::cat(&weights, 0)?,
            bias: biases.map(|all| Tensor::cat(&all, 0)).transpose()?,
        })
    }

    /// The lower half above the upper one.
    pub fn halves_swapped(self) -> Result<Self> {
        let swap = |tensor: Tensor| {
            let half = tensor.dim(0)? / 2;
            Tensor::cat(
                &[tensor.narrow(0, half, half)?, tensor.narrow(0, 0, half)?],
                0,
            )
        };
        Ok(Self {
            weight: swap(self.weight)?,
            bias: self.bias.map(swap).transpose()?,
        })
    }

    /// Rows times the matrix.
    pub fn apply(&self, rows: &Tensor) -> Result<Tensor> {
        let product = rows.matmul(&self.weight.t()?)?;
        match &self.bias {
            Some(bias) => operations::add_bias(product, bias),
            None => Ok(product),
        }
    }

    pub fn apply_activated(&self, rows: &Tensor, activation: Activation) -> Result<Tensor> {
        operations::activate(self.apply(rows)?, activation)
    }
}

/// Each row less its mean, over its standard deviation, times a weight.
pub(crate) struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f32,
}

impl LayerNorm {
    pub fn read(
        tensors: &mut Tensors<'_>,
        name: &str,
        width: usize,
        epsilon: f32,
        has_bias: bool,
    ) -> std::result::Result<Self, EngineError> {
        // Files that were converted from TensorFlow have its names.
        let has = |tensors: &Tensors<'_>, end: &str| tensors.has(&format!("{name}.{end}"));
        let older = has(tensors, "gamma") && !has(tensors, "weight");
        let (first, second) = match older {
            true => ("gamma", "beta"),
            false => ("weight", "bias"),
        };
        let weight = tensors.read(&format!("{name}.{first}"), &[width])?;
        let bias = match has_bias {
            true => tensors.read(&format!("{name}.{second}"), &[width])?,
            false => weight.zeros_like().map_err(EngineError::load)?,
        };
        Ok(Self {
            weight,
            bias,
            epsilon,
        })
    }

    pub fn apply(&self, rows: Tensor) -> Result<Tensor> {
        operations::norm(rows, &self.weight, &self.bias, self.epsilon)
    }
}
