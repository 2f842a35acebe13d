//! Reads the size of a model's weights from the headers of its safetensors files. The headers are checked in
//! full, because files may be truncated or untrusted; the weights themselves are not read.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use reading::{self, UniqueEntries};

use super::error::FileError;

/// The longest header that is read; the format allows no more.
const HEADER_MAX: u64 = 100_000_000;
const INDEX_MAX: u64 = 64 << 20;
/// Limit of entries of a folder that are looked at.
const FILES_MAX: usize = 10_000;
const INDEX_NAME: &str = "model.safetensors.index.json";
const SINGLE_NAME: &str = "model.safetensors";

/// The size of a model's weights. Tied tensors are stored once and count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// The size of all weights in the files.
    pub stored_bytes: u64,
    /// Floating-point numbers, which engines may convert to another width.
    pub float_elements: u64,
    /// Everything else, which stays as it is.
    pub other_bytes: u64,
    /// Matrices of wide numbers whose rows consist of complete blocks of 32, and of 256; embedding tables are
    /// separate.
    pub rows: [Rows; 2],
    pub tables: [Rows; 2],
    /// Whether there is a head in addition to the embedding table.
    pub has_head: bool,
}

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
    /// The bytes when every floating-point number takes `float_bytes`.
    pub fn held_in(self, float_bytes: u64) -> u64 {
        self.float_elements
            .saturating_mul(float_bytes)
            .saturating_add(self.other_bytes)
    }

    /// The matrices for multiplication, in rows of complete blocks of 32 and of 256: an embedding table counts
    /// if it is also the head.
    pub fn matrices(self) -> [Rows; 2] {
        match self.has_head {
            true => self.rows,
            false => both(self.rows, self.tables),
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

/// What is wrong with each file of a folder that can be told by its header, and with the list of them.
pub(super) fn problems(folder: &Path) -> Vec<FileError> {
    let files = match has_weights(folder) {
        true => weight_files(folder),
        false => others(folder),
    };
    match files {
        Ok(files) => files
            .iter()
            .filter_map(|file| file_weights(file).err())
            .collect(),
        Err(error) => vec![error],
    }
}

/// Files that are called otherwise, which some engines read.
fn others(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let listing = std::fs::read_dir(folder).map_err(|source| unreadable(folder, source))?;
    let files = listing
        .take(FILES_MAX)
        .filter_map(|file| Some(file.ok()?.path()));
    let is_weights = |file: &PathBuf| file.extension().is_some_and(|it| it == "safetensors");
    let mut files: Vec<PathBuf> = files.filter(is_weights).collect();
    files.sort();
    Ok(files)
}

/// The weights of a folder, or of one `.safetensors` file.
pub fn weights_of(path: &Path) -> Result<Weights, FileError> {
    weight_files(path)?
        .iter()
        .map(|file| file_weights(file))
        .try_fold(Weights::default(), |sum, weights| Ok(sum.add(weights?)))
}

fn weight_files(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let metadata = std::fs::metadata(path).map_err(|source| unreadable(path, source))?;
    if metadata.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let index = path.join(INDEX_NAME);
    if index.exists() {
        return shards(path, &index);
    }
    let single = path.join(SINGLE_NAME);
    if single.exists() {
        return Ok(vec![single]);
    }
    Err(no_weights(path))
}

/// Whether a folder has files that `weights_of` reads.
pub fn has_weights(folder: &Path) -> bool {
    [INDEX_NAME, SINGLE_NAME]
        .iter()
        .any(|name| folder.join(name).exists())
}

pub fn no_weights(folder: &Path) -> FileError {
    FileError::Broken {
        path: folder.to_owned(),
        problem: format!("the folder holds neither {SINGLE_NAME} nor {INDEX_NAME}"),
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The files that the index names. They must be in the same folder.
fn shards(folder: &Path, index: &Path) -> Result<Vec<PathBuf>, FileError> {
    let text = read_text(index, INDEX_MAX)?;
    let read: Index = reading::json(&text).map_err(|flaw| FileError::Broken {
        path: index.to_owned(),
        problem: flaw.to_string(),
    })?;
    let names: BTreeSet<&String> = read.weight_map.values().collect();
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        if name.contains(['/', '\\']) || !name.ends_with(".safetensors") {
            return Err(FileError::Broken {
                path: index.to_owned(),
                problem: format!(
                    "it names `{name}`, which is not a safetensors file in the same folder"
                ),
            });
        }
        files.push(folder.join(name));
    }
    if files.is_empty() {
        return Err(FileError::Broken {
            path: index.to_owned(),
            problem: "its weight_map is empty".to_owned(),
        });
    }
    let missing: Vec<&PathBuf> = files.iter().filter(|file| !file.exists()).collect();
    if let Some(first) = missing.first() {
        return Err(FileError::Broken {
            path: (*first).clone(),
            problem: format!(
                "this file is missing, with {} of the {} that {INDEX_NAME} names; download the model again",
                missing.len(),
                files.len()
            ),
        });
    }
    Ok(files)
}

/// A text file of at most `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> Result<String, FileError> {
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    let mut text = String::new();
    file.take(limit + 1)
        .read_to_string(&mut text)
        .map_err(|source| unreadable(path, source))?;
    if text.len() as u64 > limit {
        return Err(FileError::Broken {
            path: path.to_owned(),
            problem: format!("it is larger than the {limit} bytes that are read"),
        });
    }
    Ok(text)
}

fn unreadable(path: &Path, source: io::Error) -> FileError {
    FileError::Read {
        path: path.to_owned(),
        source,
    }
}

#[derive(Debug, Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// A header's entries: tensors, and one object of free-form strings.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum HeaderEntry {
    Tensor(Tensor),
    Metadata(#[expect(dead_code, reason = "only its form is checked")] BTreeMap<String, String>),
}

fn file_weights(path: &Path) -> Result<Weights, FileError> {
    let broken = |problem: String| FileError::Broken {
        path: path.to_owned(),
        problem,
    };
    let mut file = File::open(path).map_err(|source| unreadable(path, source))?;
    let file_length = file
        .metadata()
        .map_err(|source| unreadable(path, source))?
        .len();
    if file_length < 8 {
        return Err(broken(format!(
            "it is {file_length} bytes long, too short for a header; download it again"
        )));
    }
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix)
        .map_err(|source| unreadable(path, source))?;
    let header_length = u64::from_le_bytes(prefix);
    let allowed = HEADER_MAX.min(file_length - 8);
    if header_length > allowed {
        return Err(broken(format!(
            "its header claims {header_length} bytes, and at most {allowed} are possible in a file of {file_length}; the file is cut off or not a safetensors file, download it again"
        )));
    }
    let mut header = String::new();
    file.take(header_length)
        .read_to_string(&mut header)
        .map_err(|source| unreadable(path, source))?;
    let entries: UniqueEntries<HeaderEntry> =
        reading::json(&header).map_err(|flaw| broken(format!("its header is broken: {flaw}")))?;
    let begin = 8 + header_length;
    let (weights, end) = sum(&entries.0).map_err(broken)?;
    let described = begin.saturating_add(end);
    match described.cmp(&file_length) {
        Ordering::Equal => Ok(weights),
        Ordering::Greater => Err(broken(format!(
            "it is {file_length} bytes long, and its header describes {described}: it is cut off, {} bytes are missing; download it again",
            described - file_length
        ))),
        // Engines refuse it.
        Ordering::Less => Err(broken(format!(
            "it is {file_length} bytes long, and its header describes {described}: it is damaged; download it again"
        ))),
    }
}

/// Adds the tensors up, and checks that they lie one after another. Answers where the last one ends, too.
fn sum(entries: &[(String, HeaderEntry)]) -> Result<(Weights, u64), String> {
    let mut weights = Weights::default();
    let mut places = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let HeaderEntry::Tensor(tensor) = entry else {
            if name == "__metadata__" {
                continue;
            }
            return Err(format!("`{name}` is not a tensor"));
        };
        let (begin, end) = tensor.data_offsets;
        if begin > end {
            return Err(format!(
                "tensor `{name}` lies at bytes {begin} to {end}; the file is cut off or its header is wrong, download it again"
            ));
        }
        let bytes = end - begin;
        let elements = tensor
            .shape
            .iter()
            .try_fold(1_u64, |product, side| product.checked_mul(*side))
            .ok_or_else(|| format!("tensor `{name}` has an impossible shape"))?;
        let kind = kind_of(&tensor.dtype);
        if let Some((bits, _)) = kind
            && u128::from(elements) * u128::from(bits) != u128::from(bytes) * 8
        {
            return Err(format!(
                "tensor `{name}` has {elements} elements of {} in {bytes} bytes, which does not match",
                tensor.dtype
            ));
        }
        let is_float = kind.is_some_and(|(_, is_float)| is_float);
        let rows = [rows_of(tensor, 32), rows_of(tensor, 256)];
        let is_table = name.ends_with("embed_tokens.weight");
        weights = weights.add(Weights {
            stored_bytes: bytes,
            float_elements: if is_float { elements } else { 0 },
            other_bytes: if is_float { 0 } else { bytes },
            rows: if is_table { Default::default() } else { rows },
            tables: if is_table { rows } else { Default::default() },
            has_head: name == "lm_head.weight",
        });
        places.push((begin, end, name));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        if pair[1].0 < pair[0].1 {
            return Err(format!(
                "tensors `{}` and `{}` overlap",
                pair[0].2, pair[1].2
            ));
        }
    }
    let last = places.iter().map(|(_, end, _)| *end).max();
    Ok((weights, last.unwrap_or(0)))
}

/// A tensor that can be stored in blocks of this size: a matrix, or several of one shape.
fn rows_of(tensor: &Tensor, block: u64) -> Rows {
    let is_wide = matches!(tensor.dtype.as_str(), "F32" | "F16" | "BF16");
    let last = tensor.shape.last().copied().unwrap_or(0);
    if !is_wide || tensor.shape.len() < 2 || !last.is_multiple_of(block) {
        return Rows::default();
    }
    Rows {
        elements: tensor.shape.iter().product(),
        stored_bytes: tensor.data_offsets.1 - tensor.data_offsets.0,
    }
}

/// Bits of one element, and whether it is a floating-point number. An unknown type counts with the bytes it
/// takes in the file.
fn kind_of(dtype: &str) -> Option<(u32, bool)> {
    Some(match dtype {
        "F64" => (64, true),
        "F32" => (32, true),
        "F16" | "BF16" => (16, true),
        "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => (8, true),
        "F6_E2M3" | "F6_E3M2" => (6, true),
        "F4" => (4, true),
        "C64" | "I64" | "U64" => (64, false),
        "I32" | "U32" => (32, false),
        "I16" | "U16" => (16, false),
        "I8" | "U8" | "BOOL" => (8, false),
        _ => return None,
    })
}
