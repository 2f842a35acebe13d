//! Splits text into lines. A line within a chunk is not copied; a line across chunks is collected up to the limit.

use memchr::memchr;

use super::problems::UploadError;

const BOM: &[u8] = "\u{feff}".as_bytes();

/// The reason that the text was not read to its end.
#[derive(Debug)]
pub enum Cut {
    Refused(UploadError),
    LongLine { line: u64 },
}

#[derive(Debug)]
pub struct Splitter {
    /// The start of a line that continues in the next chunk.
    pending: Vec<u8>,
    lines_ended: u64,
    line_bytes_max: usize,
}

impl Splitter {
    pub fn new(line_bytes_max: usize) -> Splitter {
        Splitter {
            pending: Vec::new(),
            lines_ended: 0,
            line_bytes_max,
        }
    }

    /// Passes each line that ends in this text, without its `\n`, and its number from 1.
    pub fn split(
        &mut self,
        mut text: &[u8],
        mut read: impl FnMut(u64, &[u8]) -> Result<(), UploadError>,
    ) -> Result<(), Cut> {
        while let Some(end) = memchr(b'\n', text) {
            let (line, rest) = (&text[..end], &text[end + 1..]);
            text = rest;
            self.check(line)?;
            if self.pending.is_empty() {
                self.end(line, &mut read)?;
                continue;
            }
            let mut pending = std::mem::take(&mut self.pending);
            pending.extend_from_slice(line);
            self.end(&pending, &mut read)?;
            pending.clear();
            self.pending = pending;
        }
        self.check(text)?;
        self.pending.extend_from_slice(text);
        Ok(())
    }

    /// Passes the last line if it has no `\n`.
    pub fn finish(
        &mut self,
        mut read: impl FnMut(u64, &[u8]) -> Result<(), UploadError>,
    ) -> Result<(), Cut> {
        let pending = std::mem::take(&mut self.pending);
        self.end(&pending, &mut read)
    }

    fn check(&self, more: &[u8]) -> Result<(), Cut> {
        if self.pending.len() + more.len() <= self.line_bytes_max {
            return Ok(());
        }
        Err(Cut::LongLine {
            line: self.lines_ended + 1,
        })
    }

    fn end(
        &mut self,
        line: &[u8],
        read: &mut impl FnMut(u64, &[u8]) -> Result<(), UploadError>,
    ) -> Result<(), Cut> {
        self.lines_ended += 1;
        let text = match self.lines_ended {
            1 => line.strip_prefix(BOM).unwrap_or(line),
            _ => line,
        };
        read(self.lines_ended, text).map_err(Cut::Refused)
    }
}
