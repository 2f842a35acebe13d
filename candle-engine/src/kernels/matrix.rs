//! Matrices of weights as they lie in their files, and their products with rows of inputs. No copy of weights is kept:
//! pieces are unpacked into scratch while they are used.
//!
//! A row's result has the same bits whatever stands beside it in a batch, and however many threads compute.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use super::blocks;
use super::dense;
use super::few::{self, FEW_ROWS};
use super::input::{GROUP, Input};
use super::pool::{Pieces, Pool};
use super::shares::Shares;
use super::tier::{Job, Tier};
use super::tile::{self, LINE_BYTES, TILE_ROWS, Tile};
use super::unpack::{self, Blocks};
use crate::stored::{Encoding, Stored};

/// Weights that one task reads at least, times rows of input: less costs more in handing out than in computing.
const TASK_BYTES: usize = 64 << 10;

thread_local! {
    /// What a task needs: unpacked weights, and sums.
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
    /// The input of the product that this thread has asked for, as bytes.
    static INPUT: Cell<Option<Input>> = const { Cell::new(None) };
}

struct Scratch {
    tile: Box<Tile>,
    sums: Vec<f32>,
}

/// A matrix of `rows` outputs for `columns` inputs, or some rows of one. A clone shares the weights.
#[derive(Debug, Clone)]
pub(crate) struct Matrix {
    stored: Stored,
    first_row: usize,
    rows: usize,
    columns: usize,
    bias: Option<Arc<[f32]>>,
}

impl Matrix {
    /// Takes a tensor of two dimensions, or of more, whose leading ones then count as rows.
    pub(crate) fn new(stored: Stored) -> Result<Self, String> {
        let Some((&columns, leading)) = stored
            .shape
            .split_last()
            .filter(|(_, leading)| !leading.is_empty())
        else {
            return Err(format!("a tensor of shape {:?} is no matrix", stored.shape));
        };
        let block = stored.encoding.block_numbers();
        if columns == 0 || !columns.is_multiple_of(block) {
            return Err(format!(
                "rows of {columns} numbers are not whole blocks of {block}, which {:?} needs",
                stored.encoding
            ));
        }
        Ok(Self {
            first_row: 0,
            rows: leading.iter().product(),
            columns,
            bias: None,
            stored,
        })
    }

    /// Some of the rows, such as the keys of a fused projection or one expert.
    ///
    /// Panics where they are not within the matrix.
    pub(crate) fn rows_of(&self, rows: Range<usize>) -> Self {
        assert!(
            rows.start <= rows.end && rows.end <= self.rows,
            "rows {rows:?} lie within a matrix of {}",
            self.rows
        );
        Self {
            stored: self.stored.clone(),
            first_row: self.first_row + rows.start,
            rows: rows.len(),
            columns: self.columns,
            bias: self.bias.as_ref().map(|bias| bias[rows].into()),
        }
    }

    /// Adds a bias to each product.
    pub(crate) fn with_bias(self, bias: Vec<f32>) -> Result<Self, String> {
        if bias.len() != self.rows {
            return Err(format!(
                "a bias of {} numbers for {} outputs",
                bias.len(),
                self.rows
            ));
        }
        Ok(Self {
            bias: Some(bias.into()),
            ..self
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.stored.encoding
    }

    fn row_bytes(&self) -> usize {
        self.columns / self.encoding().block_numbers() * self.encoding().block_bytes()
    }

    /// The bytes of the rows.
    fn bytes(&self) -> &[u8] {
        let row_bytes = self.row_bytes();
        &self.stored.bytes()[self.first_row * row_bytes..][..self.rows * row_bytes]
    }

    fn is_quantised(&self) -> bool {
        !matches!(
            self.encoding(),
            Encoding::F32 | Encoding::F16 | Encoding::Bf16
        )
    }

    /// Writes the numbers of a row, as for the look-up of a token.
    ///
    /// Panics where there is no such row, or `numbers` are not as many as columns.
    pub(crate) fn row(&self, index: usize, numbers: &mut [f32]) {
        assert!(
            index < self.rows,
            "row {index} lies within a matrix of {}",
            self.rows
        );
        assert_eq!(
            numbers.len(),
            self.columns,
            "a row has as many numbers as columns"
        );
        let row_bytes = self.row_bytes();
        blocks::dequantise(
            self.encoding(),
            &self.bytes()[index * row_bytes..][..row_bytes],
            numbers,
        );
    }

    /// The products of rows of input (`columns` each) with the matrix: rows of output (`rows` each).
    pub(crate) fn multiply(&self, pool: &Pool, input: &[f32], output: &mut [f32]) {
        multiply_all(pool, &[self], input, &mut [output]);
    }
}

/// The products of one input with several matrices, in one parallel section.
///
/// Panics where lengths do not fit each other.
pub(crate) fn multiply_all(
    pool: &Pool,
    matrices: &[&Matrix],
    input: &[f32],
    outputs: &mut [&mut [f32]],
) {
    let Some(columns) = matrices.first().map(|matrix| matrix.columns) else {
        return;
    };
    assert!(
        matrices.iter().all(|matrix| matrix.columns == columns),
        "matrices have one width"
    );
    assert!(input.len().is_multiple_of(columns), "inputs are whole rows");
    assert_eq!(matrices.len(), outputs.len(), "each matrix has an output");
    let count = input.len() / columns;
    if count == 0 {
        return;
    }

    let mut bytes = INPUT.take().unwrap_or_default();
    if matrices.iter().any(|matrix| matrix.is_quantised()) {
        assert!(columns.is_multiple_of(GROUP), "blocks are whole groups");
        bytes.fill(pool, input, columns);
    }
    let mut products = Vec::with_capacity(matrices.len());
    let (mut tiles, mut least) = (0, usize::MAX);
    for (matrix, output) in matrices.iter().zip(outputs.iter_mut()) {
        assert_eq!(
            output.len(),
            count * matrix.rows,
            "outputs have a row for each of the input"
        );
        products.push(Product {
            matrix,
            output: Pieces::new(output),
            first_tile: tiles,
        });
        tiles += matrix.rows.div_ceil(TILE_ROWS);
        // Many rows of input make every tile a long task.
        let work = (TILE_ROWS * matrix.row_bytes()).saturating_mul(count);
        least = least.min(TASK_BYTES.div_ceil(work.max(1)));
    }
    let shares = Shares {
        tiles,
        threads: pool.threads(),
        least,
    };
    let level = pool.level();
    pool.run(shares.count(), &|task| {
        let mut scratch = SCRATCH.take().unwrap_or_else(|| Scratch {
            tile: Tile::new(),
            sums: Vec::new(),
        });
        let share = shares.share(task);
        for tile in share.clone() {
            let Some(product) = products.iter().rfind(|product| product.first_tile <= tile) else {
                continue;
            };
            let scratch = &mut scratch;
            level.run(TileProduct {
                product,
                first: (tile - product.first_tile) * TILE_ROWS,
                is_first: tile == share.start,
                is_last: tile + 1 == share.end,
                input,
                bytes: &bytes,
                scratch,
            });
        }
        SCRATCH.set(Some(scratch));
    });
    INPUT.set(Some(bytes));
}

/// A matrix in a section of products.
struct Product<'a> {
    matrix: &'a Matrix,
    output: Pieces<'a, f32>,
    first_tile: usize,
}

/// The products of all rows of input with up to 32 rows of a matrix.
struct TileProduct<'a> {
    product: &'a Product<'a>,
    first: usize,
    /// Its weights have not been read yet.
    is_first: bool,
    /// The next tile is another task's.
    is_last: bool,
    input: &'a [f32],
    bytes: &'a Input,
    scratch: &'a mut Scratch,
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
        let wanted = TILE_ROWS.min(matrix.rows - first);
        // Where rows are fewer than a tile's, the last one stands in for those that lack.
        let rows = std::array::from_fn(|row| {
            weights[(first + row.min(wanted - 1)) * row_bytes..][..row_bytes].as_ptr()
        });
        let count = input.len() / columns;
        scratch.sums.clear();
        scratch.sums.resize(count * TILE_ROWS, 0.0);
        let own = weights.as_ptr().wrapping_add(first * row_bytes);
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
                Encoding::F32 => {
                    dense::multiply_rows::<T, dense::F32>(
                        tier,
                        &rows,
                        wanted,
                        input,
                        columns,
                        &mut scratch.sums,
                    );
                }
                Encoding::F16 => {
                    dense::multiply_rows::<T, dense::F16>(
                        tier,
                        &rows,
                        wanted,
                        input,
                        columns,
                        &mut scratch.sums,
                    );
                }
                Encoding::Bf16 => {
                    dense::multiply_rows::<T, dense::Bf16>(
                        tier,
                        &rows,
                        wanted,
                        input,
                        columns,
                        &mut scratch.sums,
                    );
                }
                Encoding::Q8_0 => quantised.multiply::<T, unpack::Q8_0>(tier, scratch),
                Encoding::Q4_0 => quantised.multiply::<T, unpack::Q4_0>(tier, scratch),
                Encoding::Q4K => quantised.multiply::<T, unpack::Q4K>(tier, scratch),
                Encoding::Q5K => quantised.multiply::<T, unpack::Q5K>(tier, scratch),
                Encoding::Q6K => quantised.multiply::<T, unpack::Q6K>(tier, scratch),
            }
        }
        for (row, sums) in scratch.sums.chunks_exact(TILE_ROWS).enumerate() {
            #[expect(unsafe_code, reason = "tasks write other columns of the same rows")]
            // SAFETY: each task has other columns, and takes one piece at a time.
            let output = unsafe { product.output.piece(row * matrix.rows + first, wanted) };
            output.copy_from_slice(&sums[..wanted]);
            if let Some(bias) = &matrix.bias {
                for (output, bias) in output.iter_mut().zip(&bias[first..]) {
                    *output += bias;
                }
            }
        }
    }
}

/// Quantised weights of a tile, and where they lie.
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
    /// At each of the rows lie all columns in the blocks `B`.
    #[expect(unsafe_code, reason = "kernels read weights through pointers")]
    #[inline(always)]
    unsafe fn multiply<T: Tier, B: Blocks>(self, tier: T, scratch: &mut Scratch) {
        let (tile, sums) = (&mut *scratch.tile, &mut scratch.sums[..]);
        if self.is_first {
            for line in (0..self.tile_bytes).step_by(LINE_BYTES) {
                tier.prefetch(self.own.wrapping_add(line));
            }
        }
        // What is there already is asked for where nothing is next: that costs nothing.
        let ahead = if self.is_last { 0 } else { self.tile_bytes };
        let next = self.own.wrapping_add(ahead);
        // SAFETY: the caller's promise.
        unsafe {
            if sums.len() / TILE_ROWS <= FEW_ROWS.min(T::MOST_ROWS) {
                few::multiply_rows::<T, B>(tier, tile, next, self.rows, self.input, sums);
            } else {
                tile::multiply_rows::<T, B>(tier, tile, self.rows, next, self.input, sums);
            }
        }
    }
}

#[cfg(test)]
mod tests;
