//! The header of one safetensors file: every tensor with its type, shape and position, checked against each other and against the
//! size of the file. Reads no tensor data.
//!
//! The format: <https://github.com/huggingface/safetensors#format>.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use reading::UniqueEntries;
use serde::Deserialize;

use crate::error::FileError;
use crate::regular_file::open_regular;
use crate::stand_in::stand_in;

/// The maximum header size of the format.
const HEADER_MAX: u64 = 100_000_000;
const LENGTH_BYTES: u64 = 8;

/// A header that is consistent with its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Sorted by position.
    pub tensors: Vec<TensorEntry>,
}

/// One tensor of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub elements: u64,
    /// Offsets in the file.
    pub begin: u64,
    pub end: u64,
}

impl TensorEntry {
    pub fn bytes(&self) -> u64 {
        self.end - self.begin
    }
}

/// Bits per element, and whether the type is floating-point. `None` for an unknown type, which counts with its bytes in the file.
pub(super) fn number_type(dtype: &str) -> Option<(u32, bool)> {
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

#[derive(Debug, Deserialize)]
struct TensorDescription {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// A header's entries: tensors, and one object of free-form strings.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Entry {
    Tensor(TensorDescription),
    Metadata(#[expect(dead_code, reason = "only its form is checked")] BTreeMap<String, String>),
}

impl Header {
    pub fn read(path: &Path) -> Result<Header, FileError> {
        let damaged = |problem: String| FileError::Damaged {
            path: path.to_owned(),
            problem,
        };
        let unreadable = |source| FileError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = open_regular(path).map_err(unreadable)?;
        let file_bytes = file.metadata().map_err(unreadable)?.len();
        if file_bytes < LENGTH_BYTES {
            return Err(damaged(format!(
                "it is {file_bytes} bytes long, too short for a header"
            )));
        }
        let mut prefix = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut prefix).map_err(unreadable)?;
        let header_bytes = u64::from_le_bytes(prefix);
        let allowed = HEADER_MAX.min(file_bytes - LENGTH_BYTES);
        if header_bytes > allowed {
            if let Some(error) = stand_in(path) {
                return Err(error);
            }
            return Err(damaged(format!(
                "its header claims {header_bytes} bytes, but at most {allowed} are possible in a file of {file_bytes}; the file is truncated or not a safetensors file"
            )));
        }
        let mut text = Vec::new();
        file.take(header_bytes)
            .read_to_end(&mut text)
            .map_err(unreadable)?;
        let text = String::from_utf8(text)
            .map_err(|_| damaged("its header is broken: it is not UTF-8".to_owned()))?;
        let entries: UniqueEntries<Entry> = reading::json(&text)
            .map_err(|error| damaged(format!("its header is broken: {error}")))?;
        let start = LENGTH_BYTES + header_bytes;
        let tensors = placed(entries.0, start, file_bytes).map_err(damaged)?;
        Ok(Header { tensors })
    }
}

/// Sorts the tensors by their position in the file, which they must fill without gaps and overlaps.
fn placed(
    entries: Vec<(String, Entry)>,
    start: u64,
    file_bytes: u64,
) -> Result<Vec<TensorEntry>, String> {
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        match entry {
            Entry::Tensor(described) => tensors.push(tensor(name, described, start)?),
            Entry::Metadata(_) if name == "__metadata__" => {}
            Entry::Metadata(_) => return Err(format!("`{name}` is not a tensor")),
        }
    }
    tensors.sort_by(|one, other| {
        (one.begin, one.end, &one.name).cmp(&(other.begin, other.end, &other.name))
    });
    if let Some(pair) = tensors.windows(2).find(|pair| pair[1].begin < pair[0].end) {
        return Err(format!(
            "tensors `{}` and `{}` overlap",
            pair[0].name, pair[1].name
        ));
    }
    let mut end = start;
    for tensor in &tensors {
        if tensor.begin != end {
            return Err(format!(
                "the {} bytes before tensor `{}` belong to no tensor",
                tensor.begin - end,
                tensor.name
            ));
        }
        end = tensor.end;
    }
    match end.cmp(&file_bytes) {
        Ordering::Equal => Ok(tensors),
        Ordering::Greater => {
            let first = tensors.iter().find(|tensor| tensor.end > file_bytes);
            let first = first.map_or("", |tensor| &tensor.name);
            Err(format!(
                "it is {file_bytes} bytes long, and its header describes {end}: it is cut off, {} bytes are missing, and tensor `{first}` is the first that is cut off",
                end - file_bytes
            ))
        }
        // Engines refuse a file with trailing bytes.
        Ordering::Less => Err(format!(
            "it is {file_bytes} bytes long, and its header describes {end}: it is damaged"
        )),
    }
}

fn tensor(name: String, described: TensorDescription, start: u64) -> Result<TensorEntry, String> {
    let TensorDescription {
        dtype,
        shape,
        data_offsets: (from, to),
    } = described;
    let place = (start.checked_add(from)).zip(start.checked_add(to));
    let Some((begin, end)) = place.filter(|(begin, end)| begin <= end) else {
        return Err(format!(
            "tensor `{name}` lies at bytes {from} to {to}; the file is cut off or its header is wrong"
        ));
    };
    let elements = shape
        .iter()
        .try_fold(1_u64, |product, side| product.checked_mul(*side))
        .ok_or_else(|| format!("tensor `{name}` has an impossible shape"))?;
    let bytes = end - begin;
    if let Some((bits, _)) = number_type(&dtype)
        && u128::from(elements) * u128::from(bits) != u128::from(bytes) * 8
    {
        return Err(format!(
            "tensor `{name}` of shape {shape:?} has {elements} elements of {dtype} in {bytes} bytes, which does not match"
        ));
    }
    Ok(TensorEntry {
        name,
        dtype,
        shape,
        elements,
        begin,
        end,
    })
}
