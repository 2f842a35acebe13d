//! Reads requests of a stored file by number. Reads are positioned, so several threads may share a file.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::paths::{self, DATA, INDEX};

const RECORD_BYTES: usize = 16;
const BLOCK_RECORDS: usize = 4096;

/// The place of a request in the file of lines. Its record has 16 bytes, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    /// Bytes of the line without its `\n`.
    pub len: u32,
    /// The position of the model in the file's summary.
    pub model: u32,
}

impl Place {
    pub(crate) fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..].copy_from_slice(&self.model.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Place {
        let record = u128::from_le_bytes(*bytes);
        Place {
            offset: record as u64,
            len: (record >> 64) as u32,
            model: (record >> 96) as u32,
        }
    }

    fn end(self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.len) + 1)
    }
}

#[derive(Debug)]
pub struct RequestFile {
    data: File,
    data_path: PathBuf,
    data_bytes: u64,
    index: File,
    index_path: PathBuf,
    requests: u64,
}

impl RequestFile {
    /// Opens the files of this id. Blocks.
    ///
    /// # Errors
    /// Also [`ErrorKind::InvalidData`] if the index does not match the file of lines.
    pub fn open(dir: &Path, id: &str) -> io::Result<RequestFile> {
        let data_path = paths::path_of(dir, id, DATA)?;
        let index_path = paths::path_of(dir, id, INDEX)?;
        let data = paths::open_to_read(&data_path)?;
        let index = paths::open_to_read(&index_path)?;
        let (data_bytes, index_bytes) = (data.metadata()?.len(), index.metadata()?.len());
        if index_bytes % RECORD_BYTES as u64 != 0 {
            let problem = format!("{index_bytes} bytes are not a number of records");
            return Err(paths::damaged(&index_path, problem));
        }
        let file = RequestFile {
            data,
            data_path,
            data_bytes,
            index,
            index_path,
            requests: index_bytes / RECORD_BYTES as u64,
        };
        let end = match file.requests {
            0 => Some(0),
            requests => file.place(requests - 1)?.end(),
        };
        if end != Some(data_bytes) {
            let problem =
                format!("the last request does not end at byte {data_bytes} of the lines");
            return Err(paths::damaged(&file.index_path, problem));
        }
        Ok(file)
    }

    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the place of the request with this number from 0.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the file has fewer requests.
    pub fn place(&self, nth: u64) -> io::Result<Place> {
        self.check(nth)?;
        let mut record = [0; RECORD_BYTES];
        self.read_index(nth, &mut record)?;
        let place = Place::from_bytes(&record);
        if place.end().is_none_or(|end| end > self.data_bytes) {
            let problem = format!("request {nth} ends after the lines");
            return Err(paths::damaged(&self.index_path, problem));
        }
        Ok(place)
    }

    /// Reads the line of a request, without its `\n`.
    pub fn read(&self, nth: u64) -> io::Result<Vec<u8>> {
        let place = self.place(nth)?;
        let mut line = vec![0; place.len as usize + 1];
        let read = self.data.read_exact_at(&mut line, place.offset);
        read.map_err(|error| short(&self.data_path, error))?;
        if line.pop() != Some(b'\n') {
            let problem = format!("request {nth} does not end with its line");
            return Err(paths::damaged(&self.data_path, problem));
        }
        Ok(line)
    }

    /// Returns the numbers of up to `max` requests of a model, in order, at or after `from`.
    pub fn of_model(&self, model: u32, from: u64, max: usize) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        let mut block = vec![0; BLOCK_RECORDS.min(self.requests as usize) * RECORD_BYTES];
        let mut nth = from;
        while nth < self.requests && found.len() < max {
            let records = (self.requests - nth).min(BLOCK_RECORDS as u64);
            let bytes = &mut block[..records as usize * RECORD_BYTES];
            self.read_index(nth, bytes)?;
            let (places, _) = bytes.as_chunks();
            let numbered = (nth..).zip(places.iter().map(Place::from_bytes));
            let of_model = numbered.filter(|(_, place)| place.model == model);
            found.extend(of_model.map(|(nth, _)| nth).take(max - found.len()));
            nth += records;
        }
        Ok(found)
    }

    fn check(&self, nth: u64) -> io::Result<()> {
        if nth < self.requests {
            return Ok(());
        }
        let message = format!(
            "{}: request {nth} of {} is not there",
            self.index_path.display(),
            self.requests
        );
        Err(io::Error::new(ErrorKind::InvalidInput, message))
    }

    fn read_index(&self, nth: u64, records: &mut [u8]) -> io::Result<()> {
        let read = self.index.read_exact_at(records, nth * RECORD_BYTES as u64);
        read.map_err(|error| short(&self.index_path, error))
    }
}

/// Words the error of a file that is shorter than when it was opened.
fn short(path: &Path, error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => paths::damaged(path, "the file has been cut"),
        _ => paths::named(path, error),
    }
}
