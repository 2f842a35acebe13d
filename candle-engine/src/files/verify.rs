//! Finds numbers in tensors that are not finite.

use super::table::FileEncoding;
use crate::stored_tensor::Encoding;
use candle_core::quantized::GgmlDType;

/// Returns the offset of the first non-finite number or, for blocks, of the first block with a non-finite factor. Infinities and
/// NaNs have all exponent bits set.
pub(super) fn first_that_is_none(bytes: &[u8], written: &FileEncoding) -> Option<usize> {
    const F32_EXPONENT: u32 = 0x7f80_0000;
    const F16_EXPONENT: u16 = 0x7c00;
    const BF16_EXPONENT: u16 = 0x7f80;
    let all_bits = |bytes: &[u8], exponent: u16| {
        u16::from_le_bytes([bytes[0], bytes[1]]) & exponent == exponent
    };
    let halves = |exponent: u16| first(bytes, 2, |number| all_bits(number, exponent));
    let (block_bytes, factors): (usize, &[usize]) = match written {
        FileEncoding::Plain(Encoding::F32) => {
            return first(bytes, 4, |number| {
                let bits = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
                bits & F32_EXPONENT == F32_EXPONENT
            });
        }
        FileEncoding::Plain(Encoding::F16) => return halves(F16_EXPONENT),
        FileEncoding::Plain(Encoding::Bf16) => return halves(BF16_EXPONENT),
        // Offsets of the factors within a block, all F16.
        FileEncoding::Plain(encoding) => (
            encoding.block_bytes(),
            match encoding {
                Encoding::Q4K | Encoding::Q5K => &[0, 2],
                Encoding::Q6K => &[208],
                _ => &[0],
            },
        ),
        FileEncoding::Converted(kind) => (
            kind.type_size(),
            match kind {
                GgmlDType::Q4_1 | GgmlDType::Q5_1 => &[0, 2],
                GgmlDType::Q2K => &[80, 82],
                GgmlDType::Q3K => &[108],
                _ => &[0],
            },
        ),
        FileEncoding::Foreign(_) => return None,
    };
    first(bytes, block_bytes, |block| {
        let mut factors = factors.iter();
        factors.any(|factor| all_bits(&block[*factor..], F16_EXPONENT))
    })
}

/// Checks a page at a time without branching per number, then finds the number within the page.
fn first(bytes: &[u8], size: usize, is_none: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let page = 1024 * size;
    bytes.chunks(page).enumerate().find_map(|(place, numbers)| {
        let numbers = numbers.chunks_exact(size);
        let any = numbers
            .clone()
            .fold(false, |any, number| any | is_none(number));
        let found = any.then(|| numbers.clone().position(&is_none)).flatten()?;
        Some(place * page + found * size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_non_finite_number_is_found_in_every_type() {
        let quiet = vec![0; 4 * 5000];
        for (written, bits) in [
            (
                FileEncoding::Plain(Encoding::F32),
                f32::NAN.to_le_bytes().to_vec(),
            ),
            (
                FileEncoding::Plain(Encoding::F32),
                f32::NEG_INFINITY.to_le_bytes().to_vec(),
            ),
            (FileEncoding::Plain(Encoding::F16), vec![0x00, 0x7c]),
            (FileEncoding::Plain(Encoding::Bf16), vec![0xc0, 0x7f]),
        ] {
            assert_eq!(first_that_is_none(&quiet, &written), None);
            for place in [0, 4096, 4 * 4999] {
                let mut broken = quiet.clone();
                broken[place..place + bits.len()].copy_from_slice(&bits);
                assert_eq!(
                    first_that_is_none(&broken, &written),
                    Some(place),
                    "{written:?}"
                );
            }
        }
    }

    #[test]
    fn a_block_with_a_non_finite_factor_is_found() {
        for (written, factor) in [
            (FileEncoding::Plain(Encoding::Q4_0), 0),
            (FileEncoding::Plain(Encoding::Q8_0), 0),
            (FileEncoding::Plain(Encoding::Q4K), 2),
            (FileEncoding::Plain(Encoding::Q5K), 0),
            (FileEncoding::Plain(Encoding::Q6K), 208),
            (FileEncoding::Converted(GgmlDType::Q3K), 108),
        ] {
            let size = match &written {
                FileEncoding::Plain(encoding) => encoding.block_bytes(),
                FileEncoding::Converted(kind) => kind.type_size(),
                FileEncoding::Foreign(_) => 0,
            };
            // The numbers within blocks may have any bits.
            let mut bytes = vec![0xff; size * 3];
            for block in bytes.chunks_exact_mut(size) {
                for factor in [0, 2, 80, 82, 108, 208] {
                    if factor + 2 <= size {
                        block[factor..factor + 2].fill(0);
                    }
                }
            }
            assert_eq!(first_that_is_none(&bytes, &written), None, "{written:?}");
            bytes[size + factor + 1] = 0x7e;
            assert_eq!(
                first_that_is_none(&bytes, &written),
                Some(size),
                "{written:?}"
            );
        }
    }
}
