//! The attention of a few queries to one tile: scores, a running maximum, and rescaled sums of values.

#![expect(
    unsafe_code,
    reason = "inner loops go through pointers and check no bounds"
)]

use super::{Attention, TILE_PAGES, TILE_TOKENS};
use crate::kernels::cache::{CacheLayer, CacheShape};
use crate::kernels::dense::Element;
use crate::kernels::math;
use crate::kernels::tier::{LANES, Tier, array};
use crate::step::PAGE_TOKENS;

/// A few queries and one tile of keys and values.
pub(super) struct Block<'a> {
    pub cache: &'a CacheLayer,
    pub attention: &'a Attention,
    pub head: usize,
    /// Pages from the tile's first page on.
    pub pages: &'a [u32],
    /// Range of the tile's tokens seen by at least one query.
    pub tokens: (usize, usize),
    pub sums: &'a mut [f32],
    pub greatest: &'a mut [f32],
    pub weights: &'a mut [f32],
}

/// Mask of the lanes with positions in `first..end`, where lane 0 has position `at`.
#[inline(always)]
fn lanes_within((first, end): (usize, usize), at: usize) -> u16 {
    let bits = |count: usize| ((1u32 << count.saturating_sub(at).min(LANES)) - 1) as u16;
    bits(end) & !bits(first)
}

impl Block<'_> {
    /// # Safety
    /// Pages are in the cache, and queries have the width of keys.
    #[inline(always)]
    pub unsafe fn look<T: Tier, E: Element, const M: usize>(
        self,
        tier: T,
        queries: [*const f32; M],
        visible: impl Fn(usize) -> (usize, usize),
    ) {
        let CacheShape {
            key_width, heads, ..
        } = self.cache.shape();
        let stride = self.cache.shape().value_stride();
        let part = |page: usize| {
            // The last pages of a tile may be missing; their lanes are masked, so any page may be read in their place.
            let page = self.pages[page.min(self.pages.len() - 1)] as usize;
            page * heads + self.head
        };
        // SAFETY: the caller's promise.
        unsafe {
            let keys = [0, 1, 2, 3].map(|page| {
                self.cache
                    .keys
                    .first_byte()
                    .add(part(page) * key_width * PAGE_TOKENS * E::BYTES)
            });
            let values = [0, 1, 2, 3].map(|page| {
                self.cache
                    .values
                    .first_byte()
                    .add(part(page) * stride * PAGE_TOKENS * E::BYTES)
            });
            let scores = scores::<T, E, M>(tier, queries, keys, key_width);
            let mut shares = [[0.0f32; TILE_TOKENS]; M];
            let mut shrinks = [0.0f32; M];
            for query in 0..M {
                let visible = visible(query);
                let mut greatest = tier.splat(f32::NEG_INFINITY);
                let mut masked = scores[query];
                for page in 0..TILE_PAGES {
                    let factor = tier.splat(self.attention.score_factor);
                    let mut score = tier.multiply(masked[page], factor);
                    if let Some(cap) = self.attention.score_cap {
                        let within = math::tanh(tier, tier.divide(score, tier.splat(cap)));
                        score = tier.multiply(within, tier.splat(cap));
                    }
                    let mask = lanes_within(visible, page * PAGE_TOKENS);
                    masked[page] = tier.keep(mask, score, tier.splat(f32::NEG_INFINITY));
                    greatest = tier.greater(greatest, masked[page]);
                }
                let before = self.greatest[query];
                let now = before.max(tier.greatest(greatest));
                self.greatest[query] = now;
                // Before a query sees its first token, there is nothing to rescale.
                let base = tier.splat(if now == f32::NEG_INFINITY { 0.0 } else { now });
                let mut exponents = masked;
                for page in 0..TILE_PAGES {
                    exponents[page] = math::exp(tier, tier.subtract(masked[page], base));
                    tier.store(
                        shares[query].as_mut_ptr().add(page * LANES),
                        exponents[page],
                    );
                }
                let [a, b, c, d] = exponents;
                let sum = tier.sum(tier.add(tier.add(a, b), tier.add(c, d)));
                let shrink = if before == now {
                    1.0
                } else {
                    let mut lanes = [0.0; LANES];
                    let shrink = math::exp(tier, tier.subtract(tier.splat(before), base));
                    tier.store(lanes.as_mut_ptr(), shrink);
                    lanes[0]
                };
                self.weights[query] = self.weights[query].mul_add(shrink, sum);
                shrinks[query] = shrink;
            }
            let sums = self.sums.as_mut_ptr();
            let mut column = 0;
            while column < stride {
                let values = values.map(|from| from.add(column * E::BYTES));
                let adding = WeightedValues {
                    values,
                    stride,
                    tokens: self.tokens,
                    shares: &shares,
                    shrinks: &shrinks,
                };
                let sums = sums.add(column);
                match (stride - column) / LANES {
                    1 => adding.add::<T, E, 1>(tier, sums),
                    2 => adding.add::<T, E, 2>(tier, sums),
                    3 => adding.add::<T, E, 3>(tier, sums),
                    _ => adding.add::<T, E, 4>(tier, sums),
                }
                column += 4 * LANES;
            }
        }
    }
}

/// The products of queries with the keys of a tile.
#[inline(always)]
unsafe fn scores<T: Tier, E: Element, const M: usize>(
    tier: T,
    queries: [*const f32; M],
    keys: [*const u8; TILE_PAGES],
    width: usize,
) -> [[T::Floats; TILE_PAGES]; M] {
    let mut scores = [[tier.splat(0.0); TILE_PAGES]; M];
    for column in 0..width {
        // SAFETY: the caller guarantees that keys and queries have `width` columns.
        unsafe {
            let keys = array!(TILE_PAGES, tier.splat(0.0), |page| {
                E::load(tier, keys[page].add(column * LANES * E::BYTES))
            });
            for query in 0..M {
                let number = tier.splat(*queries[query].add(column));
                for page in 0..TILE_PAGES {
                    scores[query][page] = tier.fused(keys[page], number, scores[query][page]);
                }
            }
        }
    }
    scores
}

/// The values of a tile, and each query's weights for them.
struct WeightedValues<'a, const M: usize> {
    values: [*const u8; TILE_PAGES],
    stride: usize,
    tokens: (usize, usize),
    shares: &'a [[f32; TILE_TOKENS]; M],
    shrinks: &'a [f32; M],
}

impl<const M: usize> WeightedValues<'_, M> {
    /// `N` vectors of each query's sums.
    #[inline(always)]
    unsafe fn add<T: Tier, E: Element, const N: usize>(&self, tier: T, sums: *mut f32) {
        // SAFETY: the caller guarantees that values and sums have `N` vectors of columns.
        unsafe {
            let mut own = [[tier.splat(0.0); N]; M];
            for query in 0..M {
                for place in 0..N {
                    let sum = tier.load(sums.add(query * self.stride + place * LANES));
                    own[query][place] = tier.multiply(sum, tier.splat(self.shrinks[query]));
                }
            }
            for token in self.tokens.0..self.tokens.1 {
                let from = self.values.get_unchecked(token / PAGE_TOKENS);
                let from = from.add(token % PAGE_TOKENS * self.stride * E::BYTES);
                let values = array!(N, tier.splat(0.0), |place| {
                    E::load(tier, from.add(place * LANES * E::BYTES))
                });
                for query in 0..M {
                    let share = tier.splat(*self.shares[query].get_unchecked(token));
                    for place in 0..N {
                        own[query][place] = tier.fused(values[place], share, own[query][place]);
                    }
                }
            }
            for query in 0..M {
                for place in 0..N {
                    tier.store(
                        sums.add(query * self.stride + place * LANES),
                        own[query][place],
                    );
                }
            }
        }
    }
}
