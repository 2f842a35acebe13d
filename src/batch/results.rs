//! The results of a batch, exactly one for each request. A bitset of one bit for each request is rebuilt from the two result files
//! when they are opened.

mod anthropic;
mod finished;
mod line_file;
mod recovery;
mod result_line;
#[cfg(test)]
mod tests;

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub use anthropic::anthropic_line;
pub use result_line::{Response, ResultError, ResultLine};

use crate::paths::{self, ERRORS, OUTPUT};
use finished::Finished;
use line_file::{LineFile, LineStore};

/// More duplicates are not listed.
const DUPLICATES_MAX: usize = 1000;

/// The file of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultKind {
    Output,
    Error,
}

/// The findings of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveredResults {
    /// Requests with another result, of which the first counts. The files keep both. At most 1,000 are listed.
    pub duplicates: Vec<u64>,
    /// Bytes removed after the last complete line of each file.
    pub cut_bytes: u64,
}

/// The result files of a batch, open in this process alone. A dropped value loses the results since the last flush.
#[derive(Debug)]
pub struct Results<F = File> {
    output: LineFile<F>,
    errors: LineFile<F>,
    finished: Finished,
    completed: u64,
    failed: u64,
    /// Digits after a request's number in the id of its result.
    id_suffix: u64,
    line: Vec<u8>,
    recovered: RecoveredResults,
}

impl Results {
    /// Opens the files of a batch of this many requests, or creates them. Cuts off a torn last line, and makes the rest durable.
    /// Blocks.
    ///
    /// # Errors
    /// Also [`ErrorKind::InvalidData`] if a file has a line that is not a result of this batch, and [`ErrorKind::WouldBlock`] if
    /// the files are open already.
    pub fn open(dir: &Path, batch_id: &str, requests: u64, id_suffix: u64) -> io::Result<Results> {
        let [output, errors] = [OUTPUT, ERRORS].map(|suffix| -> io::Result<(PathBuf, File)> {
            let path = paths::path_of(dir, batch_id, suffix)?;
            let file = paths::open_private(&path)?;
            Ok((path, file))
        });
        let (output, errors) = (output?, errors?);
        if matches!(output.1.try_lock(), Err(TryLockError::WouldBlock)) {
            let error = io::Error::new(ErrorKind::WouldBlock, "the results are open already");
            return Err(paths::named(&output.0, error));
        }
        let mut recovered = RecoveredResults::default();
        let mut finished = Finished::new(requests)?;
        let mut recover = |(path, file): (PathBuf, File)| -> io::Result<(LineFile<File>, u64)> {
            let mut found = 0;
            let scan = recovery::scan(&file, &path, |number| {
                if number >= requests {
                    return Err(format!("request {number} of {requests} is not there"));
                }
                if finished.add(number) {
                    found += 1;
                } else if recovered.duplicates.len() < DUPLICATES_MAX {
                    recovered.duplicates.push(number);
                }
                Ok(())
            })?;
            recovered.cut_bytes += scan.torn_bytes;
            let mut lines = LineFile::new(file, path, scan.good_bytes);
            lines.cut_and_sync()?;
            Ok((lines, found))
        };
        let (output, completed) = recover(output)?;
        let (errors, failed) = recover(errors)?;
        paths::sync_folder(dir)?;
        Ok(Results {
            output,
            errors,
            finished,
            completed,
            failed,
            id_suffix,
            line: Vec::new(),
            recovered,
        })
    }
}

impl<F: LineStore> Results<F> {
    /// Adds the result of a request. Returns false and writes nothing if the request has a result. Blocks while a full buffer is
    /// written.
    ///
    /// # Errors
    /// The request has no result. After an error of [`Results::sync`], each call fails until the files are opened again.
    pub fn write(
        &mut self,
        request: u64,
        kind: ResultKind,
        rest: &ResultLine<'_>,
    ) -> io::Result<bool> {
        if request >= self.finished.requests() {
            let message = format!("request {request} is not in the batch");
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        if self.finished.has(request) {
            return Ok(false);
        }
        self.line.clear();
        rest.render(request, self.id_suffix, &mut self.line)?;
        let (file, count) = match kind {
            ResultKind::Output => (&mut self.output, &mut self.completed),
            ResultKind::Error => (&mut self.errors, &mut self.failed),
        };
        file.add(&self.line)?;
        *count += 1;
        self.finished.add(request);
        Ok(true)
    }

    /// Gives buffered results to the system. They survive the end of this process.
    ///
    /// # Errors
    /// The results stay in the buffer, and the next call tries again.
    pub fn flush(&mut self) -> io::Result<()> {
        // A fault of one file does not keep back the other.
        let output = self.output.flush();
        self.errors.flush().and(output)
    }

    /// Makes all results durable. They survive a power failure.
    ///
    /// # Errors
    /// Some results may not be durable.
    pub fn sync(&mut self) -> io::Result<()> {
        let output = self.output.sync();
        self.errors.sync().and(output)
    }

    /// Results in the output file.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Results in the file of errors.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    pub fn done(&self) -> u64 {
        self.completed + self.failed
    }

    /// The length of both files, with buffered results.
    pub fn bytes(&self) -> u64 {
        self.output.bytes() + self.errors.bytes()
    }

    /// Returns true if the request has a result.
    pub fn has(&self, request: u64) -> bool {
        self.finished.has(request)
    }

    /// Returns the first request without a result, at or after `from`.
    pub fn next_undone(&self, from: u64) -> Option<u64> {
        self.finished.next_missing(from)
    }

    pub fn recovered(&self) -> &RecoveredResults {
        &self.recovered
    }
}
