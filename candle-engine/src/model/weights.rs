//! Loads a decoder's tensors from their files into matrices and vectors of a device.

use super::compute::Compute;
use crate::error::EngineError;
use crate::files::ModelFiles;
use crate::kernels::dequantise;
use crate::spec::Spec;
use crate::stored_tensor::{Encoding, StoredTensor};
use candle_core::quantized::GgmlDType;
use half::{bf16, f16};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const REMEDY: &str = "the weights do not belong to this configuration: download the model again";

/// A source of a model's tensors, by their names in `transformers`.
pub(crate) trait Tensors {
    /// The file or folder, for error messages.
    fn place(&self) -> &Path;
    /// Returns a tensor, or `None` if the model does not have it.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn tensor(&self, name: &str) -> Result<Option<StoredTensor>, EngineError>;
}

impl Tensors for ModelFiles {
    fn place(&self) -> &Path {
        self.description()
    }

    fn tensor(&self, name: &str) -> Result<Option<StoredTensor>, EngineError> {
        self.maybe_tensor(name)
    }
}

/// Records the tensors that are read, to load them again later.
pub(super) struct TensorRecorder<'a> {
    tensors: &'a dyn Tensors,
    taken: RefCell<BTreeMap<String, StoredTensor>>,
}

impl<'a> TensorRecorder<'a> {
    pub fn new(tensors: &'a dyn Tensors) -> Self {
        Self {
            tensors,
            taken: RefCell::default(),
        }
    }

    /// The recorded tensors.
    pub fn kept(self) -> HostTensors {
        HostTensors {
            place: self.tensors.place().to_owned(),
            tensors: self.taken.into_inner(),
        }
    }
}

impl Tensors for TensorRecorder<'_> {
    fn place(&self) -> &Path {
        self.tensors.place()
    }

    fn tensor(&self, name: &str) -> Result<Option<StoredTensor>, EngineError> {
        let tensor = self.tensors.tensor(name)?;
        if let Some(stored) = &tensor {
            self.taken
                .borrow_mut()
                .insert(name.to_owned(), stored.clone());
        }
        Ok(tensor)
    }
}

/// Tensors in host memory: pages of mapped files, and tensors that were converted on loading.
pub(super) struct HostTensors {
    place: PathBuf,
    tensors: BTreeMap<String, StoredTensor>,
}

impl Tensors for HostTensors {
    fn place(&self) -> &Path {
        &self.place
    }

    fn tensor(&self, name: &str) -> Result<Option<StoredTensor>, EngineError> {
        Ok(self.tensors.get(name).cloned())
    }
}

/// The embedding. Always read on the host, because a step needs only a few of its rows.
pub(super) struct Table {
    stored: StoredTensor,
    rows: usize,
}

impl Table {
    /// Copies the row of a token.
    pub fn row(&self, token: u32, numbers: &mut [f32]) -> candle_core::Result<()> {
        let row_bytes = self.stored.bytes().len() / self.rows;
        let first = token as usize * row_bytes;
        let Some(row) = self.stored.bytes().get(first..first + row_bytes) else {
            candle_core::bail!("the embedding has no row {token}");
        };
        dequantise(self.stored.encoding, row, numbers);
        Ok(())
    }
}

/// Loads tensors for one device, and counts their bytes.
pub(super) struct Loader<'a, C> {
    pub tensors: &'a dyn Tensors,
    pub compute: &'a C,
    /// Called with the size of each tensor; an error aborts the load.
    pub taken: &'a dyn Fn(u64) -> Result<(), EngineError>,
    /// Size of the weights on the device, in bytes.
    pub bytes: Cell<u64>,
}

impl<C: Compute> Loader<'_, C> {
    /// Loads `NAME.weight` as a matrix, with `NAME.bias` if `bias`.
    pub fn matrix(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
        bias: bool,
    ) -> Result<C::Matrix, EngineError> {
        let [matrix] = self.parts(name, [rows], columns, bias)?;
        Ok(matrix)
    }

    /// Splits `NAME.weight` into the matrices stacked in it.
    pub fn parts<const N: usize>(
        &self,
        name: &str,
        rows: [usize; N],
        columns: usize,
        bias: bool,
    ) -> Result<[C::Matrix; N], EngineError> {
        let all = rows.iter().sum();
        let weights = self.take(&format!("{name}.weight"), &[all, columns])?;
        let bias = if bias {
            Some(self.floats(&format!("{name}.bias"), all)?)
        } else {
            None
        };
        self.cut(name, &weights, rows, bias.as_deref())
    }

    /// Loads the head: a separate matrix, or the embedding if tied, with `lm_head.bias` if the model has one.
    pub fn head(&self, spec: &Spec) -> Result<C::Matrix, EngineError> {
        let name = if spec.ties_head {
            "model.embed_tokens"
        } else {
            "lm_head"
        };
        let shape = [spec.vocabulary, spec.hidden];
        let weights = self.take(&format!("{name}.weight"), &shape)?;
        let bias = if spec.head_bias {
            Some(self.floats("lm_head.bias", spec.vocabulary)?)
        } else {
            None
        };
        let [matrix] = self.cut(name, &weights, [spec.vocabulary], bias.as_deref())?;
        Ok(matrix)
    }

    fn cut<const N: usize>(
        &self,
        name: &str,
        weights: &StoredTensor,
        rows: [usize; N],
        bias: Option<&[f32]>,
    ) -> Result<[C::Matrix; N], EngineError> {
        let mut first = 0;
        let mut matrices = Vec::with_capacity(N);
        for count in rows {
            let part = weights.rows(first..first + count).ok_or_else(|| {
                self.wrong(name, "its rows are not complete blocks of its encoding")
            })?;
            let bias = bias.map(|bias| &bias[first..first + count]);
            let matrix = self
                .compute
                .matrix(&part, bias)
                .map_err(|error| self.wrong(name, error))?;
            self.bytes.set(
                self.bytes.get()
                    + self.compute.matrix_bytes(&part)
                    + 4 * bias.map_or(0, <[_]>::len) as u64,
            );
            matrices.push(matrix);
            first += count;
        }
        matrices
            .try_into()
            .map_err(|_| self.wrong(name, "it cannot be cut"))
    }

    /// Loads `NAME.weight` as the weights of an RMS norm.
    pub fn norm(&self, name: &str, width: usize, adds_one: bool) -> Result<C::Norm, EngineError> {
        self.norm_with(name, width, adds_one, false)
    }

    /// Loads a norm over hidden states: an RMS norm, or a layer norm with `NAME.bias`.
    pub fn hidden_norm(&self, name: &str, spec: &Spec) -> Result<C::Norm, EngineError> {
        self.norm_with(name, spec.hidden, spec.norm.adds_one, spec.norm.centred)
    }

    fn norm_with(
        &self,
        name: &str,
        width: usize,
        adds_one: bool,
        centred: bool,
    ) -> Result<C::Norm, EngineError> {
        let mut weights = self.floats(&format!("{name}.weight"), width)?;
        if adds_one {
            weights.iter_mut().for_each(|weight| *weight += 1.0);
        }
        let bias = if centred {
            Some(self.floats(&format!("{name}.bias"), width)?)
        } else {
            None
        };
        let rows = 1 + u64::from(centred);
        self.bytes.set(self.bytes.get() + 4 * rows * width as u64);
        self.compute
            .norm_weights(&weights, bias.as_deref())
            .map_err(|error| self.wrong(name, error))
    }

    /// Loads a one-dimensional tensor as F32.
    pub fn floats(&self, name: &str, width: usize) -> Result<Vec<f32>, EngineError> {
        let stored = self.take(name, &[width])?;
        floats(&stored).ok_or_else(|| {
            self.wrong(
                name,
                format!(
                    "its encoding is {:?}; F32, F16 or BF16 is needed",
                    stored.encoding
                ),
            )
        })
    }

    /// Loads `NAME.weight` as an embedding. Its bytes are counted unless it doubles as the head.
    pub fn table(
        &self,
        name: &str,
        rows: usize,
        width: usize,
        counted: bool,
    ) -> Result<Table, EngineError> {
        let stored = self.take(&format!("{name}.weight"), &[rows, width])?;
        if counted {
            self.bytes
                .set(self.bytes.get() + stored.bytes().len() as u64);
        }
        Ok(Table { stored, rows })
    }

    fn take(&self, name: &str, shape: &[usize]) -> Result<StoredTensor, EngineError> {
        let stored = self
            .tensors
            .tensor(name)?
            .ok_or_else(|| self.wrong(name, "it is missing"))?;
        if stored.shape != shape {
            return Err(self.wrong(
                name,
                format!("its shape is {:?}, and {shape:?} is needed", stored.shape),
            ));
        }
        (self.taken)(stored.bytes().len() as u64)?;
        Ok(stored)
    }

    fn wrong(&self, name: &str, problem: impl std::fmt::Display) -> EngineError {
        EngineError::model(
            self.tensors.place(),
            format!("tensor {name}: {problem}"),
            REMEDY,
        )
    }
}

/// candle's type for an encoding.
pub(super) fn ggml(encoding: Encoding) -> GgmlDType {
    match encoding {
        Encoding::F32 => GgmlDType::F32,
        Encoding::F16 => GgmlDType::F16,
        Encoding::Bf16 => GgmlDType::BF16,
        Encoding::Q4_0 => GgmlDType::Q4_0,
        Encoding::Q8_0 => GgmlDType::Q8_0,
        Encoding::Q4K => GgmlDType::Q4K,
        Encoding::Q5K => GgmlDType::Q5K,
        Encoding::Q6K => GgmlDType::Q6K,
    }
}

/// Decodes a tensor that is not in blocks.
fn floats(stored: &StoredTensor) -> Option<Vec<f32>> {
    let bytes = stored.bytes();
    match stored.encoding {
        Encoding::F32 => Some(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|number| f32::from_le_bytes(*number))
                .collect(),
        ),
        Encoding::F16 => Some(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|number| f16::from_le_bytes(*number).to_f32())
                .collect(),
        ),
        Encoding::Bf16 => Some(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|number| bf16::from_le_bytes(*number).to_f32())
                .collect(),
        ),
        _ => None,
    }
}
