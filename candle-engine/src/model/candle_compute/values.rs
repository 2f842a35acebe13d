//! The values that candle computes with: rows, matrices, norms and the cache.

use crate::spec::Activation;
use candle_core::quantized::QMatMul;
use candle_core::{DType, Module, Result, Tensor};

/// `rows × width` numbers in F32.
#[derive(Debug, Default)]
pub(crate) struct Rows(Option<Tensor>);

impl Rows {
    pub fn get(&self) -> Result<&Tensor> {
        match &self.0 {
            Some(tensor) => Ok(tensor),
            None => candle_core::bail!("rows are read before they were computed"),
        }
    }

    pub fn set(&mut self, tensor: Tensor) {
        self.0 = Some(tensor);
    }
}

pub(crate) struct Matrix {
    pub(super) weights: Weights,
    pub bias: Option<Tensor>,
}

pub(super) enum Weights {
    /// Transposed, in the type used for multiplication.
    Dense(Tensor),
    Blocks(QMatMul),
}

impl Matrix {
    pub fn apply(&self, input: &Tensor) -> Result<Tensor> {
        let product = match &self.weights {
            Weights::Dense(weights) => input
                .to_dtype(weights.dtype())?
                .matmul(weights)?
                .to_dtype(DType::F32)?,
            Weights::Blocks(weights) => weights.forward(input)?,
        };
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}

/// Keys and values, with a row for each token of each page.
pub(crate) struct Cache {
    pub keys: Tensor,
    pub values: Tensor,
}

/// Weights of an RMS norm or, with a bias, of a layer norm.
pub(crate) struct Norm {
    pub weights: Tensor,
    pub bias: Option<Tensor>,
}

impl Norm {
    pub fn apply(&self, rows: &Tensor, epsilon: f32) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => candle_nn::ops::layer_norm(rows, &self.weights, bias, epsilon),
            None => candle_nn::ops::rms_norm(rows, &self.weights, epsilon),
        }
    }
}

pub(super) fn activated(activation: Activation, rows: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Silu => rows.silu(),
        Activation::GeluTanh => rows.gelu(),
        Activation::Gelu => rows.gelu_erf(),
    }
}
