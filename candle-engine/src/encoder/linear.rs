//! The matrices, norms and embeddings of an encoder: loading by name, and application to rows.

use super::operations;
use super::spec::Activation;
use super::tensors::Tensors;
use crate::error::EngineError;
use crate::kernels::{Matrix, Pool, multiply_all};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor, bail};
use std::sync::Arc;

/// `input · weightᵀ + bias`.
pub(crate) struct Linear {
    weight: Weight,
    inputs: usize,
    outputs: usize,
}

enum Weight {
    /// On the CPU: in its stored layout, with its bias.
    Mapped { matrix: Matrix, pool: Arc<Pool> },
    /// On other devices: a tensor of `[outputs, inputs]`.
    Held {
        weight: Tensor,
        bias: Option<Tensor>,
    },
}

impl Linear {
    pub fn read(
        tensors: &mut Tensors<'_>,
        name: &str,
        inputs: usize,
        outputs: usize,
        has_bias: bool,
    ) -> std::result::Result<Self, EngineError> {
        let (weight_name, shape) = (format!("{name}.weight"), [outputs, inputs]);
        let bias = if has_bias {
            Some(tensors.read(&format!("{name}.bias"), &[outputs])?)
        } else {
            None
        };
        let weight = match tensors.pool() {
            None => Weight::Held {
                weight: tensors.read(&weight_name, &shape)?,
                bias,
            },
            Some(pool) => {
                let mut matrix = tensors.matrix(&weight_name, &shape)?;
                if let Some(bias) = bias {
                    let bias = bias.to_vec1().map_err(EngineError::load)?;
                    matrix = matrix.with_bias(bias).map_err(EngineError::load)?;
                }
                Weight::Mapped { matrix, pool }
            }
        };
        Ok(Self {
            weight,
            inputs,
            outputs,
        })
    }

    /// Splits the matrix into `parts` with equal numbers of outputs.
    pub fn split(self, parts: usize) -> Result<Vec<Self>> {
        let outputs = self.outputs / parts;
        let part = |index: usize| {
            let rows = index * outputs..(index + 1) * outputs;
            let weight = match &self.weight {
                Weight::Mapped { matrix, pool } => Weight::Mapped {
                    matrix: matrix.rows_of(rows),
                    pool: Arc::clone(pool),
                },
                Weight::Held { weight, bias } => Weight::Held {
                    weight: weight.narrow(0, rows.start, outputs)?,
                    bias: bias
                        .as_ref()
                        .map(|bias| bias.narrow(0, rows.start, outputs))
                        .transpose()?,
                },
            };
            Ok(Self {
                weight,
                inputs: self.inputs,
                outputs,
            })
        };
        (0..parts).map(part).collect()
    }

    /// Multiplies rows with the matrix.
    pub fn apply(&self, rows: &Tensor) -> Result<Tensor> {
        match &self.weight {
            Weight::Mapped { matrix, pool } => {
                let product = rows.apply_op1_no_bwd(&Multiply {
                    matrices: &[matrix],
                    pool,
                })?;
                product.reshape((rows.dim(0)?, self.outputs))
            }
            Weight::Held { weight, bias } => {
                let product = rows.matmul(&weight.t()?)?;
                match bias {
                    Some(bias) => product.broadcast_add(bias),
                    None => Ok(product),
                }
            }
        }
    }

    /// Multiplies rows with each of several matrices.
    pub fn apply_all(linears: &[Self], rows: &Tensor) -> Result<Vec<Tensor>> {
        let mut matrices = Vec::with_capacity(linears.len());
        let mut computing = None;
        for linear in linears {
            if let Weight::Mapped { matrix, pool } = &linear.weight {
                matrices.push(matrix);
                computing = Some(pool);
            }
        }
        let Some(pool) = computing.filter(|_| matrices.len() == linears.len()) else {
            return linears.iter().map(|linear| linear.apply(rows)).collect();
        };
        let count = rows.dim(0)?;
        let products = rows.apply_op1_no_bwd(&Multiply {
            matrices: &matrices,
            pool,
        })?;
        let mut first = 0;
        let part = |linear: &Self| {
            let part = products.narrow(0, first, count * linear.outputs)?;
            first += count * linear.outputs;
            part.reshape((count, linear.outputs))
        };
        linears.iter().map(part).collect()
    }

    pub fn apply_activated(&self, rows: &Tensor, activation: Activation) -> Result<Tensor> {
        operations::activate(self.apply(rows)?, activation)
    }
}

/// The products of rows with several matrices, one after another.
struct Multiply<'a> {
    matrices: &'a [&'a Matrix],
    pool: &'a Pool,
}

impl CustomOp1 for Multiply<'_> {
    fn name(&self) -> &'static str {
        "multiply"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let rows = operations::numbers(self.name(), storage, layout)?;
        let columns = layout.dims().last().copied().unwrap_or(1).max(1);
        if self
            .matrices
            .iter()
            .any(|matrix| matrix.columns() != columns)
        {
            bail!("rows of {columns} numbers do not fit the columns of a matrix");
        }
        let count = rows.len() / columns;
        let outputs: usize = self.matrices.iter().map(|matrix| matrix.rows()).sum();
        let mut products = vec![0.0; count * outputs];
        let mut rest = products.as_mut_slice();
        let mut parts = Vec::with_capacity(self.matrices.len());
        for matrix in self.matrices {
            let (part, others) = rest.split_at_mut(count * matrix.rows());
            parts.push(part);
            rest = others;
        }
        multiply_all(self.pool, self.matrices, rows, &mut parts);
        let shape = Shape::from(products.len());
        Ok((CpuStorage::F32(products), shape))
    }
}

/// An embedding: rows that are looked up by index.
pub(crate) enum Table {
    /// On the CPU: in its stored layout.
    Mapped(Matrix),
    Held(Tensor),
}

impl Table {
    pub fn read(
        tensors: &mut Tensors<'_>,
        name: &str,
        rows: usize,
        width: usize,
    ) -> std::result::Result<Self, EngineError> {
        Ok(match tensors.pool() {
            Some(_) => Self::Mapped(tensors.matrix(name, &[rows, width])?),
            None => Self::Held(tensors.read(name, &[rows, width])?),
        })
    }

    pub fn rows(&self) -> Result<usize> {
        match self {
            Self::Mapped(matrix) => Ok(matrix.rows()),
            Self::Held(tensor) => tensor.dim(0),
        }
    }

    /// Looks up rows; all numbers must be in range.
    pub fn look_up(&self, numbers: Vec<u32>, device: &Device) -> Result<Tensor> {
        let count = numbers.len();
        match self {
            Self::Held(tensor) => {
                tensor.index_select(&Tensor::from_vec(numbers, count, device)?, 0)
            }
            Self::Mapped(matrix) => {
                let width = matrix.columns();
                let mut rows = vec![0.0; count * width];
                for (number, row) in numbers.iter().zip(rows.chunks_exact_mut(width)) {
                    matrix.row(*number as usize, row);
                }
                Tensor::from_vec(rows, (count, width), device)
            }
        }
    }
}

/// Layer norm: each row minus its mean, divided by its standard deviation, times a weight.
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
        // Files converted from TensorFlow use its names.
        let has = |tensors: &Tensors<'_>, end: &str| tensors.has(&format!("{name}.{end}"));
        let older = has(tensors, "gamma") && !has(tensors, "weight");
        let (first, second) = if older {
            ("gamma", "beta")
        } else {
            ("weight", "bias")
        };
        let weight = tensors.read(&format!("{name}.{first}"), &[width])?;
        let bias = if has_bias {
            tensors.read(&format!("{name}.{second}"), &[width])?
        } else {
            weight.zeros_like().map_err(EngineError::load)?
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
