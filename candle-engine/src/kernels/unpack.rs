//! Unpacks GGML blocks into the bytes and factors that vector kernels take.

#![expect(
    unsafe_code,
    reason = "blocks have no alignment and are read through pointers"
)]

use super::input::GROUP;
use super::tier::{LANES, Tier, array};
use super::tile::Tile;

/// The layout of an encoding. `row` points to the first block of a row.
pub(super) trait Blocks {
    const BLOCK_BYTES: usize;
    const FACTORS: Factors;
    /// The byte that represents zero.
    const ZERO: i32;
    /// Bytes are less than 64.
    const SMALL: bool;
    /// Numbers that share a factor.
    const PER_FACTOR: usize = if matches!(Self::FACTORS, Factors::Signed) {
        16
    } else {
        32
    };
    /// Numbers have a minimum in addition to their factor.
    const MINIMUMS: bool = matches!(Self::FACTORS, Factors::SixBit);
    /// Approximate bytes per 64 numbers.
    const UNIT_BYTES: usize = if matches!(Self::FACTORS, Factors::Simple) {
        2 * Self::BLOCK_BYTES
    } else {
        Self::BLOCK_BYTES.div_ceil(4)
    };
    /// Maximum number of input rows computed together: as many as the registers hold in addition to the encoding's own values.
    const INPUT_ROWS: usize = if Self::PER_FACTOR == GROUP { 6 } else { 5 };

    /// Unpacks the bytes of 64 numbers. If the unit is not full, only the first 32 are meaningful.
    ///
    /// # Safety
    /// The numbers must be readable.
    unsafe fn unit<T: Tier>(tier: T, row: *const u8, unit: usize, is_full: bool) -> T::Bytes;

    /// Unpacks factors and minimums of the columns from `first` on into a half of the tile.
    ///
    /// # Safety
    /// The numbers must be readable in each of the rows.
    #[inline(always)]
    unsafe fn factors<T: Tier>(
        tier: T,
        rows: &[*const u8; LANES],
        first: usize,
        columns: usize,
        half: usize,
        tile: &mut Tile,
    ) {
        let (columns, bytes) = ((first, columns), Self::BLOCK_BYTES);
        // SAFETY: the caller's promise.
        unsafe {
            match Self::FACTORS {
                Factors::Simple => simple_factors(tier, rows, columns, bytes, half, tile),
                Factors::SixBit => six_bit_factors(tier, rows, columns, bytes, half, tile),
                Factors::Signed => signed_factors(tier, rows, columns, bytes, half, tile),
            }
        }
    }
}

/// The form of an encoding's factors.
pub(super) enum Factors {
    /// One for each block of 32 numbers.
    Simple,
    /// One and a minimum for each 32 of the 256 numbers in a block.
    SixBit,
    /// One for each 16 of the 256 numbers in a block.
    Signed,
}

/// Loads the 16 bits at `at` of each row.
#[inline(always)]
unsafe fn words<T: Tier>(tier: T, rows: &[*const u8; LANES], at: usize) -> T::Ints {
    // SAFETY: the caller's promise.
    tier.ints(array!(LANES, 0, |row| u32::from(unsafe {
        rows[row].add(at).cast::<u16>().read_unaligned()
    })))
}

/// One factor at the beginning of each block of 32 numbers.
#[inline(always)]
unsafe fn simple_factors<T: Tier>(
    tier: T,
    rows: &[*const u8; LANES],
    (first, columns): (usize, usize),
    block_bytes: usize,
    half: usize,
    tile: &mut Tile,
) {
    for group in 0..columns / 32 {
        // SAFETY: the caller's promise; a tile has 16 lanes for each half.
        unsafe {
            let factors = words(tier, rows, (first / 32 + group) * block_bytes);
            tier.store(
                tile.factors[group][half].as_mut_ptr(),
                tier.halves_to_floats(factors),
            );
        }
    }
}

pub(super) struct Q8_0;

impl Blocks for Q8_0 {
    const BLOCK_BYTES: usize = 34;
    const FACTORS: Factors = Factors::Simple;
    const ZERO: i32 = 128;
    const SMALL: bool = false;

    #[inline(always)]
    unsafe fn unit<T: Tier>(tier: T, row: *const u8, unit: usize, is_full: bool) -> T::Bytes {
        // SAFETY: the caller's promise.
        unsafe {
            let low = row.add(2 * unit * Self::BLOCK_BYTES + 2);
            let high = if is_full {
                low.add(Self::BLOCK_BYTES)
            } else {
                low
            };
            tier.flip(tier.load_two(low, high), 0x80)
        }
    }
}

pub(super) struct Q4_0;

impl Blocks for Q4_0 {
    const BLOCK_BYTES: usize = 18;
    const FACTORS: Factors = Factors::Simple;
    const ZERO: i32 = 8;
    const SMALL: bool = true;

    #[inline(always)]
    unsafe fn unit<T: Tier>(tier: T, row: *const u8, unit: usize, is_full: bool) -> T::Bytes {
        // SAFETY: the caller's promise.
        unsafe {
            let low = row.add(2 * unit * Self::BLOCK_BYTES + 2);
            let high = if is_full {
                low.add(Self::BLOCK_BYTES)
            } else {
                low
            };
            tier.and(
                tier.shift_right(tier.load_pairs(low, high), [0, 4, 0, 4]),
                15,
            )
        }
    }
}

/// Unpacks factors and minimums of Q4_K and Q5_K, which begin alike: two 16-bit floats, then 6-bit numbers in three 32-bit words as
/// in [`super::blocks::factor_and_minimum`].
#[inline(always)]
unsafe fn six_bit_factors<T: Tier>(
    tier: T,
    rows: &[*const u8; LANES],
    (first, columns): (usize, usize),
    block_bytes: usize,
    half: usize,
    tile: &mut Tile,
) {
    for block in 0..columns / 256 {
        let at = (first / 256 + block) * block_bytes;
        // SAFETY: the caller's promise; a tile has 16 lanes for each half.
        unsafe {
            let [both, words @ ..] = tier.words(rows, at);
            let factor = tier.halves_to_floats(both);
            let minimum = tier.halves_to_floats(tier.shift_right_ints(both, 16));
            let minimum = tier.subtract(tier.splat(0.0), minimum);
            for group in 0..8 {
                let byte = (group as u32 % 4) * 8;
                let parts = array!(2, both, |word| if group < 4 {
                    tier.and_ints(tier.shift_right_ints(words[word], byte), 63)
                } else {
                    let low = tier.shift_right_ints(words[2], byte + 4 * word as u32);
                    let high = tier.shift_right_ints(words[word], byte + 6);
                    let high = tier.shift_left_ints(tier.and_ints(high, 3), 4);
                    tier.or_ints(tier.and_ints(low, 15), high)
                });
                let place = block * 8 + group;
                tier.store(
                    tile.factors[place][half].as_mut_ptr(),
                    tier.multiply(factor, tier.to_floats(parts[0])),
                );
                tier.store(
                    tile.minimums[place][half].as_mut_ptr(),
                    tier.multiply(minimum, tier.to_floats(parts[1])),
                );
            }
        }
    }
}

pub(super) struct Q4K;

impl Blocks for Q4K {
    const BLOCK_BYTES: usize = 144;
    const FACTORS: Factors = Factors::SixBit;
    const ZERO: i32 = 0;
    const SMALL: bool = true;

    #[inline(always)]
    unsafe fn unit<T: Tier>(tier: T, row: *const u8, unit: usize, _is_full: bool) -> T::Bytes {
        // SAFETY: the caller's promise.
        unsafe {
            let low = row.add(unit / 4 * Self::BLOCK_BYTES + 16 + unit % 4 * 32);
            tier.and(tier.shift_right(tier.load_two(low, low), [0, 0, 4, 4]), 15)
        }
    }
}

pub(super) struct Q5K;

impl Blocks for Q5K {
    const BLOCK_BYTES: usize = 176;
    const FACTORS: Factors = Factors::SixBit;
    const ZERO: i32 = 0;
    const SMALL: bool = true;

    #[inline(always)]
    unsafe fn unit<T: Tier>(tier: T, row: *const u8, unit: usize, _is_full: bool) -> T::Bytes {
        // SAFETY: the caller's promise.
        unsafe {
            let block = row.add(unit / 4 * Self::BLOCK_BYTES);
            let low = block.add(48 + unit % 4 * 32);
            let low = tier.and(tier.shift_right(tier.load_two(low, low), [0, 0, 4, 4]), 15);
            let bit = unit as u32 % 4 * 2;
            let high = tier.load_two(block.add(16), block.add(16));
            let high = tier.and(tier.shift_right(high, [bit, bit, bit + 1, bit + 1]), 1);
            tier.or(low, tier.shift_left(high, 4))
        }
    }
}

/// Unpacks the factors of Q6_K: a 16-bit float at the end, after sixteen signed bytes.
#[inline(always)]
unsafe fn signed_factors<T: Tier>(
    tier: T,
    rows: &[*const u8; LANES],
    (first, columns): (usize, usize),
    block_bytes: usize,
    half: usize,
    tile: &mut Tile,
) {
    for block in 0..columns / 256 {
        let at = (first / 256 + block) * block_bytes;
        // SAFETY: the caller's promise; a tile has 16 lanes for each half.
        unsafe {
            let factor = tier.halves_to_floats(words(tier, rows, at + 208));
            let own = tier.words(rows, at + 192);
            for four in 0..4 {
                let own = own[four];
                for byte in 0..4 {
                    let own = tier.signed_bytes(tier.shift_right_ints(own, 8 * byte as u32));
                    let place = block * 16 + four * 4 + byte;
                    tier.store(
                        tile.factors[place][half].as_mut_ptr(),
                        tier.multiply(factor, tier.to_floats(own)),
                    );
                }
            }
        }
    }
}

pub(super) struct Q6K;

impl Blocks for Q6K {
    const BLOCK_BYTES: usize = 210;
    const FACTORS: Factors = Factors::Signed;
    const ZERO: i32 = 32;
    const SMALL: bool = true;

    #[inline(always)]
    unsafe fn unit<T: Tier>(tier: T, row: *const u8, unit: usize, _is_full: bool) -> T::Bytes {
        // SAFETY: the caller's promise.
        unsafe {
            let block = row.add(unit / 4 * Self::BLOCK_BYTES);
            let (half, upper) = (unit % 4 / 2, unit as u32 % 2);
            let low = tier.load_bytes(block.add(half * 64));
            let low = tier.and(tier.shift_right(low, [upper * 4; 4]), 15);
            let high = block.add(128 + half * 32);
            let bit = upper * 4;
            let high = tier.shift_right(tier.load_two(high, high), [bit, bit, bit + 2, bit + 2]);
            tier.or(low, tier.shift_left(tier.and(high, 3), 4))
        }
    }
}
