//! The keys and values of one layer, in pages: their layout, writing of rows and copying of pages.
//!
//! A page has [`PAGE_TOKENS`] tokens, the number of lanes of a vector. Within a page, heads follow each other. Keys are stored
//! column by column: a vector holds one column of all tokens, and sixteen scores are computed together. Values are stored token by
//! token, each padded with zeros to full vectors.

use half::{bf16, f16};

use super::pool::{Pieces, Pool};
use super::tier::LANES;
use crate::step::{PAGE_TOKENS, Page, Span};

const _: () = assert!(
    PAGE_TOKENS == LANES,
    "a page's tokens are the lanes of a vector"
);

/// Number format of cached keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    /// Half the memory and bandwidth; magnitudes above 65,504 are clamped.
    F16,
    /// Half the memory and bandwidth, with the exponent range of F32 and fewer digits.
    Bf16,
}

impl Precision {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// Dimensions of one layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheShape {
    pub pages: usize,
    /// Key and value heads.
    pub heads: usize,
    pub key_width: usize,
    pub value_width: usize,
    pub precision: Precision,
}

impl CacheShape {
    pub(super) fn value_stride(&self) -> usize {
        self.value_width.next_multiple_of(LANES)
    }

    /// Size of one page of one layer, keys and values together, in bytes.
    pub(crate) fn page_bytes(&self) -> usize {
        let numbers = PAGE_TOKENS * self.heads * (self.key_width + self.value_stride());
        numbers * self.precision.bytes()
    }
}

/// Numbers of 32 or 16 bits.
#[derive(Debug)]
pub(super) enum Numbers {
    F32(Vec<f32>),
    /// F16 or BF16, according to the precision.
    Halves(Vec<u16>),
}

impl Numbers {
    fn zeros(precision: Precision, count: usize) -> Self {
        match precision {
            Precision::F32 => Self::F32(vec![0.0; count]),
            Precision::F16 | Precision::Bf16 => Self::Halves(vec![0; count]),
        }
    }

    pub(super) fn first_byte(&self) -> *const u8 {
        match self {
            Self::F32(numbers) => numbers.as_ptr().cast(),
            Self::Halves(numbers) => numbers.as_ptr().cast(),
        }
    }

    fn copy(&mut self, from: usize, to: usize, count: usize) {
        match self {
            Self::F32(numbers) => numbers.copy_within(from..from + count, to),
            Self::Halves(numbers) => numbers.copy_within(from..from + count, to),
        }
    }
}

/// The keys and values of one layer.
#[derive(Debug)]
pub(crate) struct CacheLayer {
    shape: CacheShape,
    pub(super) keys: Numbers,
    pub(super) values: Numbers,
}

/// New rows of keys or values, and their layout within one page and head.
struct Rows<'a> {
    spans: &'a [Span],
    rows: &'a [f32],
    heads: usize,
    width: usize,
    /// Numbers of one page and head.
    part: usize,
    /// Distance between a token's neighboring numbers, and between a column's.
    strides: (usize, usize),
}

impl Rows<'_> {
    fn write<N: Copy + Send>(
        &self,
        pool: &Pool,
        numbers: &mut [N],
        convert: impl Fn(f32) -> N + Sync,
    ) {
        let numbers = Pieces::new(numbers);
        let (token_stride, column_stride) = self.strides;
        let write_head = |head: usize| {
            let mut row = 0;
            for span in self.spans {
                let mut token = span.past;
                let end = span.past + span.count;
                while token < end {
                    let slot = token % PAGE_TOKENS;
                    let taken = (PAGE_TOKENS - slot).min(end - token);
                    let page = span.pages[token / PAGE_TOKENS] as usize;
                    #[expect(unsafe_code, reason = "tasks write different heads of the same pages")]
                    // SAFETY: each task has a different head, and takes one part at a time.
                    let part =
                        unsafe { numbers.piece((page * self.heads + head) * self.part, self.part) };
                    for next in 0..taken {
                        let from = ((row + next) * self.heads + head) * self.width;
                        let own = &mut part[(slot + next) * token_stride..];
                        for (column, value) in self.rows[from..from + self.width].iter().enumerate()
                        {
                            own[column * column_stride] = convert(*value);
                        }
                    }
                    row += taken;
                    token += taken;
                }
            }
        };
        if self.rows.len() < 1 << 14 {
            (0..self.heads).for_each(write_head);
        } else {
            pool.run(self.heads, &write_head);
        }
    }
}

impl CacheLayer {
    /// Allocates all pages, filled with zeros.
    pub(crate) fn new(shape: CacheShape) -> Self {
        let tokens = shape.pages * shape.heads * PAGE_TOKENS;
        Self {
            keys: Numbers::zeros(shape.precision, tokens * shape.key_width),
            values: Numbers::zeros(shape.precision, tokens * shape.value_stride()),
            shape,
        }
    }

    pub(crate) fn shape(&self) -> CacheShape {
        self.shape
    }

    /// Writes the keys (`heads · key_width` per row) and values of a step's rows.
    ///
    /// Panics if a span's pages do not cover its rows or are not in the cache.
    pub(crate) fn write(&mut self, pool: &Pool, spans: &[Span], keys: &[f32], values: &[f32]) {
        let CacheShape {
            heads,
            key_width,
            value_width,
            ..
        } = self.shape;
        let count: usize = spans.iter().map(|span| span.count).sum();
        assert_eq!(
            keys.len(),
            count * heads * key_width,
            "each row has its keys"
        );
        assert_eq!(
            values.len(),
            count * heads * value_width,
            "each row has its values"
        );
        let stride = self.shape.value_stride();
        let keys = Rows {
            spans,
            rows: keys,
            heads,
            width: key_width,
            part: key_width * PAGE_TOKENS,
            strides: (1, PAGE_TOKENS),
        };
        let values = Rows {
            spans,
            rows: values,
            heads,
            width: value_width,
            part: stride * PAGE_TOKENS,
            strides: (stride, 1),
        };
        for (rows, numbers) in [(keys, &mut self.keys), (values, &mut self.values)] {
            match (numbers, self.shape.precision) {
                (Numbers::F32(numbers), _) => rows.write(pool, numbers, |value| value),
                (Numbers::Halves(numbers), Precision::Bf16) => {
                    rows.write(pool, numbers, |value| bf16::from_f32(value).to_bits());
                }
                // Values are clamped because a masked row has weight zero, and zero times infinity is NaN.
                (Numbers::Halves(numbers), _) => {
                    let most = f16::MAX.to_f32();
                    rows.write(pool, numbers, |value| {
                        f16::from_f32(value.clamp(-most, most)).to_bits()
                    });
                }
            }
        }
    }

    /// Copies all tokens of a page to another.
    pub(crate) fn copy_page(&mut self, from: Page, to: Page) {
        let (from, to) = (from as usize, to as usize);
        let tokens = self.shape.heads * PAGE_TOKENS;
        let (keys, values) = (
            tokens * self.shape.key_width,
            tokens * self.shape.value_stride(),
        );
        self.keys.copy(from * keys, to * keys, keys);
        self.values.copy(from * values, to * values, values);
    }
}
