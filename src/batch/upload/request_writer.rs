//! Writes the lines of requests and the index of their places under temporary names, and publishes both files together.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::paths::{self, DATA, INDEX};
use crate::request_file::Place;

const BUFFER_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub struct RequestWriter {
    dir: PathBuf,
    data: NewFile,
    index: NewFile,
    /// The length of the data so far.
    offset: u64,
}

impl RequestWriter {
    pub fn create(dir: &Path, id: &str) -> io::Result<RequestWriter> {
        Ok(RequestWriter {
            dir: dir.to_owned(),
            data: NewFile::create(paths::path_of(dir, id, DATA)?)?,
            index: NewFile::create(paths::path_of(dir, id, INDEX)?)?,
            offset: 0,
        })
    }

    pub fn add(&mut self, line: &[u8], model: u32) -> io::Result<()> {
        let len = u32::try_from(line.len()).map_err(|_| ErrorKind::FileTooLarge)?;
        let place = Place {
            offset: self.offset,
            len,
            model,
        };
        self.data.write(line)?;
        self.data.write(b"\n")?;
        self.index.write(&place.to_bytes())?;
        self.offset += u64::from(len) + 1;
        Ok(())
    }

    /// Makes both files durable and gives them their names. Returns the length of the data.
    pub fn publish(mut self) -> io::Result<u64> {
        self.data.sync()?;
        self.index.sync()?;
        // A file of requests is there only with its index.
        self.index.rename()?;
        self.data.rename()?;
        paths::sync_folder(&self.dir)?;
        self.index.is_kept = true;
        self.data.is_kept = true;
        Ok(self.offset)
    }
}

/// A file that is removed when it is dropped, unless it is kept.
#[derive(Debug)]
struct NewFile {
    file: BufWriter<File>,
    /// The current name.
    path: PathBuf,
    target: PathBuf,
    is_kept: bool,
}

impl NewFile {
    fn create(target: PathBuf) -> io::Result<NewFile> {
        if target.try_exists()? {
            return Err(paths::named(&target, ErrorKind::AlreadyExists.into()));
        }
        let path = paths::part_of(&target);
        Ok(NewFile {
            file: BufWriter::with_capacity(BUFFER_BYTES, paths::create_private(&path)?),
            path,
            target,
            is_kept: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| paths::named(&self.path, error))
    }

    fn sync(&mut self) -> io::Result<()> {
        let flushed = self.file.flush();
        let synced = flushed.and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(|error| paths::named(&self.path, error))
    }

    fn rename(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, &self.target)
            .map_err(|error| paths::named(&self.target, error))?;
        self.path.clone_from(&self.target);
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
