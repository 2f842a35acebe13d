//! The tensors of a model in F32, read from its files when an instance first needs them and shared by all instances.

use crate::files::ModelFiles;
use crate::stored_tensor::{Encoding, StoredTensor};
use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Embedding, Init, Linear, VarBuilder, linear_no_bias};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Position embeddings, of which only the rows of the served context are read.
const POSITIONS: &str = "wpe.weight";

#[derive(Clone)]
pub(super) struct SharedWeights(Arc<Weights>);

struct Weights {
    stored: BTreeMap<String, StoredTensor>,
    device: Device,
    /// Tensors that instances use.
    read: Mutex<BTreeMap<String, Tensor>>,
}

impl SharedWeights {
    /// Collects the tensors of `files` without reading them. Tensors in other encodings than F32, F16 and BF16 are left out, such as
    /// masks that old files contain.
    pub fn new(files: &ModelFiles, device: Device) -> Self {
        let stored = files.tensor_names().filter_map(|name| {
            let tensor = files.maybe_tensor(name).ok().flatten()?;
            dtype(tensor.encoding).map(|_| (name.to_owned(), tensor))
        });
        Self(Arc::new(Weights {
            stored: stored.collect(),
            device,
            read: Mutex::default(),
        }))
    }

    /// A view for creating an instance.
    pub fn view(&self) -> VarBuilder<'static> {
        let device = self.0.device.clone();
        VarBuilder::from_backend(Box::new(self.clone()), DType::F32, device)
    }

    /// Bytes of the tensors read so far.
    pub fn bytes(&self) -> u64 {
        let read = self.read();
        read.values()
            .map(|tensor| tensor.elem_count() as u64 * 4)
            .sum()
    }

    /// Forgets the tensors read so far. They are read again when needed.
    pub fn forget(&self) {
        self.read().clear();
    }

    pub fn device(&self) -> &Device {
        &self.0.device
    }

    fn read(&self) -> MutexGuard<'_, BTreeMap<String, Tensor>> {
        self.0.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a tensor; of position embeddings, the first rows that `shape` asks for.
    fn tensor(&self, name: &str, shape: Option<&Shape>) -> Result<Tensor> {
        if let Some(tensor) = self.read().get(name) {
            return Ok(tensor.clone());
        }
        let Some(stored) = self.0.stored.get(name) else {
            candle_core::bail!("the tensor {name} is missing, or is not in F32, F16 or BF16");
        };
        let rows = shape.filter(|_| name.ends_with(POSITIONS)).map(Shape::dims);
        let part = match rows {
            Some([rows, _]) => stored.rows(0..*rows),
            _ => None,
        };
        let stored = part.as_ref().unwrap_or(stored);
        let Some(dtype) = dtype(stored.encoding) else {
            candle_core::bail!("the tensor {name} is in {:?}", stored.encoding);
        };
        let tensor = Tensor::from_raw_buffer(stored.bytes(), dtype, &stored.shape, &Device::Cpu)?
            .to_dtype(DType::F32)?
            .to_device(&self.0.device)?;
        self.read().insert(name.to_owned(), tensor.clone());
        Ok(tensor)
    }
}

fn dtype(encoding: Encoding) -> Option<DType> {
    match encoding {
        Encoding::F32 => Some(DType::F32),
        Encoding::F16 => Some(DType::F16),
        Encoding::Bf16 => Some(DType::BF16),
        Encoding::Q4_0 | Encoding::Q8_0 | Encoding::Q4K | Encoding::Q5K | Encoding::Q6K => None,
    }
}

impl SimpleBackend for SharedWeights {
    fn get(&self, shape: Shape, name: &str, _: Init, _: DType, _: &Device) -> Result<Tensor> {
        let tensor = self.tensor(name, Some(&shape))?;
        if *tensor.shape() == shape {
            Ok(tensor)
        } else {
            candle_core::bail!(
                "the tensor {name} has shape {:?}, config.json says {:?}",
                tensor.dims(),
                shape.dims()
            )
        }
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        self.tensor(name, None)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.stored.contains_key(name)
    }
}

/// The matrix that computes logits: the embedding's own if it `is_tied`, and otherwise `lm_head`.
pub(super) fn head(
    embedding: &Embedding,
    is_tied: bool,
    weights: &VarBuilder<'_>,
) -> Result<Linear> {
    let matrix = embedding.embeddings();
    if is_tied {
        return Ok(Linear::new(matrix.clone(), None));
    }
    let (vocabulary, hidden) = matrix.dims2()?;
    linear_no_bias(hidden, vocabulary, weights.pp("lm_head"))
}
