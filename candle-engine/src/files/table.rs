//! The location of each tensor of a model: its file, byte range, shape and encoding.

use super::mapped_file::MappedFile;
use crate::error::EngineError;
use crate::stored_tensor::{Encoding, StoredTensor};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The encoding of a tensor in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileEncoding {
    /// An encoding that the engine computes with.
    Plain(Encoding),
    /// A block type that is converted on loading.
    Converted(candle_core::quantized::GgmlDType),
    /// An encoding that this engine does not support.
    Foreign(String),
}

#[derive(Debug, Clone)]
pub(super) struct TensorLocation {
    /// Index into the files of the table.
    pub file: usize,
    pub written: FileEncoding,
    pub shape: Vec<usize>,
    /// Byte range, checked to lie within the file.
    pub range: Range<usize>,
    /// The file stores the columns of `shape` as rows. Such a matrix is transposed on loading.
    pub transposed: bool,
}

impl TensorLocation {
    /// Selects `rows` of part `index` of a three-dimensional tensor, such as stacked experts.
    pub fn part(&self, index: usize, rows: Range<usize>) -> Option<Self> {
        let [parts, all_rows, columns] = self.shape[..] else {
            return None;
        };
        let row_bytes = self.range.len().checked_div(parts.checked_mul(all_rows)?)?;
        if index >= parts || rows.end > all_rows {
            return None;
        }
        let start = self.range.start + (index * all_rows + rows.start) * row_bytes;
        Some(Self {
            shape: vec![rows.len(), columns],
            range: start..start + rows.len() * row_bytes,
            ..self.clone()
        })
    }
}

/// All tensors of a model.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The file that lists the tensors.
    pub described_by: PathBuf,
    pub files: Vec<Arc<MappedFile>>,
    pub places: BTreeMap<String, TensorLocation>,
}

impl Table {
    /// The file that contains a tensor, or should contain it.
    pub fn path_of(&self, name: &str) -> &Path {
        let place = self.places.get(name);
        place.map_or(&self.described_by, |place| &self.files[place.file].path)
    }

    /// Returns the tensor at a place, in its stored layout.
    ///
    /// # Errors
    /// If this engine does not compute with its encoding.
    pub fn stored(&self, name: &str, place: &TensorLocation) -> Result<StoredTensor, EngineError> {
        let wrong = |problem: String| {
            EngineError::model(self.path_of(name), problem, super::folder::REMEDY)
        };
        match &place.written {
            _ if place.transposed => Err(wrong(format!(
                "the tensor {name} is stored transposed, and is only read when the model loads"
            ))),
            FileEncoding::Plain(encoding) => {
                let file = self.files[place.file].clone();
                StoredTensor::new(*encoding, place.shape.clone(), file, place.range.clone()).ok_or_else(
                    || {
                        wrong(format!(
                            "the tensor {name} has {} bytes, which does not match {:?} numbers of shape {:?}",
                            place.range.len(),
                            encoding,
                            place.shape
                        ))
                    },
                )
            }
            FileEncoding::Converted(kind) => Err(wrong(format!(
                "the tensor {name} has type {kind:?}, which is only read when the model loads"
            ))),
            FileEncoding::Foreign(kind) => Err(wrong(foreign(name, kind))),
        }
    }
}

/// The message for an unsupported type.
pub(super) fn foreign(name: &str, kind: &str) -> String {
    format!(
        "the tensor {name} has type {kind}; this engine supports F32, F16, BF16, and of GGUF files Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K"
    )
}
