//! Loads an encoder's weights from their files onto the device, checking names, shapes and types.
//!
//! Embeddings are compared with embeddings from other programs, so they are computed in F32 on every device: on the CPU with
//! matrices in their mapped files, on GPUs with F32 copies.

use crate::error::EngineError;
use crate::files::ModelFiles;
use crate::kernels::{Matrix, Pool};
use crate::stored_tensor::{Encoding, StoredTensor};
use candle_core::{DType, Device, Tensor};
use std::sync::Arc;

const REMEDY: &str =
    "the weights do not belong to this config.json: download the model's folder again";

/// Reads the tensors of a folder one by one.
pub(crate) struct Tensors<'a> {
    files: &'a ModelFiles,
    device: &'a Device,
    /// The CPU's compute threads.
    pool: Option<Arc<Pool>>,
    /// Bytes read so far.
    pub bytes: u64,
    /// The part of `bytes` that stays in mapped files.
    pub mapped_bytes: u64,
}

impl<'a> Tensors<'a> {
    /// `pool` must be set if the device is the CPU.
    pub fn new(files: &'a ModelFiles, device: &'a Device, pool: Option<Arc<Pool>>) -> Self {
        Self {
            files,
            device,
            pool,
            bytes: 0,
            mapped_bytes: 0,
        }
    }

    pub fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.clone()
    }

    /// Returns a matrix in its stored layout.
    ///
    /// # Errors
    /// If the tensor is missing, or has another shape or type.
    pub fn matrix(&mut self, name: &str, shape: &[usize]) -> Result<Matrix, EngineError> {
        let stored = self.stored(name, shape)?;
        let bytes = stored.bytes().len() as u64;
        let matrix =
            Matrix::new(stored).map_err(|problem| self.wrong(format!("{name}: {problem}")))?;
        self.bytes += bytes;
        self.mapped_bytes += bytes;
        Ok(matrix)
    }

    pub fn has(&self, name: &str) -> bool {
        matches!(self.files.maybe_tensor(name), Ok(Some(_)))
    }

    /// Returns a tensor of this shape in its stored layout.
    ///
    /// # Errors
    /// If the tensor is missing, or has another shape or type.
    fn stored(&self, name: &str, shape: &[usize]) -> Result<StoredTensor, EngineError> {
        let stored = self.files.tensor(name)?;
        if stored.shape != shape {
            return Err(self.wrong(format!(
                "the tensor {name} has shape {:?}, config.json says {shape:?}",
                stored.shape
            )));
        }
        match stored.encoding {
            Encoding::F32 | Encoding::F16 | Encoding::Bf16 => Ok(stored),
            other => Err(self.wrong(format!(
                "the tensor {name} has type {other:?}; encoders support F32, F16 and BF16"
            ))),
        }
    }

    /// Reads a tensor of this shape onto the device.
    ///
    /// # Errors
    /// See [`Self::stored`]; also if numbers are not finite or the device is out of memory.
    pub fn read(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, EngineError> {
        let stored = self.stored(name, shape)?;
        let dtype = match stored.encoding {
            Encoding::F16 => DType::F16,
            Encoding::Bf16 => DType::BF16,
            _ => DType::F32,
        };
        let failed = |error: candle_core::Error| self.wrong(format!("{name}: {error}"));
        let tensor = Tensor::from_raw_buffer(stored.bytes(), dtype, shape, &Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32))
            .map_err(failed)?;
        let flat = tensor.flatten_all().map_err(failed)?;
        let numbers: Vec<f32> = flat.to_vec1().map_err(failed)?;
        if let Some(place) = numbers.iter().position(|number| !number.is_finite()) {
            return Err(self.wrong(format!(
                "the tensor {name} has a number that is not finite ({}) at index {place}",
                numbers[place]
            )));
        }
        let tensor = tensor.to_device(self.device).map_err(failed)?;
        self.bytes += 4 * numbers.len() as u64;
        Ok(tensor)
    }

    pub fn device(&self) -> &'a Device {
        self.device
    }

    fn wrong(&self, problem: String) -> EngineError {
        EngineError::model(self.files.description(), problem, REMEDY)
    }
}
