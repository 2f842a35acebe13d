//! Decodes GGML blocks one row at a time: used to look up rows, and as the slow reference for the kernels.
//!
//! Layouts: `ggml-common.h` of llama.cpp. A block begins with its factor as a 16-bit float, but Q6_K ends with it.

use half::{bf16, f16};

use crate::stored_tensor::Encoding;

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The 6-bit factor and minimum of 32 numbers of Q4_K and Q5_K.
pub(super) fn factor_and_minimum(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let (low, high) = (packed[group - 4] >> 6, packed[group] >> 6);
        let last = packed[group + 4];
        (last & 15 | low << 4, last >> 4 | high << 4)
    }
}

/// Writes the numbers of a row. `bytes` and `numbers` must hold complete blocks.
pub(crate) fn dequantise(encoding: Encoding, bytes: &[u8], numbers: &mut [f32]) {
    let blocks = bytes.chunks_exact(encoding.block_bytes());
    for (block, numbers) in blocks.zip(numbers.chunks_exact_mut(encoding.block_numbers())) {
        match encoding {
            Encoding::F32 => {
                numbers[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]])
            }
            Encoding::F16 => numbers[0] = half_at(block, 0),
            Encoding::Bf16 => numbers[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
            Encoding::Q8_0 => q8_0(block, numbers),
            Encoding::Q4_0 => q4_0(block, numbers),
            Encoding::Q4K => q4_k(block, numbers),
            Encoding::Q5K => q5_k(block, numbers),
            Encoding::Q6K => q6_k(block, numbers),
        }
    }
}

fn q8_0(block: &[u8], numbers: &mut [f32]) {
    let factor = half_at(block, 0);
    for (number, byte) in numbers.iter_mut().zip(&block[2..]) {
        *number = factor * f32::from(*byte as i8);
    }
}

fn q4_0(block: &[u8], numbers: &mut [f32]) {
    let factor = half_at(block, 0);
    for (place, byte) in block[2..].iter().enumerate() {
        numbers[place] = factor * (f32::from(byte & 15) - 8.0);
        numbers[place + 16] = factor * (f32::from(byte >> 4) - 8.0);
    }
}

fn q4_k(block: &[u8], numbers: &mut [f32]) {
    let (factor, minimum) = (half_at(block, 0), half_at(block, 2));
    for (group, numbers) in numbers.chunks_exact_mut(32).enumerate() {
        let (own_factor, own_minimum) = factor_and_minimum(&block[4..16], group);
        let (factor, minimum) = (
            factor * f32::from(own_factor),
            minimum * f32::from(own_minimum),
        );
        for (number, byte) in numbers.iter_mut().zip(&block[16 + group / 2 * 32..]) {
            *number = factor * f32::from(byte >> (group % 2 * 4) & 15) - minimum;
        }
    }
}

fn q5_k(block: &[u8], numbers: &mut [f32]) {
    let (factor, minimum) = (half_at(block, 0), half_at(block, 2));
    for (group, numbers) in numbers.chunks_exact_mut(32).enumerate() {
        let (own_factor, own_minimum) = factor_and_minimum(&block[4..16], group);
        let (factor, minimum) = (
            factor * f32::from(own_factor),
            minimum * f32::from(own_minimum),
        );
        let low = &block[48 + group / 2 * 32..];
        for ((number, byte), high) in numbers.iter_mut().zip(low).zip(&block[16..48]) {
            let quant = byte >> (group % 2 * 4) & 15 | (high >> group & 1) << 4;
            *number = factor * f32::from(quant) - minimum;
        }
    }
}

fn q6_k(block: &[u8], numbers: &mut [f32]) {
    let factor = half_at(block, 208);
    for (place, number) in numbers.iter_mut().enumerate() {
        // Halves of 128 numbers: 64 bytes of low nibbles, 32 bytes of two more bits for each quarter of the half.
        let (half, within) = (place / 128, place % 128);
        let low = block[half * 64 + within % 64] >> (within / 64 * 4) & 15;
        let high = block[128 + half * 32 + within % 32] >> (within / 32 * 2) & 3;
        let own_factor = block[192 + place / 16] as i8;
        *number = factor * f32::from(own_factor) * (f32::from(low | high << 4) - 32.0);
    }
}

#[cfg(test)]
mod tests;
