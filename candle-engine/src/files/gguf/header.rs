//! Owns the header of a GGUF file: reads it and proves that every tensor lies in the file and none overlap. Never reads a
//! tensor, and allocates nothing by a count before the bytes for it were seen.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use super::value::{List, Metadata, Value};
use crate::error::EngineError;
use crate::files::table::{Place, Written};
use crate::stored::Encoding;
use candle_core::quantized::GgmlDType;
use std::collections::BTreeMap;
use std::path::Path;

const MAGIC: &[u8] = b"GGUF";
const REMEDY: &str = "the file is damaged or incomplete: download it again";
const ALIGNMENT: u64 = 32;
const ALIGNMENT_MAX: u64 = 1 << 20;
/// The format's own limit.
const DIMENSIONS_MAX: u32 = 4;
/// No key and no tensor has a longer name.
const NAME_BYTES_MAX: usize = 1 << 16;
/// Length, dimensions, one of them, type and offset: no tensor is said in less.
const TENSOR_BYTES_MIN: u64 = 8 + 4 + 8 + 4 + 8;
/// Length, type and one byte: no value is said in less.
const VALUE_BYTES_MIN: u64 = 8 + 4 + 1;

/// What a header says.
#[derive(Debug)]
pub(super) struct Header {
    pub metadata: Metadata,
    /// By the names that the file gives them.
    pub tensors: BTreeMap<String, Place>,
}

impl Header {
    /// Reads and checks the header at the beginning of a file, which is the one of `index` in the table of the model.
    ///
    /// # Errors
    /// A header that is no GGUF's, or that contradicts the file.
    pub fn read(bytes: &[u8], path: &Path, index: usize) -> Result<Self, EngineError> {
        let wrong = |problem: String| EngineError::model(path, problem, REMEDY);
        if !bytes.starts_with(MAGIC) {
            return Err(EngineError::model(
                path,
                "it does not begin as a GGUF file",
                "give a GGUF file, or the folder of a Hugging Face model",
            ));
        }
        let mut reader = Reader {
            bytes,
            at: MAGIC.len(),
        };
        reader.header(index).map_err(wrong)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn header(&mut self, index: usize) -> Result<Header, String> {
        match self.u32()? {
            2 | 3 => {}
            version if version.swap_bytes() <= 3 => {
                return Err("it was written for machines of the other byte order".to_owned());
            }
            version => {
                return Err(format!(
                    "it is of GGUF version {version}, this engine reads 2 and 3"
                ));
            }
        }
        let tensors = self.count("tensors", TENSOR_BYTES_MIN)?;
        let values = self.count("metadata values", VALUE_BYTES_MIN)?;
        let mut metadata = Metadata::default();
        for _ in 0..values {
            let key = self.name()?;
            let kind = self.u32()?;
            let value = self
                .value(kind)
                .map_err(|problem| format!("the metadata value {key}: {problem}"))?;
            metadata.insert(key, value);
        }
        let alignment = match metadata.number("general.alignment")? {
            None => ALIGNMENT,
            Some(alignment) => alignment,
        };
        if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
            return Err(format!(
                "general.alignment is {alignment}, which is no power of two up to {ALIGNMENT_MAX}"
            ));
        }
        let mut said = Vec::new();
        for _ in 0..tensors {
            said.push(self.tensor(alignment)?);
        }
        let start = (self.at as u64).next_multiple_of(alignment);
        Ok(Header {
            tensors: placed(said, start, self.bytes.len() as u64, index)?,
            metadata,
        })
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let taken = self
            .at
            .checked_add(count)
            .and_then(|end| self.bytes.get(self.at..end))
            .ok_or_else(|| {
                format!(
                    "its header needs {count} bytes at {}, the file has {}",
                    self.at,
                    self.bytes.len()
                )
            })?;
        self.at += count;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| "it is too short".to_owned())
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.fixed().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.fixed().map(u64::from_le_bytes)
    }

    /// A count of things that take so many bytes each at least.
    fn count(&mut self, things: &str, each: u64) -> Result<u64, String> {
        let count = self.u64()?;
        let left = (self.bytes.len() - self.at) as u64;
        if count.checked_mul(each).is_none_or(|needed| needed > left) {
            return Err(format!(
                "it claims to have {count} {things}, and has {left} bytes left for them"
            ));
        }
        Ok(count)
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.count("bytes of a text", 1)?;
        // Tokens are bytes that need not be whole letters.
        Ok(String::from_utf8_lossy(self.take(length as usize)?).into_owned())
    }

    fn name(&mut self) -> Result<String, String> {
        let name = self.text()?;
        if name.len() > NAME_BYTES_MAX {
            return Err(format!("a name has {} bytes", name.len()));
        }
        Ok(name)
    }

    fn value(&mut self, kind: u32) -> Result<Value, String> {
        Ok(match kind {
            8 => Value::Text(self.text()?),
            9 => Value::List(self.list()?),
            7 => match self.fixed::<1>()?[0] {
                0 => Value::Flag(false),
                1 => Value::Flag(true),
                other => return Err(format!("{other} is neither true nor false")),
            },
            0 | 2 | 4 | 10 => {
                let bytes = self.take(number_bytes(kind).unwrap_or(8))?;
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                Value::Whole(u64::from_le_bytes(whole))
            }
            kind => Value::Number(self.number(kind)?),
        })
    }

    fn number(&mut self, kind: u32) -> Result<f64, String> {
        Ok(match kind {
            0 => f64::from(self.fixed::<1>()?[0]),
            1 => f64::from(i8::from_le_bytes(self.fixed()?)),
            2 => f64::from(u16::from_le_bytes(self.fixed()?)),
            3 => f64::from(i16::from_le_bytes(self.fixed()?)),
            4 => f64::from(self.u32()?),
            5 => f64::from(i32::from_le_bytes(self.fixed()?)),
            6 => f64::from(f32::from_le_bytes(self.fixed()?)),
            7 => f64::from(self.fixed::<1>()?[0]),
            10 => self.u64()? as f64,
            11 => i64::from_le_bytes(self.fixed()?) as f64,
            12 => f64::from_le_bytes(self.fixed()?),
            other => return Err(format!("its type {other} is unknown")),
        })
    }

    fn list(&mut self) -> Result<List, String> {
        let kind = self.u32()?;
        if kind == 8 {
            let count = self.count("texts", 8)?;
            return (0..count)
                .map(|_| self.text())
                .collect::<Result<_, _>>()
                .map(List::Texts);
        }
        let each = number_bytes(kind)
            .ok_or_else(|| format!("a list of values of type {kind} is not supported"))?;
        let count = self.count("numbers", each as u64)?;
        let numbers = (0..count).map(|_| self.number(kind));
        numbers.collect::<Result<_, _>>().map(List::Numbers)
    }

    fn tensor(&mut self, alignment: u64) -> Result<Said, String> {
        let name = self.name()?;
        let dimensions = self.u32()?;
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            return Err(format!("the tensor {name} has {dimensions} dimensions"));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let size = self.u64()?;
            let size = usize::try_from(size).ok().filter(|size| *size > 0);
            shape.push(
                size.ok_or_else(|| format!("the tensor {name} has a dimension without size"))?,
            );
        }
        // The file says first what lies together.
        shape.reverse();
        let kind = self.u32()?;
        let offset = self.u64()?;
        if !offset.is_multiple_of(alignment) {
            return Err(format!(
                "the tensor {name} lies at {offset}, which is no multiple of {alignment}"
            ));
        }
        Ok(Said {
            name,
            shape,
            kind,
            offset,
        })
    }
}

fn number_bytes(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// A tensor as the header says it.
struct Said {
    name: String,
    shape: Vec<usize>,
    kind: u32,
    offset: u64,
}

/// How numbers of a type are written, with the numbers and the bytes of a block; `None` for types that this engine does not read.
fn written(kind: u32) -> Option<(Written, usize, usize)> {
    let plain = |encoding: Encoding| {
        (
            Written::Plain(encoding),
            encoding.block_numbers(),
            encoding.block_bytes(),
        )
    };
    let converted = |kind: GgmlDType| {
        (
            Written::Converted(kind),
            kind.block_size(),
            kind.type_size(),
        )
    };
    Some(match kind {
        0 => plain(Encoding::F32),
        1 => plain(Encoding::F16),
        2 => plain(Encoding::Q4_0),
        3 => converted(GgmlDType::Q4_1),
        6 => converted(GgmlDType::Q5_0),
        7 => converted(GgmlDType::Q5_1),
        8 => plain(Encoding::Q8_0),
        10 => converted(GgmlDType::Q2K),
        11 => converted(GgmlDType::Q3K),
        12 => plain(Encoding::Q4K),
        13 => plain(Encoding::Q5K),
        14 => plain(Encoding::Q6K),
        30 => plain(Encoding::Bf16),
        _ => return None,
    })
}

/// What a type that this engine does not read is called.
fn foreign_name(kind: u32) -> String {
    let name = match kind {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24..=27 => "of whole numbers",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        other => return format!("number {other}"),
    };
    name.to_owned()
}

fn placed(
    said: Vec<Said>,
    start: u64,
    file_bytes: u64,
    file: usize,
) -> Result<BTreeMap<String, Place>, String> {
    let mut places = BTreeMap::new();
    let mut ranges = Vec::new();
    for Said {
        name,
        shape,
        kind,
        offset,
    } in said
    {
        let (written, bytes) = match written(kind) {
            None => (Written::Foreign(foreign_name(kind)), 0),
            Some((written, block_numbers, block_bytes)) => {
                let columns = shape.last().copied().unwrap_or(0);
                if !columns.is_multiple_of(block_numbers) {
                    return Err(format!(
                        "the tensor {name} has rows of {columns} numbers, which are no whole blocks of {block_numbers}"
                    ));
                }
                let numbers = shape
                    .iter()
                    .try_fold(1usize, |all, size| all.checked_mul(*size));
                let bytes =
                    numbers.and_then(|numbers| (numbers / block_numbers).checked_mul(block_bytes));
                let bytes = bytes.ok_or_else(|| {
                    format!("the tensor {name} has shape {shape:?}, which no memory holds")
                })?;
                (written, bytes as u64)
            }
        };
        let begin = start.checked_add(offset);
        let end = begin.and_then(|begin| begin.checked_add(bytes));
        let (Some(begin), Some(end)) = (begin, end.filter(|end| *end <= file_bytes)) else {
            return Err(format!(
                "the tensor {name} has {bytes} bytes at {start} + {offset}, the file has {file_bytes}"
            ));
        };
        ranges.push((begin, end, name.clone()));
        let place = Place {
            file,
            written,
            shape,
            range: begin as usize..end as usize,
        };
        if places.insert(name.clone(), place).is_some() {
            return Err(format!("it has the tensor {name} twice"));
        }
    }
    ranges.sort();
    match ranges.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => Err(format!(
            "its tensors {} and {} overlap",
            pair[0].2, pair[1].2
        )),
        None => Ok(places),
    }
}
