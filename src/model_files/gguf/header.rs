//! The header of one GGUF file (versions 2 and 3, little endian): its values, and every tensor with its format, shape and position,
//! checked against each other and against the size of the file. Reads no tensor data, and allocates memory only after checking that
//! the file has enough bytes.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::FileError;
use crate::gguf_types;
use crate::stand_in::stand_in;

use super::reader::{NumberType, Reader};
use super::value::{List, Value, Values};

const MAGIC: [u8; 4] = *b"GGUF";
/// Limits for values that describe an architecture: the longest text, and the length of a list with one number per layer.
const SHORT_TEXT_MAX: u64 = 256;
const SHORT_LIST_MAX: usize = 4096;
/// ggml's limit.
const DIMENSIONS_MAX: u32 = 4;
/// Maximum nesting of lists.
const DEPTH_MAX: u32 = 4;
const ALIGNMENT_DEFAULT: u64 = 32;
const ALIGNMENT_MAX: u64 = 1 << 30;
const TEXT: u32 = 8;
const LIST: u32 = 9;

/// The header values to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Values that describe the architecture: numbers, short texts and short lists of numbers.
    Architecture,
    /// All values, including the vocabulary and the templates. Nested lists are dropped, because no known key has them.
    Everything,
}

/// A header that is consistent with its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    pub values: Values,
    pub tensors: Vec<TensorEntry>,
}

/// One tensor of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    pub name: String,
    /// Dimensions in the file's order: the fastest-varying dimension is first.
    pub shape: Vec<u64>,
    pub elements: u64,
    /// ggml's number for the element format.
    pub format: u32,
    /// Offset of the tensor in the file.
    pub begin: u64,
    /// `None` for an unknown format.
    pub bytes: Option<u64>,
}

impl Header {
    pub fn read(path: &Path, detail: Detail) -> Result<Header, FileError> {
        let mut parser = Parser {
            reader: Reader::open(path)?,
            detail,
        };
        parser.header()
    }
}

struct Parser<'a> {
    reader: Reader<'a>,
    detail: Detail,
}

impl Parser<'_> {
    fn header(&mut self) -> Result<Header, FileError> {
        self.version()?;
        let tensors = self.reader.count("tensors", 8 + 4 + 8 + 4 + 8)?;
        let pairs = self.reader.count("values", 8 + 4 + 1)?;
        let mut values = Values::default();
        for _ in 0..pairs {
            let key = self.reader.name("a key")?;
            let kind = self.reader.u32("the type of a value")?;
            if let Some(value) = self.value(kind, &key)? {
                values.insert(key, value);
            }
        }
        let alignment = self.alignment(&values)?;
        let mut entries = Vec::new();
        for _ in 0..tensors {
            entries.push(self.tensor(alignment)?);
        }
        self.place(&mut entries, alignment)?;
        Ok(Header {
            values,
            tensors: entries,
        })
    }

    fn version(&mut self) -> Result<(), FileError> {
        let magic: [u8; 4] = self.reader.bytes("the magic word")?;
        if magic != MAGIC {
            let damaged = || {
                let problem = "it does not begin with `GGUF`, so it is not a GGUF file";
                self.reader.damaged(problem)
            };
            return Err(stand_in(self.reader.path()).unwrap_or_else(damaged));
        }
        let version = self.reader.u32("the version")?;
        match version {
            2 | 3 => Ok(()),
            _ if matches!(version.swap_bytes(), 1..=3) => Err(self.reader.unknown(
                "it is a big-endian file; convert the model on a little-endian machine",
            )),
            _ => Err(self.reader.unknown(&format!(
                "its version is {version}; only versions 2 and 3 are supported; convert the model again with a current llama.cpp"
            ))),
        }
    }

    fn alignment(&self, values: &Values) -> Result<u64, FileError> {
        let alignment = values
            .number("general.alignment")
            .map_err(|problem| self.reader.damaged(&problem))?
            .unwrap_or(ALIGNMENT_DEFAULT);
        if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
            return Err(self.reader.damaged(&format!(
                "general.alignment is {alignment}, which is not a valid power of two"
            )));
        }
        Ok(alignment)
    }

    /// Reads a value. Returns `None` if it is not kept.
    fn value(&mut self, kind: u32, key: &str) -> Result<Option<Value>, FileError> {
        Ok(match kind {
            TEXT => self.text(SHORT_TEXT_MAX, key)?.map(Value::Text),
            LIST => self.list(key, 0)?.map(Value::List),
            _ => {
                let kind = self.number_type(kind, key)?;
                let bytes = self.reader.number(kind, key)?;
                Some(match kind.unsigned(bytes) {
                    Some(number) => Value::Integer(number),
                    None if kind.is_flag() => Value::Flag(bytes[0] == 1),
                    None => Value::Number(kind.number(bytes)),
                })
            }
        })
    }

    /// Reads a text. Returns `None` if it is not kept: unless everything is kept, only texts of at most `short_max` bytes are.
    fn text(&mut self, short_max: u64, key: &str) -> Result<Option<String>, FileError> {
        let length = self.reader.u64("the length of a text")?;
        if self.detail == Detail::Everything || length <= short_max {
            return self.reader.text(length, key).map(Some);
        }
        self.reader.skip(length, key)?;
        Ok(None)
    }

    /// Reads a list. Returns `None` if it is not kept.
    fn list(&mut self, key: &str, depth: u32) -> Result<Option<List>, FileError> {
        let kind = self.reader.u32("the type of a list")?;
        let of = format!("entries of `{key}`");
        match kind {
            TEXT => {
                let count = self.reader.count(&of, 8)?;
                let mut texts = Vec::new();
                for _ in 0..count {
                    texts.extend(self.text(0, key)?);
                }
                let is_kept = self.detail == Detail::Everything;
                Ok(is_kept.then_some(List::Texts(texts)))
            }
            LIST if depth >= DEPTH_MAX => Err(self
                .reader
                .damaged(&format!("`{key}` has too deeply nested lists"))),
            LIST => {
                for _ in 0..self.reader.count(&of, 12)? {
                    self.list(key, depth + 1)?;
                }
                Ok(None)
            }
            _ => {
                let kind = self.number_type(kind, key)?;
                let count = self.reader.count(&of, kind.bytes() as u64)?;
                let mut numbers = Vec::new();
                for _ in 0..count {
                    let bytes = self.reader.number(kind, key)?;
                    if self.detail == Detail::Everything || numbers.len() < SHORT_LIST_MAX {
                        numbers.push(kind.number(bytes));
                    }
                }
                Ok(Some(List::Numbers(numbers)))
            }
        }
    }

    fn number_type(&self, kind: u32, key: &str) -> Result<NumberType, FileError> {
        NumberType::new(kind).ok_or_else(|| {
            self.reader
                .damaged(&format!("`{key}` has the type {kind}, which is not known"))
        })
    }

    /// Reads a tensor's entry; its position is relative to the start of the tensor data.
    fn tensor(&mut self, alignment: u64) -> Result<TensorEntry, FileError> {
        let name = self.reader.name("a tensor's name")?;
        let dimensions = self.reader.u32("a tensor's dimensions")?;
        if dimensions > DIMENSIONS_MAX {
            return Err(self.reader.damaged(&format!(
                "tensor `{name}` has {dimensions} dimensions; at most {DIMENSIONS_MAX} are possible"
            )));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            shape.push(self.reader.u64("a tensor's dimension")?);
        }
        let impossible = |reader: &Reader| {
            reader.damaged(&format!(
                "tensor `{name}` has the impossible shape {shape:?}"
            ))
        };
        let elements = shape
            .iter()
            .try_fold(1_u64, |product, side| product.checked_mul(*side))
            .ok_or_else(|| impossible(&self.reader))?;
        let format = self.reader.u32("a tensor's type")?;
        let offset = self.reader.u64("a tensor's place")?;
        if !offset.is_multiple_of(alignment) {
            return Err(self.reader.damaged(&format!(
                "tensor `{name}` lies at {offset}, which is not a multiple of {alignment}"
            )));
        }
        let row = shape.first().copied().unwrap_or(1);
        let bytes = match gguf_types::block(format) {
            None => None,
            Some(block) if !row.is_multiple_of(block.elements) => {
                return Err(self.reader.damaged(&format!(
                    "tensor `{name}` has rows of {row} elements, and its number format {format} comes in blocks of {}",
                    block.elements
                )));
            }
            Some(block) => Some(
                gguf_types::tensor_bytes(block, row, elements)
                    .ok_or_else(|| impossible(&self.reader))?,
            ),
        };
        Ok(TensorEntry {
            elements,
            format,
            begin: offset,
            bytes,
            shape,
            name,
        })
    }

    /// Makes positions relative to the start of the file, and checks that each tensor lies within the file without overlaps.
    fn place(&self, entries: &mut [TensorEntry], alignment: u64) -> Result<(), FileError> {
        let start = self.reader.position.next_multiple_of(alignment);
        let mut names = BTreeSet::new();
        let mut places: Vec<(u64, u64, &str)> = Vec::new();
        for entry in entries.iter_mut() {
            let begin = start.checked_add(entry.begin);
            let end = begin.and_then(|begin| begin.checked_add(entry.bytes.unwrap_or(0)));
            let (Some(begin), Some(end)) = (begin, end) else {
                return Err(self.reader.damaged(&format!(
                    "tensor `{}` has the impossible offset {}",
                    entry.name, entry.begin
                )));
            };
            entry.begin = begin;
            if !names.insert(&entry.name) {
                return Err(self
                    .reader
                    .damaged(&format!("it has the tensor `{}` twice", entry.name)));
            }
            places.push((begin, end, &entry.name));
        }
        places.sort_unstable();
        let length = self.reader.length;
        if let Some((_, end, name)) = places.iter().max_by_key(|(_, end, _)| *end)
            && *end > length
            && *end > start
        {
            return Err(self.reader.damaged(&format!(
                "tensor `{name}` ends at byte {end}, and the file is {length} bytes long: it is cut off, {} bytes are missing",
                end - length
            )));
        }
        match places.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            None => Ok(()),
            Some(pair) => Err(self.reader.damaged(&format!(
                "tensors `{}` and `{}` overlap",
                pair[0].2, pair[1].2
            ))),
        }
    }
}
