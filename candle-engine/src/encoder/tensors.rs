//! Owns the way of an encoder's weights from safetensors files to the device, as F32. Never trusts a file: names, shapes,
//! types and numbers are checked.
//!
//! Encoders are small, and embeddings are compared with others that were computed elsewhere, so they are computed in F32 on
//! every device.

use crate::error::EngineError;
use crate::loading::Progress;
use crate::model_config::read_json;
use crate::safetensors_header::Header;
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";
const REMEDY: &str =
    "the weights do not belong to this config.json: download the model's folder again";

/// One file of weights.
struct Shard {
    path: PathBuf,
    file: File,
    header: Header,
}

/// The tensors of a folder, read one by one.
pub(crate) struct Tensors<'a> {
    shards: Vec<Shard>,
    device: &'a Device,
    progress: Option<&'a Progress>,
    /// Bytes of the files together, and of those that were read.
    total: u64,
    done: u64,
    /// Bytes on the device.
    pub bytes: u64,
}

impl<'a> Tensors<'a> {
    /// Opens the files and reads their headers.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn open(
        folder: &Path,
        device: &'a Device,
        progress: Option<&'a Progress>,
    ) -> Result<Self, EngineError> {
        let mut shards = Vec::new();
        let mut total = 0;
        for path in files_of(folder)? {
            let mut file = File::open(&path).map_err(|error| {
                EngineError::model(
                    &path,
                    format!("it cannot be opened ({error})"),
                    "download the model's folder completely",
                )
            })?;
            let header = Header::read(&mut file, &path)?;
            total += file.metadata().map_or(0, |it| it.len());
            shards.push(Shard { path, file, header });
        }
        Ok(Self {
            shards,
            device,
            progress,
            total,
            done: 0,
            bytes: 0,
        })
    }

    pub fn has(&self, name: &str) -> bool {
        self.shards
            .iter()
            .any(|shard| shard.header.tensor(name).is_some())
    }

    /// Reads a tensor of this shape.
    ///
    /// # Errors
    /// One that is missing, has another shape or type, or numbers that are none; a file that ends early.
    pub fn read(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, EngineError> {
        let Some(shard) = self
            .shards
            .iter_mut()
            .find(|shard| shard.header.tensor(name).is_some())
        else {
            let place = self.shards.first().map(|shard| shard.path.clone());
            return Err(EngineError::model(
                place.unwrap_or_default(),
                format!("the tensor {name} is missing"),
                REMEDY,
            ));
        };
        let wrong = |problem: String| EngineError::model(&shard.path, problem, REMEDY);
        let Some(info) = shard.header.tensor(name) else {
            return Err(wrong(format!("the tensor {name} is missing")));
        };
        if info.shape != shape {
            return Err(wrong(format!(
                "the tensor {name} has shape {:?}, config.json says {shape:?}",
                info.shape
            )));
        }
        let dtype = match DType::try_from(info.dtype) {
            Ok(dtype @ (DType::F32 | DType::F16 | DType::BF16)) => dtype,
            _ => {
                return Err(wrong(format!(
                    "the tensor {name} has type {:?}, this engine supports F32, F16 and BF16",
                    info.dtype
                )));
            }
        };
        let (start, end) = info.data_offsets;
        let mut stored = vec![0; end - start];
        let from = shard.header.data_start + start as u64;
        shard
            .file
            .seek(SeekFrom::Start(from))
            .and_then(|_| shard.file.read_exact(&mut stored))
            .map_err(|error| wrong(format!("the tensor {name} cannot be read ({error})")))?;
        let failed = |error: candle_core::Error| wrong(format!("{name}: {error}"));
        let tensor = Tensor::from_raw_buffer(&stored, dtype, shape, &Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32))
            .map_err(failed)?;
        let flat = tensor.flatten_all().map_err(failed)?;
        let numbers: Vec<f32> = flat.to_vec1().map_err(failed)?;
        if let Some(place) = numbers.iter().position(|number| !number.is_finite()) {
            return Err(wrong(format!(
                "the tensor {name} has a number that is none ({}) at place {place}",
                numbers[place]
            )));
        }
        self.done += stored.len() as u64;
        self.bytes += 4 * numbers.len() as u64;
        if let Some(progress) = self.progress {
            progress.weights(self.done, self.total)?;
        }
        tensor.to_device(self.device).map_err(failed)
    }

    pub fn device(&self) -> &'a Device {
        self.device
    }
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, EngineError> {
    let (single, index) = (folder.join(SINGLE_FILE), folder.join(INDEX_FILE));
    if single.exists() {
        return Ok(vec![single]);
    }
    let Some(json) = read_json(&index)? else {
        return Err(EngineError::model(
            folder,
            format!("it has neither {SINGLE_FILE} nor {INDEX_FILE}"),
            "download the weights as safetensors",
        ));
    };
    let Some(places) = json["weight_map"].as_object() else {
        return Err(EngineError::model(index, "it has no weight_map", REMEDY));
    };
    let mut files = BTreeSet::new();
    for (tensor, file) in places {
        // A shard lies beside its index; anything else could point anywhere on the machine.
        let name = file.as_str().unwrap_or_default();
        if Path::new(name).file_name().is_none_or(|it| it != name) {
            return Err(EngineError::model(
                &index,
                format!("{tensor} is said to be in {file}, which is not a plain file name"),
                REMEDY,
            ));
        }
        files.insert(folder.join(name));
    }
    Ok(files.into_iter().collect())
}
