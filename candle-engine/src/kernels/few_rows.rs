//! Products of quantised weights with one or two input rows. Weight rows are multiplied in their stored layout, which costs less
//! than transposing them.
//!
//! The results are bit-identical to the results of [`super::tile`], the kernel for more rows: integers are summed in a different
//! order, which is exact, and the groups of 32 in the same order.

#![expect(
    unsafe_code,
    reason = "inner loops go through pointers and check no bounds"
)]

use super::input::{GROUP, Input};
use super::tier::{LANES, Tier, array};
use super::tile::{PIECE_COLUMNS, Prefetch, TILE_ROWS, Tile};
use super::unpack::Blocks;

/// Up to this many input rows, this path costs less than transposing the weights.
pub(super) const FEW_ROWS: usize = 2;
/// Groups of four rows whose sums are reduced together. Each issues its own prefetches, because processors drop prefetches that
/// come in large bursts.
const FOURS: usize = LANES / 4;

/// Adds to `sums` (32 per input row) the products with the rows that begin at `rows`. Prefetches the first half of the rows that
/// begin at `next`.
///
/// # Safety
/// Each of `rows` must hold `input.columns` numbers in blocks of type `B`.
#[inline(always)]
pub(super) unsafe fn multiply_rows<T: Tier, B: Blocks>(
    tier: T,
    tile: &mut Tile,
    next: *const u8,
    rows: &[*const u8; TILE_ROWS],
    input: &Input,
    sums: &mut [f32],
) {
    let count = input.bytes.len() / input.columns;
    assert!(sums.len() >= count * TILE_ROWS, "sums have room");
    let bytes = input.columns / 64 * LANES * B::UNIT_BYTES;
    let (halves, _) = rows.as_chunks::<LANES>();
    for (half, rows) in halves.iter().enumerate() {
        let from = halves.get(half + 1).map_or(next, |rows| rows[0]);
        let few = FewRows {
            tile: &mut *tile,
            ahead: Prefetch::new(from, bytes, input.columns / 64 * FOURS),
            rows,
            half,
            input,
        };
        let sums = sums[half * LANES..].as_mut_ptr();
        // SAFETY: the caller's promise, and `sums` has room for every input row.
        unsafe {
            match count {
                1 => few.multiply::<T, B, 1>(tier, sums),
                _ if T::MOST_ROWS > 1 => few.multiply::<T, B, FEW_ROWS>(tier, sums),
                _ => unreachable!("a tier takes no more rows than it says"),
            }
        }
    }
}

/// One or two input rows, and 16 weight rows.
struct FewRows<'a> {
    tile: &'a mut Tile,
    ahead: Prefetch,
    rows: &'a [*const u8; LANES],
    half: usize,
    input: &'a Input,
}

impl FewRows<'_> {
    /// # Safety
    /// All columns must be readable in each row; the input must have `M` rows; `sums` must hold 16 numbers for each of
    /// them, 32 apart.
    #[inline(always)]
    unsafe fn multiply<T: Tier, B: Blocks, const M: usize>(mut self, tier: T, sums: *mut f32) {
        let columns = self.input.columns;
        // SAFETY: the caller's promise.
        unsafe {
            let mut own = array!(M, tier.splat(0.0), |m| tier.load(sums.add(m * TILE_ROWS)));
            let mut first = 0;
            while first < columns {
                let piece = PIECE_COLUMNS.min(columns - first);
                B::factors(tier, self.rows, first, piece, self.half, self.tile);
                for unit in 0..piece / 64 {
                    self.unit::<T, B, M, true>(tier, (first, unit), &mut own);
                }
                if !piece.is_multiple_of(64) {
                    self.unit::<T, B, M, false>(tier, (first, piece / 64), &mut own);
                }
                first += piece;
            }
            for m in 0..M {
                tier.store(sums.add(m * TILE_ROWS), own[m]);
            }
        }
    }

    /// Adds the products of 64 columns, or of the last 32.
    #[inline(always)]
    unsafe fn unit<T: Tier, B: Blocks, const M: usize, const FULL: bool>(
        &mut self,
        tier: T,
        (first, unit): (usize, usize),
        own: &mut [T::Floats; M],
    ) {
        let columns = self.input.columns;
        let (groups, per_group) = (columns / GROUP, GROUP / B::PER_FACTOR);
        let at = first / 64 + unit;
        // SAFETY: the unit lies within the rows and the input.
        unsafe {
            let inputs = array!(M, B::unit(tier, self.rows[0], at, FULL), |m| {
                let from = self.input.bytes.as_ptr().add(m * columns + at * 64);
                let from = from.cast::<u8>();
                tier.load_two(from, if FULL { from.add(32) } else { from })
            });
            let mut fours = [[tier.splat_int(0); FOURS]; M];
            for four in 0..FOURS {
                self.ahead.ask(tier);
                let mut products = [[tier.splat_int(0); 4]; M];
                for place in 0..4 {
                    let weights = B::unit(tier, self.rows[4 * four + place], at, FULL);
                    for m in 0..M {
                        let zero = tier.splat_int(0);
                        products[m][place] = if B::SMALL {
                            tier.dot_small(zero, weights, inputs[m])
                        } else {
                            tier.dot(zero, weights, inputs[m])
                        };
                    }
                }
                for m in 0..M {
                    fours[m][four] = tier.sum_quarters(products[m]);
                }
            }
            for m in 0..M {
                let quarters = tier.by_quarter(fours[m]);
                for group in 0..if FULL { 2 } else { 1 } {
                    let place = unit * 2 + group;
                    let side = self.input.groups.get_unchecked(m * groups + at * 2 + group);
                    let pair = [quarters[2 * group], quarters[2 * group + 1]];
                    for part in 0..per_group {
                        let (products, sum) = if per_group == 2 {
                            (pair[part], side.sums[part])
                        } else {
                            (tier.add_ints(pair[0], pair[1]), side.sums[0] + side.sums[1])
                        };
                        let products = if B::ZERO == 0 {
                            products
                        } else {
                            tier.add_ints(products, tier.splat_int(-B::ZERO * sum))
                        };
                        let factor = self.tile.factors.get_unchecked(place * per_group + part);
                        let factor = tier.load(factor[self.half].as_ptr());
                        let factor = tier.multiply(factor, tier.splat(side.factor));
                        own[m] = tier.fused(tier.to_floats(products), factor, own[m]);
                    }
                    if B::MINIMUMS {
                        let minimum = self.tile.minimums.get_unchecked(place);
                        let minimum = tier.load(minimum[self.half].as_ptr());
                        own[m] = tier.fused(minimum, tier.splat(side.scaled_sum), own[m]);
                    }
                }
            }
        }
    }
}
