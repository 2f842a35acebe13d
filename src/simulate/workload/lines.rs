//! Reads a text file line by line, with line numbers. The length of a line is bounded, so a binary file is refused instead of read
//! into memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::error::WorkloadError;

/// The longest line: a request with hashes for hundreds of thousands of tokens.
const LINE_BYTES_MAX: u64 = 4 << 20;

pub struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    line: u64,
}

impl Lines {
    pub fn open(path: &Path) -> Result<Lines, WorkloadError> {
        let file = File::open(path).map_err(|source| WorkloadError::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok(Lines {
            path: path.to_owned(),
            reader: BufReader::with_capacity(1 << 18, file),
            line: 0,
        })
    }

    pub fn fault(&self, problem: impl Into<String>) -> WorkloadError {
        WorkloadError::Line {
            path: self.path.clone(),
            line: self.line,
            problem: problem.into(),
        }
    }

    /// The next line that is not empty.
    pub fn next(&mut self) -> Result<Option<String>, WorkloadError> {
        loop {
            self.line += 1;
            let mut bytes = Vec::new();
            let mut bounded = (&mut self.reader).take(LINE_BYTES_MAX + 1);
            let count =
                bounded
                    .read_until(b'\n', &mut bytes)
                    .map_err(|source| WorkloadError::Read {
                        path: self.path.clone(),
                        source,
                    })?;
            if count == 0 {
                return Ok(None);
            }
            if count as u64 > LINE_BYTES_MAX {
                let most = LINE_BYTES_MAX >> 20;
                return Err(self.fault(format!("is longer than {most} MiB; is this a text file?")));
            }
            let text = String::from_utf8(bytes)
                .map_err(|_| self.fault("is not UTF-8 text; is this a workload?"))?;
            let text = text
                .trim_end_matches(['\n', '\r'])
                .trim_start_matches('\u{feff}');
            if !text.trim().is_empty() {
                return Ok(Some(text.to_owned()));
            }
        }
    }
}
