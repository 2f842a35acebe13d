//! GGUF models: the header of each file ([`Header`]), and the architecture values and weight size of a model's files together
//! ([`Gguf`]).

mod header;
mod reader;
mod value;

use std::path::{Path, PathBuf};

use crate::error::FileError;

pub use header::{Detail, Header, TensorEntry};
pub use value::{List, Value, Values, integer};

/// Maximum number of files of one model.
const PARTS_MAX: u32 = 10_000;

/// Architecture and size of a model, from the headers of its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gguf {
    /// The values of the first file.
    pub values: Values,
    /// Bytes of all tensors in all files.
    pub tensor_bytes: u64,
    pub elements: u64,
    /// All tensors of all files.
    pub tensors: Vec<TensorSize>,
}

/// The name and size of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSize {
    pub name: String,
    pub bytes: u64,
    /// The length of a row, and the number of rows.
    pub row: u64,
    pub rows: u64,
}

impl Gguf {
    /// Reads a model's file. For a split model (`-00001-of-00003.gguf`), `path` may be any part, and all parts are read.
    pub fn read(path: &Path) -> Result<Gguf, FileError> {
        let mut gguf = Gguf::default();
        for (index, part) in parts_of(path)?.iter().enumerate() {
            let header = Header::read(part, Detail::Architecture)?;
            if index == 0 {
                gguf.values = header.values;
            }
            for tensor in header.tensors {
                let bytes = tensor.bytes.ok_or_else(|| FileError::Unknown {
                    path: part.clone(),
                    problem: format!(
                        "tensor `{}` has the number format {}, which is not known",
                        tensor.name, tensor.format
                    ),
                })?;
                gguf.tensor_bytes = gguf.tensor_bytes.saturating_add(bytes);
                gguf.elements = gguf.elements.saturating_add(tensor.elements);
                let row = tensor.shape.first().copied().unwrap_or(1);
                gguf.tensors.push(TensorSize {
                    name: tensor.name,
                    bytes,
                    row,
                    rows: tensor.elements / row.max(1),
                });
            }
        }
        Ok(gguf)
    }

    /// The number of rows of a tensor, if it exists.
    pub(crate) fn rows_of(&self, name: &str) -> Option<u64> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name)?;
        Some(tensor.rows)
    }
}

/// The parts of the model that this file belongs to, in order; only the file itself if it is not split.
pub fn parts_of(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let Some((stem, _, count)) = path.file_name().and_then(|name| part_name(name.to_str()?)) else {
        return Ok(vec![path.to_owned()]);
    };
    let parts: Vec<PathBuf> = (1..=count)
        .map(|part| path.with_file_name(format!("{stem}-{part:05}-of-{count:05}.gguf")))
        .collect();
    match parts.iter().find(|part| !part.exists()) {
        None => Ok(parts),
        Some(missing) => Err(FileError::Broken {
            path: missing.clone(),
            problem: format!("this part of a model in {count} files is missing"),
        }),
    }
}

/// Stem, number and count in a part's name.
pub fn part_name(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        let is_number = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u32>().ok()).flatten()
    };
    let (part, count) = (number(part)?, number(count)?);
    ((1..=count).contains(&part) && count <= PARTS_MAX).then_some((stem, part, count))
}
