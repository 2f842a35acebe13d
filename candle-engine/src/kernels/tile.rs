//! Products of quantised weights with quantised inputs: unpacks 32 weight rows, piece by piece, into scratch memory that fits the
//! L1 cache, and multiplies them with all input rows.
//!
//! Each result is one chain of sums over groups of 32 numbers in order; sums within a group are integers. The result of a row is
//! therefore bit-identical in every batch.

#![expect(
    unsafe_code,
    reason = "inner loops go through pointers and check no bounds"
)]

use std::marker::PhantomData;

use super::input::{GROUP, Group, Input};
use super::tier::{Job, LANES, Tier, array};
use super::unpack::Blocks;

/// Weight rows computed together.
pub(super) const TILE_ROWS: usize = 2 * LANES;
/// Size of a cache line.
pub(super) const LINE_BYTES: usize = 64;
/// Columns unpacked together: 16 KiB of bytes.
pub(super) const PIECE_COLUMNS: usize = 512;

/// A piece of 32 rows, transposed: each vector holds four bytes of 16 rows.
#[repr(C, align(64))]
pub(super) struct Tile {
    pub bytes: [[[u8; 64]; 2]; PIECE_COLUMNS / 4],
    /// One factor per 32 numbers, or per 16 for encodings that have those.
    pub factors: [[[f32; LANES]; 2]; PIECE_COLUMNS / 16],
    /// Minimums subtracted per 32 numbers, stored negated.
    pub minimums: [[[f32; LANES]; 2]; PIECE_COLUMNS / 32],
}

/// Prefetches the next tile's bytes in even steps while this one is computed. Tile rows are read in short pieces, which hardware
/// prefetchers do not predict; the next tile's bytes are requested in address order, which memory serves best.
pub(super) struct Prefetch {
    next: *const u8,
    /// Bytes prefetched so far (`at`), and bytes per step.
    at: usize,
    step: usize,
}

impl Prefetch {
    /// Prefetches `bytes` bytes from `next` on, over `times` steps.
    #[inline(always)]
    pub fn new(next: *const u8, bytes: usize, times: usize) -> Self {
        Self {
            next,
            at: 0,
            step: bytes.div_ceil(times.max(1)),
        }
    }

    #[inline(always)]
    pub fn ask<T: Tier>(&mut self, tier: T) {
        let end = self.at + self.step;
        let mut line = self.at.next_multiple_of(LINE_BYTES);
        while line < end {
            tier.prefetch(self.next.wrapping_add(line));
            line += LINE_BYTES;
        }
        self.at = end;
    }
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

/// Adds to `sums` (32 per input row) the products with the rows that begin at `rows`. Prefetches as many bytes from `next` on as
/// the rows have.
///
/// # Safety
/// Each of `rows` must hold `input.columns` numbers in blocks of type `B`.
#[inline(always)]
pub(super) unsafe fn multiply_rows<T: Tier, B: Blocks>(
    tier: T,
    tile: &mut Tile,
    rows: &[*const u8; TILE_ROWS],
    next: *const u8,
    input: &Input,
    sums: &mut [f32],
) {
    let columns = input.columns;
    let count = input.bytes.len() / columns;
    assert!(sums.len() >= count * TILE_ROWS, "sums have room");
    // One step per unit of 64 columns of each half, and one per multiplied group of 32.
    let times = columns.div_ceil(64) * 2
        + columns / GROUP * count.div_ceil(B::INPUT_ROWS.min(T::MOST_ROWS));
    let mut ahead = Prefetch::new(next, columns / 64 * TILE_ROWS * B::UNIT_BYTES, times);
    let mut first = 0;
    while first < columns {
        let piece = PIECE_COLUMNS.min(columns - first);
        // SAFETY: the piece lies within the rows.
        unsafe { unpack::<T, B>(tier, tile, rows, &mut ahead, first, piece) };
        let groups = piece / GROUP;
        let mut row = 0;
        while row < count {
            let rows = next_rows(count - row, B::INPUT_ROWS.min(T::MOST_ROWS));
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
                    1 => tier.apart(Rows::<B, 1>::new(block, &mut ahead)),
                    2 if T::MOST_ROWS > 1 => tier.apart(Rows::<B, 2>::new(block, &mut ahead)),
                    3 if T::MOST_ROWS > 2 => tier.apart(Rows::<B, 3>::new(block, &mut ahead)),
                    4 if T::MOST_ROWS > 2 => tier.apart(Rows::<B, 4>::new(block, &mut ahead)),
                    5 if T::MOST_ROWS > 2 => tier.apart(Rows::<B, 5>::new(block, &mut ahead)),
                    6 if T::MOST_ROWS > 2 && B::INPUT_ROWS > 5 => {
                        tier.apart(Rows::<B, 6>::new(block, &mut ahead))
                    }
                    _ => unreachable!("a tier takes no more rows than it says"),
                }
            }
            row += rows;
        }
        first += piece;
    }
}

/// Returns how many of the `left` rows to take next, at most `most`. The last two takes share the rest evenly, which keeps both
/// from being small.
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
    ahead: &mut Prefetch,
    first: usize,
    columns: usize,
) {
    for half in 0..2 {
        let (halves, _) = rows.as_chunks::<LANES>();
        let rows = &halves[half];
        for unit in 0..columns.div_ceil(64) {
            let is_full = columns - unit * 64 >= 64;
            // SAFETY: the caller's promise.
            unsafe {
                ahead.ask(tier);
                let zero = B::unit(tier, rows[0], first / 64 + unit, is_full);
                let four = array!(LANES, zero, |row| B::unit(
                    tier,
                    rows[row],
                    first / 64 + unit,
                    is_full
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

/// Some input rows and a piece of weights.
struct Block<'a> {
    tile: &'a Tile,
    groups: usize,
    bytes: *const i8,
    columns: usize,
    sides: *const Group,
    sums: *mut f32,
}

/// The product of a block with `M` input rows.
struct Rows<'a, B, const M: usize> {
    block: Block<'a>,
    ahead: &'a mut Prefetch,
    blocks: PhantomData<B>,
}

impl<'a, B, const M: usize> Rows<'a, B, M> {
    /// # Safety
    /// For `M` rows, the block's groups must lie within the input, and its sums must have room.
    unsafe fn new(block: Block<'a>, ahead: &'a mut Prefetch) -> Self {
        Self {
            block,
            ahead,
            blocks: PhantomData,
        }
    }
}

impl<B: Blocks, const M: usize> Job for Rows<'_, B, M> {
    type Output = ();

    #[inline(always)]
    fn run<T: Tier>(self, tier: T) {
        // SAFETY: guaranteed by the caller of `new`.
        unsafe { self.block.multiply::<T, B, M>(tier, self.ahead) }
    }
}

impl Block<'_> {
    #[inline(always)]
    unsafe fn multiply<T: Tier, B: Blocks, const M: usize>(self, tier: T, ahead: &mut Prefetch) {
        let side_stride = self.columns / GROUP;
        // SAFETY: the caller built the block so that all accesses stay within its slices.
        unsafe {
            let mut sums = [[tier.splat(0.0); M]; 2];
            for half in 0..2 {
                for row in 0..M {
                    sums[half][row] = tier.load(self.sums.add(row * TILE_ROWS + half * LANES));
                }
            }
            for group in 0..self.groups {
                ahead.ask(tier);
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
