//! Converts the tensors of a GGUF header to places in a mapped file, with their encodings.

use crate::files::table::{FileEncoding, TensorLocation};
use crate::stored_tensor::Encoding;
use candle_core::quantized::GgmlDType;
use model_files::gguf::TensorEntry;

/// Locates a tensor in the file with index `file` of the model's table, which has `file_bytes` bytes.
///
/// # Errors
/// If this engine does not support the shape, or the file was truncated after its header was read.
pub(super) fn place(
    entry: &TensorEntry,
    file: usize,
    file_bytes: usize,
) -> Result<TensorLocation, String> {
    let name = &entry.name;
    // GGUF lists the contiguous dimension first; here it is last.
    let shape = entry.shape.iter().rev().map(|size| {
        let size = usize::try_from(*size).ok().filter(|size| *size > 0);
        size.ok_or_else(|| format!("the tensor {name} has a dimension of invalid size"))
    });
    let shape: Vec<usize> = shape.collect::<Result<_, _>>()?;
    if shape.is_empty() {
        return Err(format!("the tensor {name} has no dimensions"));
    }
    let (written, bytes) = match (written(entry.format), entry.bytes) {
        (Some(written), Some(bytes)) => (written, bytes),
        _ => (FileEncoding::Foreign(foreign_name(entry.format)), 0),
    };
    let begin = usize::try_from(entry.begin).ok();
    let end = begin.and_then(|begin| begin.checked_add(usize::try_from(bytes).ok()?));
    let (Some(begin), Some(end)) = (begin, end.filter(|end| *end <= file_bytes)) else {
        return Err(format!(
            "it was truncated while it was opened: the tensor {name} is cut off"
        ));
    };
    Ok(TensorLocation {
        file,
        written,
        shape,
        range: begin..end,
        transposed: false,
    })
}

/// Maps a format number to an encoding; `None` for unsupported formats.
fn written(format: u32) -> Option<FileEncoding> {
    Some(match format {
        0 => FileEncoding::Plain(Encoding::F32),
        1 => FileEncoding::Plain(Encoding::F16),
        2 => FileEncoding::Plain(Encoding::Q4_0),
        3 => FileEncoding::Converted(GgmlDType::Q4_1),
        6 => FileEncoding::Converted(GgmlDType::Q5_0),
        7 => FileEncoding::Converted(GgmlDType::Q5_1),
        8 => FileEncoding::Plain(Encoding::Q8_0),
        10 => FileEncoding::Converted(GgmlDType::Q2K),
        11 => FileEncoding::Converted(GgmlDType::Q3K),
        12 => FileEncoding::Plain(Encoding::Q4K),
        13 => FileEncoding::Plain(Encoding::Q5K),
        14 => FileEncoding::Plain(Encoding::Q6K),
        30 => FileEncoding::Plain(Encoding::Bf16),
        _ => return None,
    })
}

/// The name of an unsupported format.
fn foreign_name(format: u32) -> String {
    let name = match format {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24..=27 => "integer",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        other => return format!("number {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_files::gguf_types;

    /// Block sizes are defined in `model_files` and in the engine's types; they must agree.
    #[test]
    fn block_sizes_match_those_used_by_the_header() {
        let mut read = 0;
        for format in 0..64 {
            let (numbers, bytes) = match written(format) {
                Some(FileEncoding::Plain(encoding)) => {
                    (encoding.block_numbers(), encoding.block_bytes())
                }
                Some(FileEncoding::Converted(kind)) => (kind.block_size(), kind.type_size()),
                Some(FileEncoding::Foreign(_)) | None => continue,
            };
            let block = gguf_types::block(format).expect("is known");
            assert_eq!(
                (block.elements, block.bytes),
                (numbers as u64, bytes as u64)
            );
            read += 1;
        }
        assert_eq!(read, 13);
    }
}
