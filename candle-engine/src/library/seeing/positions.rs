//! The rows of images in a sequence, and the positions of its tokens on three axes.

use crate::vision::PlacedImage;
use candle_core::{DType, Result, Tensor};
use std::ops::Range;

/// The tower's results for an image.
pub(super) struct TowerRows {
    /// The rows that take the place of the placeholders' embeddings, of shape (tokens, hidden).
    pub embeddings: Tensor,
    /// The rows that are added after the first layers of the text, of the same shape.
    pub deep: Vec<Tensor>,
}

/// An image of a sequence.
pub(super) struct SeenImage {
    first: usize,
    rows: usize,
    columns: usize,
    tower: TowerRows,
}

impl SeenImage {
    pub fn new(image: &PlacedImage, tower: TowerRows) -> Self {
        let grid = image.token_grid();
        Self {
            first: image.first,
            rows: grid.rows,
            columns: grid.columns,
            tower,
        }
    }

    fn end(&self) -> usize {
        self.first + self.rows * self.columns
    }

    /// The part of `range` that the image fills.
    fn within(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let part = self.first.max(range.start)..self.end().min(range.end);
        (part.start < part.end).then_some(part)
    }
}

/// The positions of the tokens in `range` as time, row and column. An image takes as many positions as its longer side has
/// tokens.
pub(super) fn positions(range: Range<usize>, images: &[SeenImage]) -> Vec<[f32; 3]> {
    let place = |token: usize| {
        // Tokens of earlier images that do not advance the position.
        let mut saved = 0;
        for image in images {
            if token < image.first {
                break;
            }
            if token < image.end() {
                let (start, nth) = (image.first - saved, token - image.first);
                let [row, column] = [nth / image.columns, nth % image.columns];
                return [start, start + row, start + column];
            }
            saved += image.end() - image.first - image.rows.max(image.columns);
        }
        [token - saved; 3]
    };
    range
        .map(|token| place(token).map(|position| position as f32))
        .collect()
}

/// Puts the rows of images in the place of the embeddings of the tokens in `range`, of shape (1, tokens, hidden).
pub(super) fn embed(
    embedded: Tensor,
    range: &Range<usize>,
    images: &[SeenImage],
) -> Result<Tensor> {
    let mut parts = Vec::new();
    let mut next = range.start;
    for image in images {
        let Some(part) = image.within(range) else {
            continue;
        };
        if part.start > next {
            parts.push(embedded.narrow(1, next - range.start, part.start - next)?);
        }
        let rows = &image.tower.embeddings;
        let rows = rows.narrow(0, part.start - image.first, part.len())?;
        parts.push(rows.unsqueeze(0)?);
        next = part.end;
    }
    if parts.is_empty() {
        return Ok(embedded);
    }
    if next < range.end {
        parts.push(embedded.narrow(1, next - range.start, range.end - next)?);
    }
    Tensor::cat(&parts, 1)
}

/// Adds the deep rows of images to the rows of the tokens in `range` after the layer `layer`.
pub(super) fn add_deep(
    rows: Tensor,
    range: &Range<usize>,
    layer: usize,
    images: &[SeenImage],
) -> Result<Tensor> {
    let (_, count, width) = rows.dims3()?;
    let zeros = |count: usize| Tensor::zeros((1, count, width), DType::F32, rows.device());
    let mut parts = Vec::new();
    let mut next = range.start;
    for image in images {
        let Some((part, deep)) = image.within(range).zip(image.tower.deep.get(layer)) else {
            continue;
        };
        if part.start > next {
            parts.push(zeros(part.start - next)?);
        }
        let deep = deep.narrow(0, part.start - image.first, part.len())?;
        parts.push(deep.unsqueeze(0)?);
        next = part.end;
    }
    if parts.is_empty() {
        return Ok(rows);
    }
    if next < range.start + count {
        parts.push(zeros(range.start + count - next)?);
    }
    rows + Tensor::cat(&parts, 1)?
}
