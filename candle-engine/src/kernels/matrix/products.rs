//! The products of all input rows with up to 32 rows of a matrix: chooses the kernel and places the results.

use super::{Matrix, Scratch};
use crate::kernels::dense;
use crate::kernels::few_rows::{self, FEW_ROWS};
use crate::kernels::input::Input;
use crate::kernels::pool::Pieces;
use crate::kernels::rounded_rows::{self, RoundedRows};
use crate::kernels::tier::{Job, Tier};
use crate::kernels::tile::{self, LINE_BYTES, TILE_ROWS, Tile};
use crate::kernels::unpack::{self, Blocks};
use crate::stored_tensor::Encoding;

/// A matrix in a section of products.
pub(super) struct Product<'a> {
    pub matrix: &'a Matrix,
    pub output: Pieces<'a, f32>,
    pub first_tile: usize,
}

impl Product<'_> {
    /// Returns the starts of up to 32 rows from `first` on, and their number. If there are fewer, the last row fills the remaining
    /// entries.
    fn rows(&self, first: usize) -> ([*const u8; TILE_ROWS], usize) {
        let (row_bytes, weights) = (self.matrix.row_bytes(), self.matrix.bytes());
        let wanted = TILE_ROWS.min(self.matrix.rows - first);
        let rows = std::array::from_fn(|row| {
            weights[(first + row.min(wanted - 1)) * row_bytes..][..row_bytes].as_ptr()
        });
        (rows, wanted)
    }

    /// Writes the first `wanted` of each 32 sums, plus the bias, to the columns from `first` on.
    fn write(&self, first: usize, wanted: usize, sums: &[f32]) {
        for (row, sums) in sums.chunks_exact(TILE_ROWS).enumerate() {
            #[expect(unsafe_code, reason = "tasks write different columns of the same rows")]
            // SAFETY: each task has different columns, and takes one piece at a time.
            let output = unsafe { self.output.piece(row * self.matrix.rows + first, wanted) };
            output.copy_from_slice(&sums[..wanted]);
            if let Some(bias) = &self.matrix.bias {
                for (output, bias) in output.iter_mut().zip(&bias[first..]) {
                    *output += bias;
                }
            }
        }
    }
}

/// The products of all rows of a BF16-rounded input with up to 32 rows of a BF16 matrix.
pub(super) struct RoundedProduct<'a> {
    pub product: &'a Product<'a>,
    pub first: usize,
    /// Rows of the input.
    pub count: usize,
    pub input: &'a RoundedRows,
    pub sums: &'a mut Vec<f32>,
}

impl Job for RoundedProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<T: Tier>(self, tier: T) {
        let Self {
            product,
            first,
            count,
            input,
            sums,
        } = self;
        let (rows, wanted) = product.rows(first);
        sums.clear();
        sums.resize(count * TILE_ROWS, 0.0);
        #[expect(unsafe_code, reason = "kernels read weights through pointers")]
        // SAFETY: each row was cut from the weights with all its columns, of which the input has as many.
        unsafe {
            rounded_rows::multiply_rows(tier, &rows, wanted, input, sums);
        }
        product.write(first, wanted, sums);
    }
}

/// The products of all input rows with up to 32 rows of a matrix.
pub(super) struct TileProduct<'a> {
    pub product: &'a Product<'a>,
    pub first: usize,
    /// The tile's weights have not been prefetched yet.
    pub is_first: bool,
    /// The next tile belongs to another task.
    pub is_last: bool,
    pub input: &'a [f32],
    pub bytes: &'a Input,
    pub scratch: &'a mut Scratch,
}

impl Job for TileProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<T: Tier>(self, tier: T) {
        let Self {
            product,
            first,
            is_first,
            is_last,
            input,
            bytes,
            scratch,
        } = self;
        let matrix = product.matrix;
        let (row_bytes, weights, columns) = (matrix.row_bytes(), matrix.bytes(), matrix.columns);
        let (rows, wanted) = product.rows(first);
        let count = input.len() / columns;
        let Scratch { tile, sums } = scratch;
        sums.clear();
        sums.resize(count * TILE_ROWS, 0.0);
        let own = weights.as_ptr().wrapping_add(first * row_bytes);
        let floats = dense::Rows {
            weights: &rows,
            wanted,
            input,
            columns,
        };
        let quantised = Quantised {
            rows: &rows,
            own,
            tile_bytes: TILE_ROWS * row_bytes,
            is_first,
            is_last,
            input: bytes,
        };
        #[expect(unsafe_code, reason = "kernels read weights through pointers")]
        // SAFETY: each row was cut from the weights with all its columns.
        unsafe {
            match matrix.encoding() {
                Encoding::F32 => dense::multiply_rows::<T, dense::F32>(tier, floats, sums),
                Encoding::F16 => dense::multiply_rows::<T, dense::F16>(tier, floats, sums),
                Encoding::Bf16 => dense::multiply_rows::<T, dense::Bf16>(tier, floats, sums),
                Encoding::Q8_0 => quantised.multiply::<T, unpack::Q8_0>(tier, tile, sums),
                Encoding::Q4_0 => quantised.multiply::<T, unpack::Q4_0>(tier, tile, sums),
                Encoding::Q4K => quantised.multiply::<T, unpack::Q4K>(tier, tile, sums),
                Encoding::Q5K => quantised.multiply::<T, unpack::Q5K>(tier, tile, sums),
                Encoding::Q6K => quantised.multiply::<T, unpack::Q6K>(tier, tile, sums),
            }
        }
        product.write(first, wanted, sums);
    }
}

/// The quantised weights of a tile, and their addresses.
struct Quantised<'a> {
    rows: &'a [*const u8; TILE_ROWS],
    own: *const u8,
    tile_bytes: usize,
    is_first: bool,
    is_last: bool,
    input: &'a Input,
}

impl Quantised<'_> {
    /// # Safety
    /// Each of the rows must hold all columns in blocks of type `B`.
    #[expect(unsafe_code, reason = "kernels read weights through pointers")]
    #[inline(always)]
    unsafe fn multiply<T: Tier, B: Blocks>(self, tier: T, tile: &mut Tile, sums: &mut [f32]) {
        if self.is_first {
            for line in (0..self.tile_bytes).step_by(LINE_BYTES) {
                tier.prefetch(self.own.wrapping_add(line));
            }
        }
        // After the last tile, prefetches its own bytes again: they are cached already, which costs nothing.
        let ahead = if self.is_last { 0 } else { self.tile_bytes };
        let next = self.own.wrapping_add(ahead);
        // SAFETY: the caller's promise.
        unsafe {
            if sums.len() / TILE_ROWS <= FEW_ROWS.min(T::MOST_ROWS) {
                few_rows::multiply_rows::<T, B>(tier, tile, next, self.rows, self.input, sums);
            } else {
                tile::multiply_rows::<T, B>(tier, tile, self.rows, next, self.input, sums);
            }
        }
    }
}
