//! Products of BF16 weights with inputs rounded to BF16, as in `torch`: two columns per lane, which some processors multiply in one
//! instruction.
//!
//! Each result has sixteen chains of sums, one per lane, over pieces of 2,048 columns. The lanes are summed by halves and the
//! pieces in order, for one row as for many, so the result of a row is bit-identical in every batch. The order in which the two
//! products of a lane are added is up to the processor: vendors differ in the last bits, and numbers below 2⁻¹²⁶ may be flushed to
//! zero.

#![expect(
    unsafe_code,
    reason = "inner loops go through pointers and check no bounds"
)]

use super::pool::Pool;
use super::tier::{Job, LANES, Tier, array};
use super::tile::{TILE_ROWS, next_rows};

/// Columns of a vector.
const STEP_COLUMNS: usize = 2 * LANES;

/// Columns summed in lanes: six input rows and four weight rows of this length fit the L1 cache.
const PIECE_COLUMNS: usize = 2048;

/// Maximum number of input rows computed together.
const INPUT_ROWS: usize = 6;

/// Up to this many input rows, each weight row is read from beginning to end.
const FEW_ROWS: usize = 2;

/// Minimum number of values for which rows are shared among threads.
const NUMBERS_WORTH_SHARING: usize = 1 << 14;

const BYTES: usize = 2;

/// Rows of rounded numbers, each padded with zeros to full vectors.
#[derive(Debug, Default)]
pub(super) struct RoundedRows {
    columns: usize,
    stride: usize,
    numbers: Vec<u16>,
}

impl RoundedRows {
    /// Rounds rows of `columns` numbers.
    pub fn fill(&mut self, pool: &Pool, numbers: &[f32], columns: usize) {
        let stride = columns.next_multiple_of(STEP_COLUMNS);
        self.columns = columns;
        self.stride = stride;
        self.numbers.resize(numbers.len() / columns * stride, 0);
        let level = pool.level();
        let rows = (NUMBERS_WORTH_SHARING / stride).max(1);
        pool.run_pieces(&mut self.numbers, rows * stride, |piece, rounded| {
            let first = piece * rows * columns;
            let count = rounded.len() / stride;
            level.run(Round {
                numbers: &numbers[first..first + count * columns],
                rounded,
                columns,
                stride,
            });
        });
    }

    fn count(&self) -> usize {
        self.numbers.len().checked_div(self.stride).unwrap_or(0)
    }
}

struct Round<'a> {
    numbers: &'a [f32],
    rounded: &'a mut [u16],
    columns: usize,
    stride: usize,
}

impl Job for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<T: Tier>(self, _tier: T) {
        let rows = self.rounded.chunks_exact_mut(self.stride);
        for (rounded, row) in rows.zip(self.numbers.chunks_exact(self.columns)) {
            let (rounded, rest) = rounded.split_at_mut(self.columns);
            for (rounded, number) in rounded.iter_mut().zip(row) {
                *rounded = nearest(*number);
            }
            rest.fill(0);
        }
    }
}

/// Rounds to the nearest BF16 number, ties to even, and returns its bits.
#[inline(always)]
fn nearest(number: f32) -> u16 {
    let bits = number.to_bits();
    let kept = if number.is_nan() {
        // Sets a mantissa bit, because truncation alone could turn NaN into infinity.
        bits | 0x0040_0000
    } else {
        bits + 0x7fff + (bits >> 16 & 1)
    };
    (kept >> 16) as u16
}

/// Adds to `sums` (32 per input row) the products with the rows that begin at `rows`; only the first `wanted` rows are needed.
///
/// # Safety
/// Each of `rows` must hold as many BF16 numbers as the input has columns.
#[inline(always)]
pub(super) unsafe fn multiply_rows<T: Tier>(
    tier: T,
    rows: &[*const u8; TILE_ROWS],
    wanted: usize,
    input: &RoundedRows,
    sums: &mut [f32],
) {
    let (count, columns, stride) = (input.count(), input.columns, input.stride);
    assert!(sums.len() >= count * TILE_ROWS, "sums have room");
    let (input, sums) = (input.numbers.as_ptr(), sums.as_mut_ptr());
    if count <= FEW_ROWS.min(T::MOST_ROWS) {
        // Reads the weights once: each row from its beginning to its end.
        for some in (0..wanted).step_by(8) {
            for first in (0..columns).step_by(PIECE_COLUMNS) {
                // SAFETY: rows and columns lie within weights, input and sums.
                unsafe {
                    let block = Block::<8>::new(rows, some, first, (columns, stride));
                    let (input, sums) = (input.add(first), sums.add(some));
                    match count {
                        1 => block.multiply::<T, 1>(tier, input, sums),
                        _ if T::MOST_ROWS > 1 => block.multiply::<T, FEW_ROWS>(tier, input, sums),
                        _ => unreachable!("a tier takes no more rows than it says"),
                    }
                }
            }
        }
        return;
    }
    for first in (0..columns).step_by(PIECE_COLUMNS) {
        let mut row = 0;
        while row < count {
            let taken = next_rows(count - row, INPUT_ROWS.min(T::MOST_ROWS));
            for some in (0..wanted).step_by(4) {
                // SAFETY: rows and columns lie within weights, input and sums.
                unsafe {
                    let block = Block::<4>::new(rows, some, first, (columns, stride));
                    let input = input.add(row * stride + first);
                    let sums = sums.add(row * TILE_ROWS + some);
                    match taken {
                        1 => block.multiply::<T, 1>(tier, input, sums),
                        2 if T::MOST_ROWS > 1 => block.multiply::<T, 2>(tier, input, sums),
                        3 if T::MOST_ROWS > 2 => block.multiply::<T, 3>(tier, input, sums),
                        4 if T::MOST_ROWS > 2 => block.multiply::<T, 4>(tier, input, sums),
                        5 if T::MOST_ROWS > 2 => block.multiply::<T, 5>(tier, input, sums),
                        _ if T::MOST_ROWS > 2 => block.multiply::<T, INPUT_ROWS>(tier, input, sums),
                        _ => unreachable!("a tier takes no more rows than it says"),
                    }
                }
            }
            row += taken;
        }
    }
}

/// A piece of `N` rows of weights.
struct Block<const N: usize> {
    weights: [*const u8; N],
    /// Columns of the piece.
    piece: usize,
    /// Distance between consecutive input rows, in numbers.
    stride: usize,
}

impl<const N: usize> Block<N> {
    /// # Safety
    /// Each of the `N` rows from `some` on must hold `columns` numbers, more than `first`.
    #[inline(always)]
    unsafe fn new(
        rows: &[*const u8; TILE_ROWS],
        some: usize,
        first: usize,
        (columns, stride): (usize, usize),
    ) -> Self {
        Self {
            // SAFETY: the caller's promise.
            weights: std::array::from_fn(|row| unsafe { rows[some + row].add(first * BYTES) }),
            piece: PIECE_COLUMNS.min(columns - first),
            stride,
        }
    }

    /// # Safety
    /// The piece's columns, rounded up to full vectors, must lie within `M` input rows, and `sums` must have room for `M`
    /// rows.
    #[inline(always)]
    unsafe fn multiply<T: Tier, const M: usize>(&self, tier: T, input: *const u16, sums: *mut f32) {
        let mut lanes = [[tier.splat(0.0); N]; M];
        let full = self.piece / STEP_COLUMNS * STEP_COLUMNS;
        // SAFETY: the caller built the block so that all accesses stay within its slices.
        unsafe {
            let mut column = 0;
            while column < full {
                let from = |row: usize| self.weights[row].wrapping_add(column * BYTES);
                let weights = array!(N, tier.load_bytes(from(0)), |row| tier
                    .load_bytes(from(row)));
                for row in 0..M {
                    let input = tier.load_bytes(input.add(row * self.stride + column).cast());
                    for output in 0..N {
                        lanes[row][output] =
                            tier.dot_bf16(lanes[row][output], weights[output], input);
                    }
                }
                column += STEP_COLUMNS;
            }
            if full < self.piece {
                let mut rest = [[0u8; STEP_COLUMNS * BYTES]; N];
                for row in 0..N {
                    std::ptr::copy_nonoverlapping(
                        self.weights[row].add(full * BYTES),
                        rest[row].as_mut_ptr(),
                        (self.piece - full) * BYTES,
                    );
                }
                let weights = array!(N, tier.load_bytes(rest[0].as_ptr()), |row| tier
                    .load_bytes(rest[row].as_ptr()));
                for row in 0..M {
                    let input = tier.load_bytes(input.add(row * self.stride + full).cast());
                    for output in 0..N {
                        lanes[row][output] =
                            tier.dot_bf16(lanes[row][output], weights[output], input);
                    }
                }
            }
            for row in 0..M {
                for four in 0..N / 4 {
                    let lanes = array!(4, tier.splat(0.0), |output| lanes[row][four * 4 + output]);
                    let four_sums = tier.sum_four(lanes);
                    for output in 0..4 {
                        *sums.add(row * TILE_ROWS + four * 4 + output) += four_sums[output];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::tests::{pool, random};
    use super::*;
    use half::bf16;

    #[test]
    fn numbers_round_to_the_nearest_bf16_and_rows_are_padded_to_full_vectors() {
        let special = [
            0.0,
            -0.0,
            f32::MAX,
            f32::MIN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::from_bits(0x7f80_0001),
            f32::from_bits(0xffff_ffff),
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            f32::from_bits(0x3f80_8000),
            f32::from_bits(0x3f81_8000),
            f32::from_bits(0x3f80_8001),
        ];
        for columns in [1, 31, 32, 33, 70] {
            let mut numbers = random(columns as u64, 700 * columns);
            for (number, special) in numbers.iter_mut().zip(special) {
                *number = special;
            }
            for level in Level::available() {
                let mut rounded = RoundedRows::default();
                // Earlier contents must not leak into the padding at the ends of rows.
                rounded.fill(&pool(1, level), &random(1, 700 * 96), 96);
                rounded.fill(&pool(2, level), &numbers, columns);
                assert_eq!(rounded.count(), 700);
                let rows = rounded.numbers.chunks_exact(rounded.stride);
                for (ours, row) in rows.zip(numbers.chunks_exact(columns)) {
                    for (ours, number) in ours.iter().zip(row) {
                        assert_eq!(*ours, bf16::from_f32(*number).to_bits(), "{number}");
                    }
                    assert!(ours[columns..].iter().all(|rest| *rest == 0));
                }
            }
        }
    }
}
