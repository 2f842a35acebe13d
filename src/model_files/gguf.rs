//! Reads the headers of GGUF files (versions 2 and 3, little endian): the values that describe the
//! architecture, and the size of every tensor. Format: `docs/gguf.md` of ggml. Files may be truncated or
//! untrusted: nothing is allocated by a number from the file, every count is checked against the bytes that are
//! left, and weights are not read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::gguf_types;

const MAGIC: [u8; 4] = *b"GGUF";
/// No header is longer; tokenizers take some ten MiB.
const HEADER_MAX: u64 = 1 << 30;
/// The longest text that is kept: names of architectures are short.
const KEPT_TEXT_MAX: u64 = 256;
/// The longest name of a key or tensor.
const NAME_MAX: u64 = 65_535;
/// Numbers of a list that are kept: one per layer.
const KEPT_LIST_MAX: usize = 4096;
const DIMENSIONS_MAX: u32 = 8;
/// Lists of lists may be this deep.
const DEPTH_MAX: u32 = 4;
const ALIGNMENT_DEFAULT: u64 = 32;
/// The maximum number of files of one model.
const PARTS_MAX: u32 = 10_000;

/// A value of the header that is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(u64),
    Text(String),
    /// Numbers or flags, the first 4096.
    List(Vec<u64>),
}

/// The contents of the headers of a model's files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gguf {
    /// The values of the first file, by key.
    pub values: BTreeMap<String, Value>,
    /// All tensors of all files.
    pub tensor_bytes: u64,
    pub elements: u64,
    pub tensors: u64,
}

impl Gguf {
    /// Reads a model's file. Of a split model (`-00001-of-00003.gguf`) all parts are read; any of them may be
    /// given.
    pub fn read(path: &Path) -> Result<Gguf, FileError> {
        let parts = parts_of(path)?;
        let mut whole = Gguf::default();
        for (index, part) in parts.iter().enumerate() {
            let one = Reader::open(part)?.header()?;
            if index == 0 {
                whole.values = one.values;
            }
            whole.tensor_bytes = whole.tensor_bytes.saturating_add(one.tensor_bytes);
            whole.elements = whole.elements.saturating_add(one.elements);
            whole.tensors = whole.tensors.saturating_add(one.tensors);
        }
        Ok(whole)
    }
}

/// The parts of the model that this file belongs to, in order; only the file if it is not split.
fn parts_of(path: &Path) -> Result<Vec<PathBuf>, FileError> {
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

/// Stem, number and count of a part's name.
pub fn part_name(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        (text.len() == 5)
            .then(|| text.parse::<u32>().ok())
            .flatten()
    };
    let (part, count) = (number(part)?, number(count)?);
    ((1..=count).contains(&part) && count <= PARTS_MAX).then_some((stem, part, count))
}

struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    position: u64,
    length: u64,
}

impl<'a> Reader<'a> {
    fn open(path: &'a Path) -> Result<Reader<'a>, FileError> {
        let failed = |source| FileError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok(Reader {
            path,
            file: BufReader::new(file),
            position: 0,
            length,
        })
    }

    fn header(&mut self) -> Result<Gguf, FileError> {
        let magic: [u8; 4] = self.bytes("the magic word")?;
        if magic != MAGIC {
            return Err(self.broken("it does not begin with `GGUF`, so it is not a GGUF file"));
        }
        let version = self.u32("the version")?;
        match version {
            2 | 3 => {}
            _ if matches!(version.swap_bytes(), 1..=3) => {
                return Err(self.broken(
                    "it is a big-endian file; convert the model on a little-endian machine",
                ));
            }
            _ => {
                return Err(self.unknown(format!(
                    "its version is {version}; versions 2 and 3 are read, convert the model again with a current llama.cpp"
                )));
            }
        }
        let tensors = self.count("tensors", 8 + 4 + 8 + 4 + 8)?;
        let pairs = self.count("values", 8 + 4 + 1)?;
        let mut gguf = Gguf {
            tensors,
            ..Gguf::default()
        };
        for _ in 0..pairs {
            let key = self.name("a key")?;
            let kind = self.u32("the type of a value")?;
            if let Some(value) = self.value(kind, &key)? {
                gguf.values.insert(key, value);
            }
        }
        self.tensor_entries(&mut gguf)?;
        Ok(gguf)
    }

    fn tensor_entries(&mut self, gguf: &mut Gguf) -> Result<(), FileError> {
        let alignment = match gguf.values.get("general.alignment") {
            Some(Value::Number(alignment)) => *alignment,
            _ => ALIGNMENT_DEFAULT,
        };
        if !alignment.is_power_of_two() || alignment > 1 << 30 {
            return Err(self.broken(&format!(
                "general.alignment is {alignment}, which is not a valid power of two"
            )));
        }
        // The end of the last tensor, relative to the first one's start.
        let (mut end, mut last) = (0_u64, String::new());
        for _ in 0..gguf.tensors {
            let name = self.name("a tensor's name")?;
            let dimensions = self.u32("a tensor's dimensions")?;
            if dimensions > DIMENSIONS_MAX {
                return Err(self.broken(&format!(
                    "tensor `{name}` has {dimensions} dimensions; at most {DIMENSIONS_MAX} are possible"
                )));
            }
            let (mut row, mut elements) = (1, 1_u64);
            for index in 0..dimensions {
                let side = self.u64("a tensor's dimension")?;
                if index == 0 {
                    row = side;
                }
                elements = elements.checked_mul(side).ok_or_else(|| {
                    self.broken(&format!("tensor `{name}` has an impossible shape"))
                })?;
            }
            let kind = self.u32("a tensor's type")?;
            let offset = self.u64("a tensor's place")?;
            let block = gguf_types::block(kind).ok_or_else(|| {
                self.unknown(format!(
                    "tensor `{name}` has the number format {kind}, which is not known"
                ))
            })?;
            let bytes = gguf_types::tensor_bytes(block, row, elements).ok_or_else(|| {
                self.broken(&format!(
                    "tensor `{name}` has rows of {row} elements, and its number format {kind} comes in blocks of {}",
                    block.elements
                ))
            })?;
            let tensor_end = offset
                .checked_add(bytes)
                .filter(|_| offset % alignment == 0)
                .ok_or_else(|| {
                    self.broken(&format!(
                        "tensor `{name}` has the impossible offset {offset}"
                    ))
                })?;
            if tensor_end > end {
                (end, last) = (tensor_end, name);
            }
            gguf.tensor_bytes = gguf.tensor_bytes.saturating_add(bytes);
            gguf.elements = gguf.elements.saturating_add(elements);
        }
        let begin = self.position.next_multiple_of(alignment);
        let needed = begin.saturating_add(end);
        if end > 0 && needed > self.length {
            return Err(self.broken(&format!(
                "tensor `{last}` ends at byte {needed}, and the file is {} bytes long: it is cut off, {} bytes are missing; download it again",
                self.length,
                needed - self.length
            )));
        }
        Ok(())
    }

    /// A value, if its type is kept.
    fn value(&mut self, kind: u32, key: &str) -> Result<Option<Value>, FileError> {
        Ok(match kind {
            8 => {
                let length = self.u64("the length of a text")?;
                if length > KEPT_TEXT_MAX {
                    self.skip(length, key)?;
                    return Ok(None);
                }
                let text = self.short_text(length, key)?;
                Some(Value::Text(text))
            }
            9 => Some(Value::List(self.list(key, 0)?)),
            _ => self.number(kind, key)?.map(Value::Number),
        })
    }

    /// The numbers of a list; texts and fractions are skipped.
    fn list(&mut self, key: &str, depth: u32) -> Result<Vec<u64>, FileError> {
        let kind = self.u32("the type of a list")?;
        let least = match kind {
            8 => 8,
            9 => 12,
            _ => self.width(kind, key)?,
        };
        if kind == 9 && depth >= DEPTH_MAX {
            return Err(self.broken(&format!("`{key}` has lists that are nested too deep")));
        }
        let count = self.count(&format!("entries of `{key}`"), least)?;
        let mut kept = Vec::new();
        for _ in 0..count {
            match kind {
                8 => {
                    let length = self.u64("the length of a text")?;
                    self.skip(length, key)?;
                }
                9 => {
                    self.list(key, depth + 1)?;
                }
                _ => {
                    if let Some(number) = self.number(kind, key)?
                        && kept.len() < KEPT_LIST_MAX
                    {
                        kept.push(number);
                    }
                }
            }
        }
        Ok(kept)
    }

    /// Bytes of a value of fixed size.
    fn width(&self, kind: u32, key: &str) -> Result<u64, FileError> {
        Ok(match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            _ => {
                return Err(
                    self.broken(&format!("`{key}` has the type {kind}, which is not known"))
                );
            }
        })
    }

    /// An integer or flag that is not negative; `None` for anything else of fixed size.
    fn number(&mut self, kind: u32, key: &str) -> Result<Option<u64>, FileError> {
        let mut bytes = [0; 8];
        let width = self.width(kind, key)?;
        // At most 8.
        let width = usize::try_from(width).unwrap_or(8);
        self.fill(&mut bytes[..width], key)?;
        let is_signed = matches!(kind, 1 | 3 | 5 | 11);
        let is_negative = is_signed && bytes[width - 1] & 0x80 != 0;
        let is_fraction = matches!(kind, 6 | 12);
        Ok((!is_negative && !is_fraction).then(|| u64::from_le_bytes(bytes)))
    }

    /// A count of items of at least this many bytes, all of which must be in the file.
    fn count(&mut self, of: &str, least_bytes: u64) -> Result<u64, FileError> {
        let count = self.u64(&format!("the number of {of}"))?;
        let left = self.length.saturating_sub(self.position);
        if count
            .checked_mul(least_bytes)
            .is_none_or(|bytes| bytes > left)
        {
            return Err(self.broken(&format!(
                "it claims {count} {of}, and only {left} bytes are left; it is cut off or broken"
            )));
        }
        Ok(count)
    }

    fn name(&mut self, what: &str) -> Result<String, FileError> {
        let length = self.u64(what)?;
        if length > NAME_MAX {
            return Err(self.broken(&format!(
                "{what} claims to be {length} bytes long; at most {NAME_MAX} are possible"
            )));
        }
        self.short_text(length, what)
    }

    /// A text whose length has been checked.
    fn short_text(&mut self, length: u64, what: &str) -> Result<String, FileError> {
        let mut bytes = vec![0; usize::try_from(length.min(NAME_MAX)).unwrap_or(0)];
        self.fill(&mut bytes, what)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn u32(&mut self, what: &str) -> Result<u32, FileError> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, FileError> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    fn bytes<const COUNT: usize>(&mut self, what: &str) -> Result<[u8; COUNT], FileError> {
        let mut bytes = [0; COUNT];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<(), FileError> {
        self.room(bytes.len() as u64, what)?;
        self.file
            .read_exact(bytes)
            .map_err(|source| FileError::Read {
                path: self.path.to_owned(),
                source,
            })?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn skip(&mut self, length: u64, what: &str) -> Result<(), FileError> {
        self.room(length, what)?;
        // `room` keeps it far below the range of i64.
        let distance = i64::try_from(length).unwrap_or(0);
        self.file
            .seek_relative(distance)
            .map_err(|source| FileError::Read {
                path: self.path.to_owned(),
                source,
            })?;
        self.position += length;
        Ok(())
    }

    fn room(&self, length: u64, what: &str) -> Result<(), FileError> {
        let most = self.length.min(HEADER_MAX);
        if length > most.saturating_sub(self.position) {
            return Err(self.broken(&format!(
                "{what} takes {length} bytes, and the header can only reach to byte {most}; it is cut off or broken"
            )));
        }
        Ok(())
    }

    fn broken(&self, problem: &str) -> FileError {
        FileError::Broken {
            path: self.path.to_owned(),
            problem: format!("at byte {}: {problem}", self.position),
        }
    }

    /// A form that a newer program may have written.
    fn unknown(&self, problem: String) -> FileError {
        FileError::Unknown {
            path: self.path.to_owned(),
            problem: format!("at byte {}: {problem}", self.position),
        }
    }
}
