//! Decompresses an upload of one or several gzip members. The text passes in pieces of at most the decoder's buffer, so a small
//! file that decompresses to much text stops at the limit of the text.

use std::io::Write;

use flate2::write::MultiGzDecoder;

use super::problems::UploadError;

/// Compressed bytes allowed above the limit of the text. Text that does not compress grows by less than this share.
const OVERHEAD_SHARE: u64 = 64;
const OVERHEAD_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub struct Gzip {
    /// Collects the text of one step.
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Members without text would otherwise continue forever.
    compressed_bytes_left: u64,
    text_bytes_max: u64,
}

impl Gzip {
    pub fn new(text_bytes_max: u64) -> Gzip {
        let overhead = text_bytes_max / OVERHEAD_SHARE + OVERHEAD_BYTES;
        Gzip {
            decoder: MultiGzDecoder::new(Vec::new()),
            compressed_bytes_left: text_bytes_max.saturating_add(overhead),
            text_bytes_max,
        }
    }

    /// Passes the text of the chunk.
    pub fn read(
        &mut self,
        mut chunk: &[u8],
        mut pass: impl FnMut(&[u8]) -> Result<(), UploadError>,
    ) -> Result<(), UploadError> {
        let left = self.compressed_bytes_left.checked_sub(chunk.len() as u64);
        self.compressed_bytes_left = left.ok_or(UploadError::TooLarge {
            limit_bytes: self.text_bytes_max,
        })?;
        while !chunk.is_empty() {
            let taken = self.decoder.write(chunk).map_err(|_| damaged())?;
            if taken == 0 {
                return Err(damaged());
            }
            chunk = &chunk[taken..];
            let text = self.decoder.get_mut();
            pass(text)?;
            text.clear();
        }
        Ok(())
    }

    /// Checks the end of the data, and returns the rest of the text.
    pub fn finish(self) -> Result<Vec<u8>, UploadError> {
        self.decoder.finish().map_err(|_| {
            UploadError::Gzip("the gzip data ends early or has a wrong checksum".to_owned())
        })
    }
}

fn damaged() -> UploadError {
    UploadError::Gzip("the gzip data is damaged".to_owned())
}
