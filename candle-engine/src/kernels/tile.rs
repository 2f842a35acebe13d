//! Owns the product of quantised weights with inputs as bytes: 32 rows of weights at once, unpacked by pieces into a scratch
//! that stays in the nearest cache, for all rows of the input. Never knows where matrices come from.
//!
//! Each result is one chain of sums over groups of 32 numbers, in their order, whatever else is computed beside it; what is
//! summed within a group is whole numbers. So a row's result has the same bits in every batch.

#![expect(
    unsafe_code,
    reason = "inner loops go through pointers and check no bounds"
)]

use super::input::{GROUP, Group, Input};
use super::tier::{LANES, Tier, array};
use super::unpack::Blocks;

/// Rows of weights that are computed at once.
pub(super) const TILE_ROWS: usize = 2 * LANES;
/// Columns that are unpacked at once: 16 KiB of bytes.
pub(super) const PIECE_COLUMNS: usize = 512;
/// Rows of input that are computed at once, at most.
const INPUT_ROWS: usize = 6;

/// A piece of 32 rows, transposed: each vector has four bytes of 16 rows.
#[repr(C, align(64))]
pub(super) struct Tile {
    pub bytes: [[[u8; 64]; 2]; PIECE_COLUMNS / 4],
    /// For each 32 numbers, or each 16 where an encoding has factors of those.
    pub factors: [[[f32; LANES]; 2]; PIECE_COLUMNS / 16],
    /// What is subtracted for each 32 numbers, negative.
    pub minimums: [[[f32; LANES]; 2]; PIECE_COLUMNS / 32],
}

impl Tile {
    pub fn new() -> Box<Self> {
        Box::new(Self {
            bytes: [[[0; 64]; 2]; PIECE_COLUMNS / 4],
            factors: [[[0.0; LANES]; 2]; PIECE_COLUMNS / 16],
            minimums: [[[0.0; LANES]; 2]; PIECE_COLUMNS / 32],
        })
    }
}

/// Adds to `sums` (32 for each row of the input) the products with the rows that begin at `rows`.
///
/// # Safety
/// At each of `rows` lie `input.columns` numbers in the blocks `B`.
#[inline(always)]
pub(super) unsafe fn multiply_rows<T: Tier, B: Blocks>(
    tier: T,
    tile: &mut Tile,
    rows: &[*const u8; TILE_ROWS],
    row_bytes: usize,
    input: &Input,
    sums: &mut [f32],
) {
    let columns = input.columns;
    let count = input.bytes.len() / columns;
    assert!(sums.len() >= count * TILE_ROWS, "sums have room");
    let mut first = 0;
    while first < columns {
        let piece = PIECE_COLUMNS.min(columns - first);
        // SAFETY: the piece lies within the rows.
        unsafe { unpack::<T, B>(tier, tile, rows, row_bytes, first, piece) };
        let groups = piece / GROUP;
        let mut row = 0;
        while row < count {
            let rows = next_rows(count - row);
            // SAFETY: rows and piece lie within the input, and sums have room.
            unsafe {
                let block = Block {
                    tile,
                    groups,
                    bytes: input.bytes.as_ptr().add(row * columns + first),
                    columns,
                    sides: input.groups.as_ptr().add((row * columns + first) / GROUP),
                    sums: sums.as_mut_ptr().add(row * TILE_ROWS),
                };
                match rows {
                    1 => block.multiply::<T, B, 1>(tier),
                    2 => block.multiply::<T, B, 2>(tier),
                    3 => block.multiply::<T, B, 3>(tier),
                    4 => block.multiply::<T, B, 4>(tier),
                    5 => block.multiply::<T, B, 5>(tier),
                    _ => block.multiply::<T, B, INPUT_ROWS>(tier),
                }
            }
            row += rows;
        }
        first += piece;
    }
}

/// Rows that are taken next of so many, so that the last are not few.
#[inline(always)]
pub(super) fn next_rows(left: usize) -> usize {
    match left {
        7 | 8 => 4,
        9 => 5,
        _ => left.min(INPUT_ROWS),
    }
}

#[inline(always)]
unsafe fn unpack<T: Tier, B: Blocks>(
    tier: T,
    tile: &mut Tile,
    rows: &[*const u8; TILE_ROWS],
    row_bytes: usize,
    first: usize,
    columns: usize,
) {
    for half in 0..2 {
        let rows: &[*const u8; LANES] = rows[half * LANES..][..LANES]
            .try_into()
            .unwrap_or(&[std::ptr::null(); LANES]);
        for unit in 0..columns.div_ceil(64) {
            let whole = columns - unit * 64 >= 64;
            // SAFETY: the caller's promise.
            unsafe {
                for row in rows {
                    // Rows are read in short pieces, which no processor foresees: those of the next tile are asked for.
                    let ahead = (first / 64 + unit) * B::UNIT_BYTES + TILE_ROWS * row_bytes;
                    tier.prefetch(row.wrapping_add(ahead));
                }
                let zero = B::unit(tier, rows[0], first / 64 + unit, whole);
                let four = array!(LANES, zero, |row| B::unit(
                    tier,
                    rows[row],
                    first / 64 + unit,
                    whole
                ));
                let four = tier.transpose(four);
                for place in 0..LANES {
                    tier.store_all(
                        tile.bytes[unit * LANES + place][half].as_mut_ptr(),
                        four[place],
                    );
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { B::factors(tier, rows, first, columns, half, tile) };
    }
}

/// Some rows of the input and a piece of weights.
struct Block<'a> {
    tile: &'a Tile,
    groups: usize,
    bytes: *const i8,
    columns: usize,
    sides: *const Group,
    sums: *mut f32,
}

impl Block<'_> {
    #[inline(always)]
    unsafe fn multiply<T: Tier, B: Blocks, const M: usize>(self, tier: T) {
        let side_stride = self.columns / GROUP;
        // SAFETY: the caller has made the block so that all this lies within its slices.
        unsafe {
            let mut sums = [[tier.splat(0.0); M]; 2];
            for half in 0..2 {
                for row in 0..M {
                    sums[half][row] = tier.load(self.sums.add(row * TILE_ROWS + half * LANES));
                }
            }
            for group in 0..self.groups {
                let side = |row: usize| &*self.sides.add(row * side_stride + group);
                let bytes = self.bytes.add(group * GROUP);
                let per_group = GROUP / B::PER_FACTOR;
                for part in 0..per_group {
                    let steps = B::PER_FACTOR / 4;
                    let mut products = [[tier.splat_int(0); M]; 2];
                    if B::ZERO != 0 {
                        for row in 0..M {
                            let sums = side(row).sums;
                            let sum = if per_group == 2 {
                                sums[part]
                            } else {
                                sums[0] + sums[1]
                            };
                            let zero = tier.splat_int(-B::ZERO * sum);
                            products[0][row] = zero;
                            products[1][row] = zero;
                        }
                    }
                    for step in 0..steps {
                        let four = part * steps + step;
                        let weights = self.tile.bytes.get_unchecked(group * (GROUP / 4) + four);
                        let weights = [
                            tier.load_bytes(weights[0].as_ptr()),
                            tier.load_bytes(weights[1].as_ptr()),
                        ];
                        for row in 0..M {
                            let input = tier.splat_four(bytes.add(row * self.columns + four * 4));
                            for half in 0..2 {
                                products[half][row] = if B::SMALL {
                                    tier.dot_small(products[half][row], weights[half], input)
                                } else {
                                    tier.dot(products[half][row], weights[half], input)
                                };
                            }
                        }
                    }
                    let factors = self.tile.factors.get_unchecked(group * per_group + part);
                    let factors = [
                        tier.load(factors[0].as_ptr()),
                        tier.load(factors[1].as_ptr()),
                    ];
                    for row in 0..M {
                        let factor = tier.splat(side(row).factor);
                        for half in 0..2 {
                            sums[half][row] = tier.fused(
                                tier.to_floats(products[half][row]),
                                tier.multiply(factors[half], factor),
                                sums[half][row],
                            );
                        }
                    }
                }
                if B::MINIMUMS {
                    let minimums = self.tile.minimums.get_unchecked(group);
                    let minimums = [
                        tier.load(minimums[0].as_ptr()),
                        tier.load(minimums[1].as_ptr()),
                    ];
                    for row in 0..M {
                        let sum = tier.splat(side(row).scaled_sum);
                        for half in 0..2 {
                            sums[half][row] = tier.fused(minimums[half], sum, sums[half][row]);
                        }
                    }
                }
            }
            for half in 0..2 {
                for row in 0..M {
                    tier.store(
                        self.sums.add(row * TILE_ROWS + half * LANES),
                        sums[half][row],
                    );
                }
            }
        }
    }
}
