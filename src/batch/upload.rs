//! An upload of a request file: splits chunks of any size into lines, checks each line, and writes the requests and their index in
//! constant memory.

mod fingerprints;
mod gzip;
mod problems;
mod request_writer;
mod splitter;
mod summary;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

pub use problems::{BAD_LINES_MAX, BadLine, UploadError};
pub use summary::{ModelCount, RequestFileSummary};

use crate::line::RequestLine;
use fingerprints::Fingerprints;
use gzip::Gzip;
use problems::BadLines;
use request_writer::RequestWriter;
use splitter::{Cut, Splitter};
use summary::RequestTally;

/// The first bytes of a compressed upload.
pub const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Debug, Clone, Copy)]
pub struct UploadLimits {
    /// Bytes of the text, decompressed.
    pub bytes_max: u64,
    /// Bytes of a line before its `\n`.
    pub line_bytes_max: usize,
    /// Lines with a request.
    pub lines_max: u64,
    pub models_max: usize,
}

/// An unfinished upload. Dropping it removes its files.
#[derive(Debug)]
pub struct Upload {
    input: Input,
    requests: Requests,
    is_stopped: bool,
}

#[derive(Debug)]
enum Input {
    /// The bytes so far are a prefix of gzip's magic number.
    Unknown(Vec<u8>),
    Plain,
    Gzip(Box<Gzip>),
}

impl Upload {
    /// Creates the files of this id under temporary names. Blocks.
    ///
    /// # Errors
    /// Also if a file of this id exists, or if the id cannot be a file name.
    pub fn create(dir: &Path, id: &str, limits: UploadLimits) -> io::Result<Upload> {
        Ok(Upload {
            input: Input::Unknown(Vec::new()),
            requests: Requests {
                splitter: Splitter::new(limits.line_bytes_max.min(u32::MAX as usize)),
                lines: Lines {
                    writer: RequestWriter::create(dir, id)?,
                    counts: RequestTally::default(),
                    fingerprints: Fingerprints::new(),
                    bad: BadLines::default(),
                    limits,
                },
                bytes_left: limits.bytes_max,
            },
            is_stopped: false,
        })
    }

    /// Reads the next bytes of the file, split at any place. Blocks.
    ///
    /// # Errors
    /// The upload has ended, and further calls return [`UploadError::Stopped`].
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), UploadError> {
        if self.is_stopped {
            return Err(UploadError::Stopped);
        }
        let taken = self.take(chunk);
        self.is_stopped = taken.is_err();
        taken
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), UploadError> {
        match &mut self.input {
            Input::Plain => self.requests.read(chunk),
            Input::Gzip(gzip) => gzip.read(chunk, |text| self.requests.read(text)),
            Input::Unknown(start) => {
                let held = start.len();
                start.extend(chunk.iter().take(GZIP_MAGIC.len() - held));
                let start = std::mem::take(start);
                if start == GZIP_MAGIC {
                    self.input = Input::Gzip(Box::new(Gzip::new(self.requests.bytes_left)));
                } else if GZIP_MAGIC.starts_with(&start) {
                    self.input = Input::Unknown(start);
                    return Ok(());
                } else {
                    self.input = Input::Plain;
                }
                self.take(&start[..held])?;
                self.take(chunk)
            }
        }
    }

    /// Checks the last line and the ids, makes the files durable and gives them their names. Blocks.
    ///
    /// # Errors
    /// No file of this id remains.
    pub fn finish(mut self) -> Result<RequestFileSummary, UploadError> {
        if self.is_stopped {
            return Err(UploadError::Stopped);
        }
        match std::mem::replace(&mut self.input, Input::Plain) {
            Input::Plain => {}
            Input::Unknown(start) => self.requests.read(&start)?,
            Input::Gzip(gzip) => self.requests.read(&gzip.finish()?)?,
        }
        self.requests.finish()
    }
}

/// The decompressed text.
#[derive(Debug)]
struct Requests {
    splitter: Splitter,
    lines: Lines,
    bytes_left: u64,
}

impl Requests {
    fn read(&mut self, text: &[u8]) -> Result<(), UploadError> {
        let room = usize::try_from(self.bytes_left).unwrap_or(usize::MAX);
        let allowed = &text[..text.len().min(room)];
        self.bytes_left -= allowed.len() as u64;
        let lines = &mut self.lines;
        let split = self
            .splitter
            .split(allowed, |number, line| lines.read(number, line));
        self.lines.stop(split)?;
        if allowed.len() < text.len() {
            let limit_bytes = self.lines.limits.bytes_max;
            return Err(UploadError::TooLarge { limit_bytes });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<RequestFileSummary, UploadError> {
        let lines = &mut self.lines;
        let split = self
            .splitter
            .finish(|number, line| lines.read(number, line));
        self.lines.stop(split)?;
        self.lines.finish()
    }
}

/// The lines of the text, one after the other.
#[derive(Debug)]
struct Lines {
    writer: RequestWriter,
    counts: RequestTally,
    fingerprints: Fingerprints,
    bad: BadLines,
    limits: UploadLimits,
}

impl Lines {
    fn read(&mut self, number: u64, line: &[u8]) -> Result<(), UploadError> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let lines_max = self.limits.lines_max.min(u64::from(u32::MAX));
        let too_many = UploadError::TooManyLines { limit: lines_max };
        if self.counts.requests() + self.bad.count() >= lines_max {
            return Err(too_many);
        }
        let number = u32::try_from(number).map_err(|_| too_many)?;
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(error) => return self.bad.add(BadLine::not_utf8(number, &error)),
        };
        let request = match RequestLine::parse(text) {
            Ok(request) => request,
            Err(error) => return self.bad.add(BadLine::new(number, error)),
        };
        self.fingerprints.add(&request.custom_id, number);
        let limit = self.limits.models_max;
        let model = self
            .counts
            .add(&request.model, request.endpoint, limit)
            .ok_or(UploadError::TooManyModels { limit })?;
        if self.bad.is_empty() {
            self.writer.add(line, model)?;
        }
        Ok(())
    }

    /// Adds the line that ended the text early to the bad lines.
    fn stop(&mut self, split: Result<(), Cut>) -> Result<(), UploadError> {
        match split {
            Ok(()) => Ok(()),
            Err(Cut::Refused(error)) => Err(error),
            Err(Cut::LongLine { line }) => {
                let long = BadLine {
                    line,
                    message: format!(
                        "the line is longer than {} bytes",
                        self.limits.line_bytes_max
                    ),
                    field: None,
                };
                self.bad.add(long)?;
                Err(self.bad.take())
            }
        }
    }

    fn finish(mut self) -> Result<RequestFileSummary, UploadError> {
        self.bad
            .add_repeated(self.fingerprints.repeated(BAD_LINES_MAX));
        if !self.bad.is_empty() {
            return Err(self.bad.take());
        }
        if self.counts.requests() == 0 {
            return Err(UploadError::Empty);
        }
        let bytes = self.writer.publish()?;
        Ok(self.counts.summary(bytes))
    }
}
