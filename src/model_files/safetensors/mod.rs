//! Safetensors models: the header of each file ([`Header`]), the files of a folder ([`WeightFiles`]), and the size of all weights
//! ([`Weights`]).

mod files;
mod header;

use std::path::{Path, PathBuf};

use crate::error::FileError;

use files::safetensors_in;
use header::number_type;

pub use files::{WeightFiles, has_weights, no_weights, read_text};
pub use header::{Header, TensorEntry};

/// The size of a model's weights. Tied tensors are stored and counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// The size of all weights in the files.
    pub stored_bytes: u64,
    /// Floating-point numbers, which engines may convert to another width.
    pub float_elements: u64,
    /// All other data, which is not converted.
    pub other_bytes: u64,
    /// Matrices of wide numbers whose rows consist of complete blocks of 32, and of 256; embedding tables are counted separately.
    pub rows: [Rows; 2],
    pub tables: [Rows; 2],
    /// The model has a head in addition to the embedding table.
    pub has_head: bool,
}

/// Names of embedding tables; the later ones belong to GPT-J, GPT-2 and GPT-NeoX.
const TABLES: [&str; 3] = ["embed_tokens.weight", "wte.weight", "embed_in.weight"];
/// Learned position embeddings, which are not converted.
const POSITIONS: [&str; 1] = ["wpe.weight"];
const HEADS: [&str; 2] = ["lm_head.weight", "embed_out.weight"];
/// Matrices of GPT-2, which are transposed in the file.
const TRANSPOSED: [&str; 3] = [".c_attn.weight", ".c_proj.weight", ".c_fc.weight"];

/// Matrices of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub elements: u64,
    pub stored_bytes: u64,
}

fn both(one: [Rows; 2], other: [Rows; 2]) -> [Rows; 2] {
    [one[0].add(other[0]), one[1].add(other[1])]
}

impl Rows {
    fn add(self, other: Rows) -> Rows {
        Rows {
            elements: self.elements.saturating_add(other.elements),
            stored_bytes: self.stored_bytes.saturating_add(other.stored_bytes),
        }
    }
}

impl Weights {
    /// Bytes if every floating-point number takes `float_bytes`.
    pub fn held_in(self, float_bytes: u64) -> u64 {
        self.float_elements
            .saturating_mul(float_bytes)
            .saturating_add(self.other_bytes)
    }

    /// The matrices for multiplication, in rows of complete blocks of 32 and of 256. An embedding table counts if it is also the
    /// head.
    pub fn matrices(self) -> [Rows; 2] {
        if self.has_head {
            self.rows
        } else {
            both(self.rows, self.tables)
        }
    }

    fn of_tensor(tensor: &TensorEntry) -> Weights {
        let is_float = number_type(&tensor.dtype).is_some_and(|(_, is_float)| is_float);
        let rows = [rows_of(tensor, 32), rows_of(tensor, 256)];
        let is_one_of = |names: &[&str]| names.iter().any(|name| tensor.name.ends_with(name));
        let is_table = is_one_of(&TABLES);
        let rows = if is_one_of(&POSITIONS) {
            Default::default()
        } else {
            rows
        };
        Weights {
            stored_bytes: tensor.bytes(),
            float_elements: if is_float { tensor.elements } else { 0 },
            other_bytes: if is_float { 0 } else { tensor.bytes() },
            rows: if is_table { Default::default() } else { rows },
            tables: if is_table { rows } else { Default::default() },
            has_head: HEADS.contains(&tensor.name.as_str()),
        }
    }

    fn add(self, other: Weights) -> Weights {
        Weights {
            stored_bytes: self.stored_bytes.saturating_add(other.stored_bytes),
            float_elements: self.float_elements.saturating_add(other.float_elements),
            other_bytes: self.other_bytes.saturating_add(other.other_bytes),
            rows: both(self.rows, other.rows),
            tables: both(self.tables, other.tables),
            has_head: self.has_head || other.has_head,
        }
    }
}

/// Problems in the headers of a folder's files, and in the index.
pub(super) fn problems(folder: &Path) -> Vec<FileError> {
    let files: Vec<PathBuf> = if has_weights(folder) {
        match WeightFiles::of_folder(folder) {
            Ok(files) => files.paths().into_iter().map(Path::to_owned).collect(),
            Err(error) => return vec![error],
        }
    } else {
        // Files with other names, which some engines read.
        safetensors_in(folder)
    };
    files
        .iter()
        .filter_map(|file| Header::read(file).err())
        .collect()
}

/// The weights of a folder, or of one `.safetensors` file.
pub fn weights_of(path: &Path) -> Result<Weights, FileError> {
    let metadata = std::fs::metadata(path).map_err(|source| FileError::Read {
        path: path.to_owned(),
        source,
    })?;
    let files = if metadata.is_file() {
        WeightFiles::One(path.to_owned())
    } else {
        WeightFiles::of_folder(path)?
    };
    let mut sum = Weights::default();
    for file in files.paths() {
        for tensor in &Header::read(file)?.tensors {
            sum = sum.add(Weights::of_tensor(tensor));
        }
    }
    Ok(sum)
}

/// Rows of a tensor that can be stored in blocks of this size: a matrix, or several matrices of the same shape.
fn rows_of(tensor: &TensorEntry, block: u64) -> Rows {
    let is_wide = matches!(tensor.dtype.as_str(), "F32" | "F16" | "BF16");
    let is_transposed = TRANSPOSED.iter().any(|name| tensor.name.ends_with(name));
    let columns = if is_transposed {
        tensor.shape.first()
    } else {
        tensor.shape.last()
    };
    let columns = columns.copied().unwrap_or(0);
    if !is_wide || tensor.shape.len() < 2 || !columns.is_multiple_of(block) {
        return Rows::default();
    }
    Rows {
        elements: tensor.elements,
        stored_bytes: tensor.bytes(),
    }
}
