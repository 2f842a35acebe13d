//! Converts matrices to another encoding: quantises them on request, and converts GGUF types that the kernels do not support.

use super::table::FileEncoding;
use crate::stored_tensor::Encoding;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

/// Numbers that a thread converts at a time.
const CHUNK_NUMBERS: usize = 1 << 16;

/// Returns `wanted` if its blocks fit rows of `columns` numbers, otherwise Q8_0 if that fits, otherwise `None`.
pub(super) fn fitting(wanted: Encoding, columns: usize) -> Option<Encoding> {
    [wanted, Encoding::Q8_0].into_iter().find(|encoding| {
        encoding.block_numbers() > 1 && columns.is_multiple_of(encoding.block_numbers())
    })
}

/// Converts a matrix to a block encoding.
///
/// # Errors
/// If the bytes are not complete rows.
pub(super) fn rewrite(
    bytes: &[u8],
    from: &FileEncoding,
    to: Encoding,
    columns: usize,
) -> Result<Vec<u8>, String> {
    let (block_numbers, block_bytes) = match from {
        FileEncoding::Plain(encoding) => (encoding.block_numbers(), encoding.block_bytes()),
        FileEncoding::Converted(kind) => (kind.block_size(), kind.type_size()),
        FileEncoding::Foreign(kind) => return Err(format!("{kind} is not read")),
    };
    let old_row = columns / block_numbers * block_bytes;
    let new_row = to
        .bytes_of(columns)
        .ok_or_else(|| format!("rows of {columns} numbers are not complete blocks"))?;
    if old_row == 0 || !bytes.len().is_multiple_of(old_row) {
        return Err(format!(
            "{} bytes are not complete rows of {old_row}",
            bytes.len()
        ));
    }
    let rows = bytes.len() / old_row;
    let together = (CHUNK_NUMBERS / columns).max(1);
    let mut written = vec![0; rows * new_row];
    written
        .par_chunks_mut(together * new_row)
        .zip(bytes.par_chunks(together * old_row))
        .try_for_each(|(new, old)| {
            let made = chunk(old, from, to, columns)?;
            if made.len() != new.len() {
                return Err(format!("{} bytes became {}", new.len(), made.len()));
            }
            new.copy_from_slice(&made);
            Ok(())
        })?;
    Ok(written)
}

/// Transposes a matrix that is stored with one row per column. Its type must not be a block type.
///
/// # Errors
/// If the bytes are not complete rows.
pub(super) fn transposed(bytes: &[u8], from: Encoding, columns: usize) -> Result<Vec<u8>, String> {
    /// Number of rows read together, to use every loaded cache line fully.
    const ROWS: usize = 16;
    let size = from.block_bytes();
    let rows = bytes.len() / size / columns.max(1);
    if from.block_numbers() != 1 || rows * columns * size != bytes.len() || rows == 0 {
        return Err(format!(
            "{} bytes are not {columns} rows of {from:?} numbers",
            bytes.len()
        ));
    }
    let mut written = vec![0; bytes.len()];
    let parts = written.par_chunks_mut(ROWS * columns * size).enumerate();
    parts.for_each(|(part, new)| {
        for (column, old) in bytes.chunks_exact(rows * size).enumerate() {
            let old = old[part * ROWS * size..].chunks_exact(size);
            for (row, number) in new.chunks_exact_mut(columns * size).zip(old) {
                row[column * size..][..size].copy_from_slice(number);
            }
        }
    });
    Ok(written)
}

fn chunk(old: &[u8], from: &FileEncoding, to: Encoding, columns: usize) -> Result<Vec<u8>, String> {
    if matches!(from, FileEncoding::Converted(GgmlDType::Q5_0)) && to == Encoding::Q8_0 {
        return Ok(widened(old));
    }
    let failed = |error: candle_core::Error| error.to_string();
    let numbers = numbers(old, from, columns)?;
    let rows = numbers.len() / columns;
    let kind = kind_of(to).ok_or_else(|| format!("{to:?} is not a block type"))?;
    let tensor = Tensor::from_vec(numbers, (rows, columns), &Device::Cpu).map_err(failed)?;
    let quantised = QTensor::quantize(&tensor, kind).map_err(failed)?;
    Ok(quantised.data().map_err(failed)?.into_owned())
}

fn kind_of(encoding: Encoding) -> Option<GgmlDType> {
    Some(match encoding {
        Encoding::F32 | Encoding::F16 | Encoding::Bf16 => return None,
        Encoding::Q4_0 => GgmlDType::Q4_0,
        Encoding::Q8_0 => GgmlDType::Q8_0,
        Encoding::Q4K => GgmlDType::Q4K,
        Encoding::Q5K => GgmlDType::Q5K,
        Encoding::Q6K => GgmlDType::Q6K,
    })
}

fn numbers(old: &[u8], from: &FileEncoding, columns: usize) -> Result<Vec<f32>, String> {
    let (kind, block_numbers, block_bytes) = match from {
        FileEncoding::Plain(Encoding::F32) => {
            let numbers = old.chunks_exact(4);
            return Ok(numbers
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect());
        }
        FileEncoding::Plain(Encoding::F16) => {
            let numbers = old.chunks_exact(2);
            return Ok(numbers
                .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect());
        }
        FileEncoding::Plain(Encoding::Bf16) => {
            let numbers = old.chunks_exact(2);
            return Ok(numbers
                .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect());
        }
        FileEncoding::Plain(encoding) => (
            kind_of(*encoding),
            encoding.block_numbers(),
            encoding.block_bytes(),
        ),
        FileEncoding::Converted(kind) => (Some(*kind), kind.block_size(), kind.type_size()),
        FileEncoding::Foreign(_) => (None, 1, 1),
    };
    let kind = kind.ok_or_else(|| format!("{from:?} is not read"))?;
    let rows = old.len() / block_bytes * block_numbers / columns;
    let read = qtensor_from_ggml(kind, old, vec![rows, columns], &Device::Cpu)
        .and_then(|tensor| tensor.dequantize(&Device::Cpu))
        .and_then(|tensor| tensor.flatten_all())
        .and_then(|tensor| tensor.to_vec1::<f32>());
    read.map_err(|error| error.to_string())
}

/// Converts Q5_0 to Q8_0 without loss: a block is an F16 factor and 32 integers from -16 to 15, whose fifth bits are stored
/// separately.
fn widened(old: &[u8]) -> Vec<u8> {
    let mut new = Vec::with_capacity(old.len() / 22 * 34);
    for block in old.chunks_exact(22) {
        let fifth = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
        let number = |low: u8, place: usize| {
            let high = ((fifth >> place) & 1) as u8;
            ((low | high << 4) as i8).wrapping_sub(16) as u8
        };
        new.extend_from_slice(&block[..2]);
        new.extend(
            block[6..]
                .iter()
                .enumerate()
                .map(|(place, byte)| number(byte & 15, place)),
        );
        new.extend(
            block[6..]
                .iter()
                .enumerate()
                .map(|(place, byte)| number(byte >> 4, place + 16)),
        );
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, columns: usize) -> Vec<f32> {
        (0..rows * columns)
            .map(|place| ((place * 7919) % 1009) as f32 / 500.0 - 1.0)
            .collect()
    }

    fn quantised(kind: GgmlDType, rows: usize, columns: usize) -> (Vec<u8>, Vec<f32>) {
        let tensor = Tensor::from_vec(matrix(rows, columns), (rows, columns), &Device::Cpu)
            .and_then(|tensor| QTensor::quantize(&tensor, kind))
            .expect("quantises");
        let bytes = tensor.data().expect("bytes").into_owned();
        let numbers = tensor
            .dequantize(&Device::Cpu)
            .and_then(|tensor| tensor.flatten_all()?.to_vec1::<f32>())
            .expect("numbers");
        (bytes, numbers)
    }

    #[test]
    fn q5_0_is_converted_to_q8_0_without_loss() {
        let (bytes, meant) = quantised(GgmlDType::Q5_0, 70, 96);
        let from = FileEncoding::Converted(GgmlDType::Q5_0);
        let written = rewrite(&bytes, &from, Encoding::Q8_0, 96).expect("writes");
        let read = numbers(&written, &FileEncoding::Plain(Encoding::Q8_0), 96).expect("reads");
        assert_eq!(read, meant);
    }

    #[test]
    fn other_types_are_written_as_q8_0_within_its_rounding() {
        for kind in [
            GgmlDType::Q4_1,
            GgmlDType::Q5_1,
            GgmlDType::Q2K,
            GgmlDType::Q3K,
        ] {
            let (bytes, meant) = quantised(kind, 3, 512);
            let from = FileEncoding::Converted(kind);
            let written = rewrite(&bytes, &from, Encoding::Q8_0, 512).expect("writes");
            let read = numbers(&written, &FileEncoding::Plain(Encoding::Q8_0), 512).expect("reads");
            let far = read
                .iter()
                .zip(&meant)
                .map(|(read, meant)| (read - meant).abs())
                .fold(0.0, f32::max);
            assert!(far < 1.3 / 127.0 / 1.9, "{kind:?}: {far}");
        }
    }

    #[test]
    fn a_matrix_converted_in_chunks_equals_one_converted_in_a_single_call() {
        let given = matrix(500, 256);
        let bytes: Vec<u8> = given
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        for (to, kind) in [
            (Encoding::Q8_0, GgmlDType::Q8_0),
            (Encoding::Q6K, GgmlDType::Q6K),
            (Encoding::Q4K, GgmlDType::Q4K),
        ] {
            let written = rewrite(&bytes, &FileEncoding::Plain(Encoding::F32), to, 256);
            assert_eq!(written.expect("writes"), quantised(kind, 500, 256).0);
        }
    }

    #[test]
    fn transposing_a_transposed_matrix_restores_it() {
        for (rows, columns) in [(1, 1), (3, 5), (16, 40), (70, 33)] {
            let given = matrix(rows, columns);
            let turned = (0..columns).flat_map(|column| {
                let given = &given;
                (0..rows).map(move |row| bf16::from_f32(given[row * columns + column]))
            });
            let turned: Vec<u8> = turned.flat_map(bf16::to_le_bytes).collect();
            let bytes: Vec<u8> = given
                .iter()
                .flat_map(|number| bf16::from_f32(*number).to_le_bytes())
                .collect();
            let written = transposed(&turned, Encoding::Bf16, columns);
            assert_eq!(written.expect("writes"), bytes, "{rows} by {columns}");
        }
        assert!(transposed(&[0; 10], Encoding::F32, 2).is_err());
        assert!(transposed(&[], Encoding::F32, 2).is_err());
    }

    #[test]
    fn rows_that_do_not_divide_into_blocks_use_smaller_blocks_or_stay_unquantized() {
        assert_eq!(fitting(Encoding::Q4K, 512), Some(Encoding::Q4K));
        assert_eq!(fitting(Encoding::Q4K, 96), Some(Encoding::Q8_0));
        assert_eq!(fitting(Encoding::Q8_0, 40), None);
    }
}
