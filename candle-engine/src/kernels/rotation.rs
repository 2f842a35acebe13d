//! Rotary embeddings of the heads of rows.

use super::pool::Pool;
use super::rows::{load, rows_per_task, store};
use super::tier::{Job, LANES, Tier};

/// Cosines and sines of a rotary embedding: `half` of each for every row of a step, shared by all heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns<'a> {
    pub cosines: &'a [f32],
    pub sines: &'a [f32],
    /// Rotated pairs per head: the first `2 · half` numbers of a head.
    pub half: usize,
    /// Adjacent numbers are pairs. If false, a number pairs with the one `half` further.
    pub interleaved: bool,
}

struct TurnJob<'a> {
    rows: &'a mut [f32],
    first: usize,
    heads: usize,
    width: usize,
    turns: Turns<'a>,
}

impl Job for TurnJob<'_> {
    type Output = ();
    #[inline(always)]
    fn run<T: Tier>(self, tier: T) {
        let Turns {
            cosines,
            sines,
            half,
            interleaved,
        } = self.turns;
        for (row, numbers) in self
            .rows
            .chunks_exact_mut(self.heads * self.width)
            .enumerate()
        {
            let cosines = &cosines[(self.first + row) * half..][..half];
            let sines = &sines[(self.first + row) * half..][..half];
            for head in numbers.chunks_exact_mut(self.width) {
                let turned = &mut head[..2 * half];
                if interleaved {
                    for ((pair, cosine), sine) in turned.chunks_exact_mut(2).zip(cosines).zip(sines)
                    {
                        let (a, b) = (pair[0], pair[1]);
                        pair[0] = a.mul_add(*cosine, -(b * sine));
                        pair[1] = b.mul_add(*cosine, a * sine);
                    }
                    continue;
                }
                let (low, high) = turned.split_at_mut(half);
                let mut at = 0;
                while at < half {
                    let (a, b) = (load(tier, low, at), load(tier, high, at));
                    let (cosine, sine) = (load(tier, cosines, at), load(tier, sines, at));
                    let minus = tier.subtract(tier.splat(0.0), tier.multiply(b, sine));
                    store(tier, low, at, tier.fused(a, cosine, minus));
                    store(
                        tier,
                        high,
                        at,
                        tier.fused(b, cosine, tier.multiply(a, sine)),
                    );
                    at += LANES;
                }
            }
        }
    }
}

/// Rotates the heads of each row, which is `heads · width` numbers.
pub(crate) fn turn(pool: &Pool, rows: &mut [f32], heads: usize, width: usize, turns: Turns<'_>) {
    let row = heads * width;
    assert!(
        row > 0 && rows.len().is_multiple_of(row) && 2 * turns.half <= width,
        "rows are complete heads"
    );
    let needed = rows.len() / row * turns.half;
    assert!(
        turns.cosines.len() >= needed && turns.sines.len() >= needed,
        "each row has its turns"
    );
    let per_task = rows_per_task(row);
    let level = pool.level();
    pool.run_pieces(rows, per_task * row, |piece, rows| {
        level.run(TurnJob {
            rows,
            first: piece * per_task,
            heads,
            width,
            turns,
        });
    });
}
