//! Reads the numbers and texts of a GGUF header in order. Checks every length and count against the remaining bytes of the file
//! before allocating or skipping. Errors give the byte position.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::error::FileError;
use crate::regular_file::open_regular;

/// No header is longer; tokenizers take about ten MiB.
const HEADER_MAX: u64 = 1 << 30;
/// Maximum length of the name of a key or tensor.
const NAME_MAX: u64 = 65_535;

/// A fixed-size value type, by the format's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberType(u32);

impl NumberType {
    pub(super) fn new(kind: u32) -> Option<NumberType> {
        matches!(kind, 0..=7 | 10..=12).then_some(NumberType(kind))
    }

    pub(super) fn bytes(self) -> usize {
        match self.0 {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            _ => 8,
        }
    }

    pub(super) fn is_flag(self) -> bool {
        self.0 == 7
    }

    /// The value of an unsigned type.
    pub(super) fn unsigned(self, bytes: [u8; 8]) -> Option<u64> {
        matches!(self.0, 0 | 2 | 4 | 10).then(|| u64::from_le_bytes(bytes))
    }

    /// The value of any type, from its bytes padded with zeros.
    pub(super) fn number(self, bytes: [u8; 8]) -> f64 {
        let [a, b, c, d, ..] = bytes;
        match self.0 {
            1 => f64::from(i8::from_le_bytes([a])),
            3 => f64::from(i16::from_le_bytes([a, b])),
            5 => f64::from(i32::from_le_bytes([a, b, c, d])),
            6 => f64::from(f32::from_le_bytes([a, b, c, d])),
            11 => i64::from_le_bytes(bytes) as f64,
            12 => f64::from_le_bytes(bytes),
            _ => u64::from_le_bytes(bytes) as f64,
        }
    }
}

pub(super) struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    pub(super) position: u64,
    /// The length of the file.
    pub(super) length: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Reader<'a>, FileError> {
        let failed = |source| FileError::Read {
            path: path.to_owned(),
            source,
        };
        let file = open_regular(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok(Reader {
            path,
            file: BufReader::new(file),
            position: 0,
            length,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.path
    }

    /// Reads a count of items of at least `least_bytes` bytes each, which must all fit into the file.
    pub(super) fn count(&mut self, of: &str, least_bytes: u64) -> Result<u64, FileError> {
        let count = self.u64(&format!("the number of {of}"))?;
        let left = self.length.saturating_sub(self.position);
        if count
            .checked_mul(least_bytes)
            .is_none_or(|bytes| bytes > left)
        {
            return Err(self.damaged(&format!(
                "it claims {count} {of}, but only {left} bytes are left; it is truncated or damaged"
            )));
        }
        Ok(count)
    }

    /// The name of a key or tensor.
    pub(super) fn name(&mut self, what: &str) -> Result<String, FileError> {
        let length = self.u64(what)?;
        if length > NAME_MAX {
            return Err(self.damaged(&format!(
                "{what} claims to be {length} bytes long; at most {NAME_MAX} are possible"
            )));
        }
        self.text(length, what)
    }

    /// Reads a text of `length` bytes. Tokens are bytes that may be incomplete characters.
    pub(super) fn text(&mut self, length: u64, what: &str) -> Result<String, FileError> {
        self.has(length, what)?;
        // `has` keeps it below the range of every machine's sizes.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.fill(&mut bytes, what)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The bytes of a number, padded with zeros.
    pub(super) fn number(&mut self, kind: NumberType, what: &str) -> Result<[u8; 8], FileError> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes[..kind.bytes()], what)?;
        if kind.is_flag() && bytes[0] > 1 {
            return Err(self.damaged(&format!(
                "`{what}` is {}, which is neither true nor false",
                bytes[0]
            )));
        }
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, FileError> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, FileError> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn bytes<const COUNT: usize>(
        &mut self,
        what: &str,
    ) -> Result<[u8; COUNT], FileError> {
        let mut bytes = [0; COUNT];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<(), FileError> {
        self.has(bytes.len() as u64, what)?;
        self.file
            .read_exact(bytes)
            .map_err(|source| self.unreadable(source))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn skip(&mut self, length: u64, what: &str) -> Result<(), FileError> {
        self.has(length, what)?;
        // `has` keeps it far below the range of i64.
        let distance = i64::try_from(length).unwrap_or(0);
        self.file
            .seek_relative(distance)
            .map_err(|source| self.unreadable(source))?;
        self.position += length;
        Ok(())
    }

    fn has(&self, length: u64, what: &str) -> Result<(), FileError> {
        let most = self.length.min(HEADER_MAX);
        if length > most.saturating_sub(self.position) {
            return Err(self.damaged(&format!(
                "{what} takes {length} bytes, but the header can only extend to byte {most}; it is truncated or damaged"
            )));
        }
        Ok(())
    }

    fn unreadable(&self, source: std::io::Error) -> FileError {
        FileError::Read {
            path: self.path.to_owned(),
            source,
        }
    }

    pub(super) fn damaged(&self, problem: &str) -> FileError {
        FileError::Damaged {
            path: self.path.to_owned(),
            problem: format!("at byte {}: {problem}", self.position),
        }
    }

    /// An error for an intact file in an unknown format, such as a newer program's.
    pub(super) fn unknown(&self, problem: &str) -> FileError {
        FileError::Unknown {
            path: self.path.to_owned(),
            problem: format!("at byte {}: {problem}", self.position),
        }
    }
}
