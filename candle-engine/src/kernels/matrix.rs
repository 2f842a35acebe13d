//! Weight matrices in their stored layout, and their products with input rows. Weights are never copied: pieces are unpacked into
//! scratch memory while they are used.
//!
//! The result of a row is bit-identical whatever else is in its batch and however many threads compute.

mod products;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use super::blocks;
use super::input::{GROUP, Input};
use super::pool::{Pieces, Pool};
use super::rounded_rows::RoundedRows;
use super::shares::Shares;
use super::tile::{TILE_ROWS, Tile};
use crate::stored_tensor::{Encoding, StoredTensor};
use products::{Product, RoundedProduct, TileProduct};

/// Minimum weight bytes per task, times input rows; smaller tasks cost more in scheduling than in computing.
const TASK_BYTES: usize = 64 << 10;

thread_local! {
    /// Scratch memory of a task: unpacked weights, and sums.
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
    /// The quantised input of the product that this thread requested.
    static INPUT: Cell<Option<Input>> = const { Cell::new(None) };
    /// The input of the same product, rounded to BF16.
    static ROUNDED: Cell<Option<RoundedRows>> = const { Cell::new(None) };
}

struct Scratch {
    tile: Box<Tile>,
    sums: Vec<f32>,
}

/// A matrix of `rows` outputs for `columns` inputs, or some rows of one. A clone shares the weights.
#[derive(Debug, Clone)]
pub(crate) struct Matrix {
    stored: StoredTensor,
    first_row: usize,
    rows: usize,
    columns: usize,
    bias: Option<Arc<[f32]>>,
}

impl Matrix {
    /// Builds a matrix from a tensor of two or more dimensions; all leading dimensions count as rows.
    pub(crate) fn new(stored: StoredTensor) -> Result<Self, String> {
        let Some((&columns, leading)) = stored
            .shape
            .split_last()
            .filter(|(_, leading)| !leading.is_empty())
        else {
            return Err(format!(
                "a tensor of shape {:?} is not a matrix",
                stored.shape
            ));
        };
        let block = stored.encoding.block_numbers();
        if columns == 0 || !columns.is_multiple_of(block) {
            return Err(format!(
                "rows of {columns} numbers are not complete blocks of {block}, which {:?} needs",
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

    /// Returns a view of some rows, such as the keys of a fused projection or one expert.
    ///
    /// Panics if the rows are not within the matrix.
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

    /// Decodes one row, for example for a token lookup.
    ///
    /// Panics if the row does not exist, or if `numbers` does not have one entry per column.
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
}

/// Multiplies one input with several matrices in one parallel section.
///
/// Panics if lengths do not match.
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
    assert!(
        input.len().is_multiple_of(columns),
        "inputs are complete rows"
    );
    assert_eq!(matrices.len(), outputs.len(), "each matrix has an output");
    let count = input.len() / columns;
    if count == 0 {
        return;
    }

    let mut bytes = INPUT.take().unwrap_or_default();
    if matrices.iter().any(|matrix| matrix.is_quantised()) {
        assert!(columns.is_multiple_of(GROUP), "blocks are complete groups");
        bytes.fill(pool, input, columns);
    }
    let mut rounded = ROUNDED.take().unwrap_or_default();
    // A single row is rounded like many are, which keeps its bits the same in every batch.
    let rounds = |matrix: &Matrix| pool.rounds() && matrix.encoding() == Encoding::Bf16;
    if matrices.iter().copied().any(rounds) {
        rounded.fill(pool, input, columns);
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
        // With many input rows, every tile is a long task.
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
            let first = (tile - product.first_tile) * TILE_ROWS;
            if rounds(product.matrix) {
                level.run_bf16(RoundedProduct {
                    product,
                    first,
                    count,
                    input: &rounded,
                    sums: &mut scratch.sums,
                });
                continue;
            }
            level.run(TileProduct {
                product,
                first,
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
    ROUNDED.set(Some(rounded));
}

#[cfg(test)]
mod tests;
