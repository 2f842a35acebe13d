//! Memory-mapped files.

use crate::error::EngineError;
use memmap2::{Advice, Mmap};
use model_files::open_regular;
#[cfg(test)]
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A read-only mapping; its bytes stay in the page cache.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub path: PathBuf,
    bytes: Mmap,
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl MappedFile {
    /// Maps a complete file.
    ///
    /// # Errors
    /// If the file cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let failed = |error: std::io::Error| {
            EngineError::model(
                path,
                format!("it cannot be opened ({error})"),
                "download the model completely, and make its files readable for this user",
            )
        };
        let file = open_regular(path).map_err(failed)?;
        #[expect(
            unsafe_code,
            reason = "weights are used in place: a copy would double their memory"
        )]
        // SAFETY: the mapping is private and never written to. It cannot exclude that another process changes the file: changed
        // bytes give wrong results, as they would after a reload, and truncation ends this process with SIGBUS at the next access.
        // Every engine that maps its weights accepts that. Models are replaced by a rename, which leaves the mapped file intact. A
        // file truncated during loading is detected by `populate` and reported as an error.
        let bytes = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    /// Hints to the kernel that a range will be read soon. Errors are ignored.
    pub fn expect_soon(&self, range: Range<usize>) {
        drop(
            self.bytes
                .advise_range(Advice::WillNeed, range.start, range.len()),
        );
    }

    /// Hints that the complete file will be read soon.
    pub fn expect_all_soon(&self) {
        self.expect_soon(0..self.bytes.len());
    }

    /// Tells the kernel that the pages are not needed for now.
    ///
    /// # Errors
    /// If the kernel rejects the advice.
    pub fn give_back(&self) -> Result<(), EngineError> {
        crate::sleep::give_back_pages(&self.bytes)
    }

    /// Reads a range into the page cache and into the page tables of this process.
    ///
    /// # Errors
    /// If the disk cannot be read, or the file no longer has these bytes.
    pub fn populate(&self, range: Range<usize>) -> Result<(), EngineError> {
        #[cfg(target_os = "linux")]
        match self
            .bytes
            .advise_range(Advice::PopulateRead, range.start, range.len())
        {
            Ok(()) => return Ok(()),
            // Kernels before 5.14 do not support it.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {}
            Err(error) => {
                return Err(EngineError::model(
                    &self.path,
                    format!(
                        "bytes {} to {} cannot be read ({error}), perhaps because the file was truncated",
                        range.start, range.end
                    ),
                    "check the disk, and load the model again when the file is complete",
                ));
            }
        }
        const PAGE_BYTES: usize = 4096;
        for byte in self.bytes[range].iter().step_by(PAGE_BYTES) {
            std::hint::black_box(*byte);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_became_shorter_is_an_error_while_it_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("weights");
        std::fs::write(&path, vec![1; 1 << 20]).expect("written");
        let mapped = MappedFile::open(&path).expect("maps");
        mapped.expect_soon(0..1 << 20);
        mapped.populate(0..1 << 20).expect("is whole");
        let file = File::options().write(true).open(&path).expect("opens");
        file.set_len(100).expect("shorter");
        let error = mapped
            .populate(500_000..600_000)
            .expect_err("the pages are gone")
            .to_string();
        assert!(
            error.contains("weights") && error.contains("was truncated"),
            "{error}"
        );
    }
}
