//! Products of 32-bit or 16-bit float weights with 32-bit inputs, read directly from the stored rows.
//!
//! Each result has sixteen chains of sums, one for each lane, over pieces of 1,024 columns; the lanes are summed by halves, and
//! the pieces in their order. So a row's result has the same bits in every batch.

#![expect(
    unsafe_code,
    reason = "inner loops go through pointers and check no bounds"
)]

use super::tier::{LANES, Tier, array};
use super::tile::{TILE_ROWS, next_rows};

/// Columns summed in lanes: six input rows and four weight rows of this length fit the L1 cache.
const PIECE_COLUMNS: usize = 1024;

/// Maximum number of input rows computed together.
const INPUT_ROWS: usize = 6;

/// Up to this many input rows, each weight row is read from beginning to end.
const FEW_ROWS: usize = 2;

/// A float format of weights.
pub(super) trait Element {
    const BYTES: usize;

    /// # Safety
    /// Sixteen numbers must be readable at `from`.
    unsafe fn load<T: Tier>(tier: T, from: *const u8) -> T::Floats;

    /// Loads the first `count` lanes and sets the rest to zero.
    ///
    /// # Safety
    /// `count` numbers must be readable at `from`.
    #[inline(always)]
    unsafe fn load_part<T: Tier>(tier: T, from: *const u8, count: usize) -> T::Floats {
        let mut bytes = [0u8; 4 * LANES];
        // SAFETY: the caller guarantees `count` numbers, and the copy has room for sixteen.
        unsafe {
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), count.min(LANES) * Self::BYTES);
            Self::load(tier, bytes.as_ptr())
        }
    }
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Element for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<T: Tier>(tier: T, from: *const u8) -> T::Floats {
        // SAFETY: the caller's promise.
        unsafe { tier.load(from.cast()) }
    }
}

impl Element for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<T: Tier>(tier: T, from: *const u8) -> T::Floats {
        // SAFETY: the caller's promise.
        unsafe { tier.load_f16(from.cast()) }
    }
}

impl Element for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<T: Tier>(tier: T, from: *const u8) -> T::Floats {
        // SAFETY: the caller's promise.
        unsafe { tier.load_bf16(from.cast()) }
    }
}

/// The weights of a tile, and the input rows to multiply them with.
pub(super) struct Rows<'a> {
    /// Start of each weight row; only the first `wanted` results are used.
    pub weights: &'a [*const u8; TILE_ROWS],
    pub wanted: usize,
    pub input: &'a [f32],
    pub columns: usize,
}

/// Adds the products to `sums`, of which each row of the input has 32.
///
/// # Safety
/// Each weight row must hold as many numbers of `E` as there are columns.
#[inline(always)]
pub(super) unsafe fn multiply_rows<T: Tier, E: Element>(tier: T, rows: Rows<'_>, sums: &mut [f32]) {
    let (wanted, input, columns) = (rows.wanted, rows.input, rows.columns);
    let count = input.len() / columns;
    assert!(sums.len() >= count * TILE_ROWS, "sums have room");
    let (input, sums) = (input.as_ptr(), sums.as_mut_ptr());
    if count <= FEW_ROWS.min(T::MOST_ROWS) {
        // Reads the weights once: each row from its beginning to its end.
        for some in (0..wanted).step_by(8) {
            for first in (0..columns).step_by(PIECE_COLUMNS) {
                // SAFETY: rows and columns lie within weights, input and sums.
                unsafe {
                    let block = Block::<E, 8>::new(rows.weights, some, first, columns);
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
                    let block = Block::<E, 4>::new(rows.weights, some, first, columns);
                    let input = input.add(row * columns + first);
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
struct Block<E, const N: usize> {
    weights: [*const u8; N],
    /// Columns of the piece, and of a complete row.
    piece: usize,
    columns: usize,
    element: std::marker::PhantomData<E>,
}

impl<E: Element, const N: usize> Block<E, N> {
    #[inline(always)]
    unsafe fn new(
        rows: &[*const u8; TILE_ROWS],
        some: usize,
        first: usize,
        columns: usize,
    ) -> Self {
        Self {
            // SAFETY: the caller's promise.
            weights: std::array::from_fn(|row| unsafe { rows[some + row].add(first * E::BYTES) }),
            piece: PIECE_COLUMNS.min(columns - first),
            columns,
            element: std::marker::PhantomData,
        }
    }

    #[inline(always)]
    unsafe fn multiply<T: Tier, const M: usize>(&self, tier: T, input: *const f32, sums: *mut f32) {
        let mut lanes = [[tier.splat(0.0); N]; M];
        let full = self.piece / LANES * LANES;
        // SAFETY: the caller built the block so that all accesses stay within its slices.
        unsafe {
            let mut column = 0;
            while column < full {
                let weights = array!(N, tier.splat(0.0), |row| {
                    E::load(tier, self.weights[row].add(column * E::BYTES))
                });
                for row in 0..M {
                    let input = tier.load(input.add(row * self.columns + column));
                    for output in 0..N {
                        lanes[row][output] = tier.fused(weights[output], input, lanes[row][output]);
                    }
                }
                column += LANES;
            }
            if full < self.piece {
                let rest = self.piece - full;
                let weights = array!(N, tier.splat(0.0), |row| {
                    E::load_part(tier, self.weights[row].add(full * E::BYTES), rest)
                });
                for row in 0..M {
                    let input = tier.load_part(input.add(row * self.columns + full), rest);
                    for output in 0..N {
                        lanes[row][output] = tier.fused(weights[output], input, lanes[row][output]);
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
