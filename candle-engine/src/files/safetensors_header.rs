//! Owns the header of a safetensors file: reads it and proves that every tensor lies in the file and none overlap. Never reads tensors.

use crate::error::{EngineError, one_line};
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The format's own limit.
const HEADER_BYTES_MAX: u64 = 100_000_000;
const LENGTH_BYTES: u64 = 8;
const REMEDY: &str = "the file is damaged or incomplete: download it again";

/// A header that was checked against the size of its file.
pub(crate) struct Header {
    metadata: Metadata,
    /// Where the tensors begin in the file.
    pub data_start: usize,
}

impl Header {
    /// Reads and checks the header at the beginning of `file`.
    ///
    /// # Errors
    /// A header that is longer than the file, no JSON, or describes tensors that overlap, leave gaps or lie outside the file.
    pub fn read(file: &mut File, path: &Path) -> Result<Self, EngineError> {
        let wrong = |problem: String| EngineError::model(path, problem, REMEDY);
        let unreadable = |error: std::io::Error| wrong(format!("it cannot be read ({error})"));
        let file_bytes = file.metadata().map_err(unreadable)?.len();
        if file_bytes < LENGTH_BYTES {
            return Err(wrong(format!(
                "it has {file_bytes} bytes, too few for a safetensors file"
            )));
        }
        let mut length = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut length).map_err(unreadable)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > file_bytes - LENGTH_BYTES {
            return Err(wrong(format!(
                "its header claims {header_bytes} bytes, the file has {file_bytes}"
            )));
        }
        if header_bytes > HEADER_BYTES_MAX {
            return Err(wrong(format!(
                "its header claims {header_bytes} bytes, more than the format's {HEADER_BYTES_MAX}"
            )));
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header).map_err(unreadable)?;
        // Reading it also checks that shapes, types and offsets agree and that no tensor overlaps another.
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| {
            wrong(
                overlap(&header)
                    .unwrap_or_else(|| format!("its header is wrong ({})", one_line(error))),
            )
        })?;
        let data_start = LENGTH_BYTES + header_bytes;
        let (claimed, present) = (metadata.data_len() as u64, file_bytes - data_start);
        if claimed != present {
            return Err(wrong(format!(
                "its tensors need {claimed} bytes, the file has {present} after the header{}",
                past_end(&metadata, present)
            )));
        }
        Ok(Self {
            metadata,
            data_start: data_start as usize,
        })
    }

    /// Every tensor by its name.
    pub fn tensors(&self) -> impl Iterator<Item = (String, &TensorInfo)> {
        let names = self.metadata.offset_keys().into_iter();
        names.filter_map(|name| {
            let info = self.metadata.info(&name)?;
            Some((name, info))
        })
    }
}

/// Names two tensors that claim the same bytes, if that is what is wrong with a header; the library names neither for certain.
fn overlap(header: &[u8]) -> Option<String> {
    let json: Value = serde_json::from_slice(header).ok()?;
    let range = |info: &Value| {
        Some((
            info["data_offsets"][0].as_u64()?,
            info["data_offsets"][1].as_u64()?,
        ))
    };
    let mut ranges: Vec<_> = json
        .as_object()?
        .iter()
        .filter_map(|(name, info)| Some((range(info)?, name)))
        .collect();
    ranges.sort();
    let pair = ranges.windows(2).find(|pair| pair[1].0.0 < pair[0].0.1)?;
    Some(format!(
        "its tensors {} and {} overlap",
        pair[0].1, pair[1].1
    ))
}

/// Names the first tensor that lies beyond the end of the file.
fn past_end(metadata: &Metadata, present: u64) -> String {
    metadata
        .offset_keys()
        .into_iter()
        .find(|name| {
            metadata
                .info(name)
                .is_some_and(|info| info.data_offsets.1 as u64 > present)
        })
        .map_or_else(String::new, |name| {
            format!(", {name} is the first that is cut off")
        })
}
