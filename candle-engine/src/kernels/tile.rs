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
/// So few rows of input are multiplied with each row of weights as it lies, which costs less than to transpose it.
const FEW_ROWS: usize = 2;
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
        if count <= FEW_ROWS.min(T::MOST_ROWS) {
            // SAFETY: the piece lies within the rows and the input, and sums have room.
            unsafe {
                let few = Few {
                    tile,
                    rows,
                    row_bytes,
                    first,
                    columns: piece,
                    input,
                };
                match count {
                    1 => few.multiply::<T, B, 1>(tier, sums.as_mut_ptr()),
                    _ if T::MOST_ROWS > 1 => {
                        few.multiply::<T, B, FEW_ROWS>(tier, sums.as_mut_ptr())
                    }
                    _ => unreachable!("a tier takes no more rows than it says"),
                }
            }
            first += piece;
            continue;
        }
        // SAFETY: the piece lies within the rows.
        unsafe { unpack::<T, B>(tier, tile, rows, row_bytes, first, piece) };
        let groups = piece / GROUP;
        let mut row = 0;
        while row < count {
            let rows = next_rows(count - row, INPUT_ROWS.min(T::MOST_ROWS));
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
                    2 if T::MOST_ROWS > 1 => block.multiply::<T, B, 2>(tier),
                    3 if T::MOST_ROWS > 2 => block.multiply::<T, B, 3>(tier),
                    4 if T::MOST_ROWS > 2 => block.multiply::<T, B, 4>(tier),
                    5 if T::MOST_ROWS > 2 => block.multiply::<T, B, 5>(tier),
                    _ if T::MOST_ROWS > 2 => block.multiply::<T, B, INPUT_ROWS>(tier),
                    _ => unreachable!("a tier takes no more rows than it says"),
                }
            }
            row += rows;
        }
        first += piece;
    }
}

/// Rows that are taken next of so many, at most `most`: the last two takings share what is left, so that neither is small.
#[inline(always)]
pub(super) fn next_rows(left: usize, most: usize) -> usize {
    if left > most && left < 2 * most {
        left.div_ceil(2)
    } else {
        left.min(most)
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
        let (halves, _) = rows.as_chunks::<LANES>();
        let rows = &halves[half];
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

/// One or two rows of input, and a piece of 32 rows of weights.
struct Few<'a> {
    tile: &'a mut Tile,
    rows: &'a [*const u8; TILE_ROWS],
    row_bytes: usize,
    first: usize,
    columns: usize,
    input: &'a Input,
}

impl Few<'_> {
    /// The same sums as [`Block::multiply`], whole numbers summed in another order.
    #[inline(always)]
    unsafe fn multiply<T: Tier, B: Blocks, const M: usize>(self, tier: T, sums: *mut f32) {
        let Self {
            tile,
            rows,
            row_bytes,
            first,
            columns,
            input,
        } = self;
        let side_stride = input.columns / GROUP;
        let per_group = GROUP / B::PER_FACTOR;
        for half in 0..2 {
            let (halves, _) = rows.as_chunks::<LANES>();
            let rows = &halves[half];
            // SAFETY: the caller's promise.
            unsafe {
                B::factors(tier, rows, first, columns, half, tile);
                let mut own = [tier.splat(0.0); M];
                for row in 0..M {
                    own[row] = tier.load(sums.add(row * TILE_ROWS + half * LANES));
                }
                for unit in 0..columns.div_ceil(64) {
                    let ahead = (first / 64 + unit) * B::UNIT_BYTES + TILE_ROWS * row_bytes;
                    let groups = if columns - unit * 64 >= 64 { 2 } else { 1 };
                    let inputs =
                        array!(M, B::unit(tier, rows[0], first / 64 + unit, false), |row| {
                            let from = input
                                .bytes
                                .as_ptr()
                                .add(row * input.columns + first + unit * 64);
                            let from = from.cast::<u8>();
                            tier.load_two(from, if groups == 2 { from.add(32) } else { from })
                        });
                    let mut fours = [[tier.splat_int(0); 4]; M];
                    for four in 0..4 {
                        let mut products = [[tier.splat_int(0); 4]; M];
                        for place in 0..4 {
                            let from = rows[4 * four + place];
                            tier.prefetch(from.wrapping_add(ahead));
                            let weights = B::unit(tier, from, first / 64 + unit, groups == 2);
                            for row in 0..M {
                                let zero = tier.splat_int(0);
                                products[row][place] = if B::SMALL {
                                    tier.dot_small(zero, weights, inputs[row])
                                } else {
                                    tier.dot(zero, weights, inputs[row])
                                };
                            }
                        }
                        for row in 0..M {
                            fours[row][four] = tier.sum_quarters(products[row]);
                        }
                    }
                    for row in 0..M {
                        let quarters = tier.by_quarter(fours[row]);
                        for group in 0..groups {
                            let place = unit * 2 + group;
                            let side = &*input
                                .groups
                                .as_ptr()
                                .add(row * side_stride + first / GROUP + place);
                            let pair = [quarters[2 * group], quarters[2 * group + 1]];
                            for part in 0..per_group {
                                let (products, sum) = if per_group == 2 {
                                    (pair[part], side.sums[part])
                                } else {
                                    (tier.add_ints(pair[0], pair[1]), side.sums[0] + side.sums[1])
                                };
                                let products = if B::ZERO == 0 {
                                    products
                                } else {
                                    tier.add_ints(products, tier.splat_int(-B::ZERO * sum))
                                };
                                let factor = tile.factors.get_unchecked(place * per_group + part);
                                let factor = tier.load(factor[half].as_ptr());
                                let factor = tier.multiply(factor, tier.splat(side.factor));
                                own[row] = tier.fused(tier.to_floats(products), factor, own[row]);
                            }
                            if B::MINIMUMS {
                                let minimum = tile.minimums.get_unchecked(place);
                                let minimum = tier.load(minimum[half].as_ptr());
                                own[row] =
                                    tier.fused(minimum, tier.splat(side.scaled_sum), own[row]);
                            }
                        }
                    }
                }
                for row in 0..M {
                    tier.store(sums.add(row * TILE_ROWS + half * LANES), own[row]);
                }
            }
        }
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
