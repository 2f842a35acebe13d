//! A file of complete lines with a buffer. A failed write leaves no part of a line.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::paths;

const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The calls of a file that lines need.
pub trait LineStore {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&mut self, bytes: u64) -> io::Result<()>;
    fn sync_data(&mut self) -> io::Result<()>;
}

impl LineStore for File {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        File::sync_data(self)
    }
}

#[derive(Debug)]
pub struct LineFile<F> {
    file: F,
    path: PathBuf,
    /// The length up to the last line that was written completely.
    good_bytes: u64,
    /// Complete lines that the file does not have yet.
    buffer: Vec<u8>,
    /// The file may have bytes after its good length.
    is_torn: bool,
    is_synced: bool,
    /// After a failed sync, the system may have dropped lines that this process counts as written.
    is_broken: bool,
}

impl<F: LineStore> LineFile<F> {
    pub fn new(file: F, path: PathBuf, good_bytes: u64) -> LineFile<F> {
        LineFile {
            file,
            path,
            good_bytes,
            buffer: Vec::new(),
            is_torn: true,
            is_synced: false,
            is_broken: false,
        }
    }

    #[cfg(test)]
    pub fn file_mut(&mut self) -> &mut F {
        &mut self.file
    }

    /// Removes the bytes after the last good line.
    pub fn cut_and_sync(&mut self) -> io::Result<()> {
        self.cut()?;
        self.sync()
    }

    /// Adds a line with its `\n`.
    ///
    /// # Errors
    /// Neither the file nor the buffer has the line.
    pub fn add(&mut self, line: &[u8]) -> io::Result<()> {
        self.check()?;
        if self.buffer.len() + line.len() > BUFFER_BYTES_MAX {
            self.flush()?;
        }
        if line.len() > BUFFER_BYTES_MAX {
            return self.append(line);
        }
        self.buffer.extend_from_slice(line);
        Ok(())
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let appended = self.append(&buffer);
        self.buffer = buffer;
        if appended.is_ok() {
            self.buffer.clear();
        }
        appended
    }

    /// The length with the buffered lines.
    pub fn bytes(&self) -> u64 {
        self.good_bytes + self.buffer.len() as u64
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.is_synced {
            return Ok(());
        }
        let synced = self.file.sync_data();
        self.is_broken = synced.is_err();
        self.is_synced = synced.is_ok();
        synced.map_err(|error| paths::named(&self.path, error))
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.cut()?;
        self.is_synced = false;
        if let Err(error) = self.file.write_all_at(lines, self.good_bytes) {
            self.is_torn = true;
            // The next write tries again if this fails.
            let _ = self.cut();
            return Err(paths::named(&self.path, error));
        }
        self.good_bytes += lines.len() as u64;
        Ok(())
    }

    fn cut(&mut self) -> io::Result<()> {
        if self.is_torn {
            let cut = self.file.set_len(self.good_bytes);
            cut.map_err(|error| paths::named(&self.path, error))?;
            self.is_torn = false;
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        if !self.is_broken {
            return Ok(());
        }
        let message = "an earlier sync failed: open the results again";
        Err(paths::named(&self.path, io::Error::other(message)))
    }
}
