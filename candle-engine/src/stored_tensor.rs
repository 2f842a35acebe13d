//! Tensors in their stored form: an encoding, a shape, and mapped or owned bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The number format of a tensor. Formats starting with Q are GGML blocks, as in GGUF files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Encoding {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Encoding {
    /// Numbers per block; rows consist of complete blocks.
    pub fn block_numbers(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of `numbers` numbers; `None` if they are not complete blocks, or the result overflows.
    pub fn bytes_of(self, numbers: usize) -> Option<usize> {
        if !numbers.is_multiple_of(self.block_numbers()) {
            return None;
        }
        (numbers / self.block_numbers()).checked_mul(self.block_bytes())
    }
}

/// A stored tensor. A clone shares the bytes.
#[derive(Clone)]
pub(crate) struct StoredTensor {
    pub encoding: Encoding,
    /// The last dimension is contiguous: a matrix is `[outputs, inputs]`.
    pub shape: Vec<usize>,
    source: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl StoredTensor {
    /// Takes a range of a mapped file, or of memory. Returns `None` if the range is out of bounds, or its length does not match
    /// encoding and shape.
    pub fn new(
        encoding: Encoding,
        shape: Vec<usize>,
        source: Arc<dyn AsRef<[u8]> + Send + Sync>,
        range: Range<usize>,
    ) -> Option<Self> {
        let numbers = shape
            .iter()
            .try_fold(1usize, |all, size| all.checked_mul(*size))?;
        let byte_count = (*source).as_ref().get(range.clone())?.len();
        (encoding.bytes_of(numbers)? == byte_count).then_some(Self {
            encoding,
            shape,
            source,
            range,
        })
    }

    pub fn bytes(&self) -> &[u8] {
        &(*self.source).as_ref()[self.range.clone()]
    }

    pub fn numbers(&self) -> usize {
        self.shape.iter().product()
    }

    /// Selects rows of a matrix, sharing its bytes. Returns `None` if it is not a matrix, the rows do not exist, or its rows are
    /// not complete blocks.
    pub fn rows(&self, rows: Range<usize>) -> Option<Self> {
        let &[all, columns] = self.shape.as_slice() else {
            return None;
        };
        let row_bytes = self.encoding.bytes_of(columns)?;
        let count = rows.end.checked_sub(rows.start)?;
        (rows.end <= all).then(|| Self {
            encoding: self.encoding,
            shape: vec![count, columns],
            source: Arc::clone(&self.source),
            range: self.range.start + rows.start * row_bytes
                ..self.range.start + rows.end * row_bytes,
        })
    }
}

impl fmt::Debug for StoredTensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {:?}", self.encoding, self.shape)
    }
}
