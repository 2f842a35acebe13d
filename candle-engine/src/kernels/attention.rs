//! Attention over the pages of a KV cache: rows of many sequences in one call, each over its own sequence's cached tokens.
//!
//! Keys are taken in tiles of 64 tokens that begin at multiples of 64, with a running maximum and rescaled sums (Milakov and
//! Gimelshein 2018; Dao et al. 2022), so a row of scores is never complete in memory. Tile boundaries are the same for every row,
//! and each row has its own sums: the result of a row does not depend on how its prompt was split or on what else is computed.

#![expect(
    unsafe_code,
    reason = "inner loops go through pointers and check no bounds"
)]

mod block;

use std::cell::Cell;

use super::cache::{CacheLayer, CacheShape, Precision};
use super::dense::{self, Element};
use super::pool::{Pieces, Pool};
use super::tier::{Job, Tier};
use crate::step::{PAGE_TOKENS, Span};
use block::Block;

/// Pages of a tile.
const TILE_PAGES: usize = 4;
const TILE_TOKENS: usize = TILE_PAGES * PAGE_TOKENS;
/// Maximum number of queries computed together.
const QUERIES: usize = 4;
/// Approximate number of queries per task; they share one read of each tile.
const TASK_QUERIES: usize = 64;

thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Parameters of attention over cached tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Attention {
    /// Query heads, a multiple of the cache's heads.
    pub heads: usize,
    /// Factor applied to the scores.
    pub score_factor: f32,
    /// Soft cap, applied after the factor: `cap · tanh(score / cap)`.
    pub score_cap: Option<f32>,
    /// Number of latest tokens each row sees, including itself; without `causal`, it also sees as many following tokens.
    pub window: Option<usize>,
    /// Rows see no later tokens. If false, they see all tokens of the span.
    pub causal: bool,
}

/// Consecutive rows of one sequence, and one head of its keys.
#[derive(Clone, Copy)]
struct Task {
    span: usize,
    /// The first row's index in the step (`step_row`) and in the span (`row`).
    step_row: usize,
    row: usize,
    rows: usize,
    head: usize,
}

/// Attends with each row's queries (`heads · key_width`) to the tokens of its sequence, which must be in the cache up to and
/// including the row's own, and writes `heads · value_width` numbers per row.
///
/// Panics if lengths do not match, or if a span's pages do not cover it or are not in the cache.
pub(crate) fn attend(
    pool: &Pool,
    cache: &CacheLayer,
    spans: &[Span],
    attention: &Attention,
    queries: &[f32],
    output: &mut [f32],
) {
    let shape = cache.shape();
    let rows: usize = spans.iter().map(|span| span.count).sum();
    let heads = attention.heads;
    assert!(
        heads > 0 && heads.is_multiple_of(shape.heads),
        "queries share heads of keys evenly"
    );
    assert_eq!(
        queries.len(),
        rows * heads * shape.key_width,
        "each row has its queries"
    );
    assert_eq!(
        output.len(),
        rows * heads * shape.value_width,
        "each row has its output"
    );
    for span in spans {
        let pages = span
            .pages
            .get(..(span.past + span.count).div_ceil(PAGE_TOKENS));
        let pages =
            pages.unwrap_or_else(|| panic!("pages cover {} tokens", span.past + span.count));
        assert!(
            pages.iter().all(|page| (*page as usize) < shape.pages),
            "pages are in the cache"
        );
    }
    let most_rows = (TASK_QUERIES / (heads / shape.heads)).max(1);
    let mut tasks = Vec::new();
    let mut step_row = 0;
    for (place, span) in spans.iter().enumerate() {
        for row in (0..span.count).step_by(most_rows) {
            let rows = most_rows.min(span.count - row);
            tasks.extend((0..shape.heads).map(|head| Task {
                span: place,
                step_row: step_row + row,
                row,
                rows,
                head,
            }));
        }
        step_row += span.count;
    }
    let level = pool.level();
    let output = Pieces::new(output);
    // The last rows of a prompt see the most tokens, so they start first.
    pool.run(tasks.len(), &|number| {
        let task = tasks[tasks.len() - 1 - number];
        let scratch = SCRATCH.take();
        let looking = AttentionJob {
            cache,
            span: &spans[task.span],
            attention,
            queries,
            output,
            task,
            scratch,
        };
        SCRATCH.set(level.run(looking));
    });
}

struct AttentionJob<'a> {
    cache: &'a CacheLayer,
    span: &'a Span,
    attention: &'a Attention,
    queries: &'a [f32],
    output: Pieces<'a, f32>,
    task: Task,
    /// Per query: its sums of values, its maximum score, and its sum of weights.
    scratch: Vec<f32>,
}

impl Job for AttentionJob<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<T: Tier>(self, tier: T) -> Vec<f32> {
        match self.cache.shape().precision {
            Precision::F32 => self.look::<T, dense::F32>(tier),
            Precision::F16 => self.look::<T, dense::F16>(tier),
            Precision::Bf16 => self.look::<T, dense::Bf16>(tier),
        }
    }
}

impl AttentionJob<'_> {
    #[inline(always)]
    fn look<T: Tier, E: Element>(mut self, tier: T) -> Vec<f32> {
        let CacheShape {
            key_width,
            value_width,
            heads: key_heads,
            ..
        } = self.cache.shape();
        let stride = self.cache.shape().value_stride();
        let group = self.attention.heads / key_heads;
        let count = self.task.rows * group;
        self.scratch.clear();
        self.scratch.resize(count * (stride + 2), 0.0);
        let (sums, rest) = self.scratch.split_at_mut(count * stride);
        let (greatest, weights) = rest.split_at_mut(count);
        greatest.fill(f32::NEG_INFINITY);

        let window = self.attention.window.unwrap_or(usize::MAX);
        let past = self.span.past;
        let all = past + self.span.count;
        // The range of tokens that a query of the task sees.
        let visible = |query: usize| {
            let position = past + self.task.row + query / group;
            let end = if self.attention.causal {
                position + 1
            } else {
                position.saturating_add(window).min(all)
            };
            ((position + 1).saturating_sub(window), end)
        };
        let first_tile = visible(0).0 / TILE_TOKENS;
        let last_end = visible(count - 1).1;
        for tile in first_tile..last_end.div_ceil(TILE_TOKENS) {
            let tile_first = tile * TILE_TOKENS;
            let mut query = 0;
            while query < count {
                let taken = QUERIES.min(T::MOST_ROWS).min(count - query);
                let (first, end) = (visible(query).0, visible(query + taken - 1).1);
                if end > tile_first && first < tile_first + TILE_TOKENS {
                    let from = |place: usize| {
                        let row = self.task.step_row + (query + place) / group;
                        let head = self.task.head * group + (query + place) % group;
                        self.queries[(row * self.attention.heads + head) * key_width..][..key_width]
                            .as_ptr()
                    };
                    let block = Block {
                        cache: self.cache,
                        attention: self.attention,
                        head: self.task.head,
                        pages: &self.span.pages[tile * TILE_PAGES..all.div_ceil(PAGE_TOKENS)],
                        tokens: (
                            first.max(tile_first) - tile_first,
                            end.min(tile_first + TILE_TOKENS) - tile_first,
                        ),
                        sums: &mut sums[query * stride..(query + taken) * stride],
                        greatest: &mut greatest[query..query + taken],
                        weights: &mut weights[query..query + taken],
                    };
                    let visible = |place: usize| {
                        let (first, end) = visible(query + place);
                        (
                            first.saturating_sub(tile_first),
                            end.saturating_sub(tile_first),
                        )
                    };
                    // SAFETY: pages are in the cache, and queries have the width of keys.
                    unsafe {
                        match taken {
                            1 => block.look::<T, E, 1>(tier, [from(0)], visible),
                            2 if T::MOST_ROWS > 1 => {
                                block.look::<T, E, 2>(tier, [0, 1].map(from), visible)
                            }
                            3 if T::MOST_ROWS > 2 => {
                                block.look::<T, E, 3>(tier, [0, 1, 2].map(from), visible)
                            }
                            _ if T::MOST_ROWS > 2 => {
                                block.look::<T, E, QUERIES>(tier, [0, 1, 2, 3].map(from), visible)
                            }
                            _ => unreachable!("a tier takes no more rows than it says"),
                        }
                    }
                }
                query += taken;
            }
        }

        for query in 0..count {
            let row = self.task.step_row + query / group;
            let head = self.task.head * group + query % group;
            // SAFETY: each task has other rows and heads, and takes one piece at a time.
            let output = unsafe {
                self.output.piece(
                    (row * self.attention.heads + head) * value_width,
                    value_width,
                )
            };
            for (output, sum) in output.iter_mut().zip(&sums[query * stride..]) {
                *output = sum / weights[query];
            }
        }
        self.scratch
    }
}

#[cfg(test)]
mod tests;
