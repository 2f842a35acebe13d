//! Inputs as bytes: every 32 numbers have their own factor, so that products with quantised weights are sums of
//! integers.
//!
//! GGML quantises inputs the same way for Q8_0 and Q4_0, but with factors of 16 bits, and 256 numbers at once for the K
//! encodings; ours are the finer ones for all.

use super::pool::Pool;
use super::tier::{Job, LANES, Tier};

/// Numbers that share a factor.
pub(super) const GROUP: usize = 32;

/// Rows of this many numbers are shared among threads.
const NUMBERS_WORTH_SHARING: usize = 1 << 14;

/// What 32 numbers have beside their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub(super) struct Group {
    pub factor: f32,
    /// The sum of the numbers as the bytes have them, times the factor.
    pub scaled_sum: f32,
    /// The sums of the first and the last 16 bytes.
    pub sums: [i32; 2],
}

/// Rows of numbers as bytes.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub columns: usize,
    pub bytes: Vec<i8>,
    pub groups: Vec<Group>,
}

impl Input {
    /// Takes rows of `columns` numbers, a multiple of 32. A group with a number that is not finite has a factor that is not.
    pub fn fill(&mut self, pool: &Pool, numbers: &[f32], columns: usize) {
        self.columns = columns;
        self.bytes.resize(numbers.len(), 0);
        self.groups.resize(numbers.len() / GROUP, Group::default());
        let level = pool.level();
        let quantise = |first: usize, bytes: &mut [i8], groups: &mut [Group]| {
            let numbers = &numbers[first..first + bytes.len()];
            level.run(Quantise {
                numbers,
                bytes,
                groups,
            });
        };
        if numbers.len() < 2 * NUMBERS_WORTH_SHARING || pool.threads() == 1 {
            return quantise(0, &mut self.bytes, &mut self.groups);
        }
        let groups = super::pool::Pieces::new(&mut self.groups);
        pool.run_pieces(&mut self.bytes, NUMBERS_WORTH_SHARING, |piece, bytes| {
            let first = piece * NUMBERS_WORTH_SHARING;
            #[expect(unsafe_code, reason = "each task has other groups")]
            // SAFETY: pieces are whole groups and do not overlap.
            let groups = unsafe { groups.piece(first / GROUP, bytes.len() / GROUP) };
            quantise(first, bytes, groups);
        });
    }
}

struct Quantise<'a> {
    numbers: &'a [f32],
    bytes: &'a mut [i8],
    groups: &'a mut [Group],
}

impl Job for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<T: Tier>(self, tier: T) {
        let groups = self
            .numbers
            .chunks_exact(GROUP)
            .zip(self.bytes.chunks_exact_mut(GROUP));
        for ((numbers, bytes), group) in groups.zip(self.groups) {
            // As whole numbers, magnitudes of floats are in their own order, and what is no number is the greatest.
            let greatest = numbers.iter().fold(0, |greatest, number| {
                (number.to_bits() & 0x7fff_ffff).max(greatest)
            });
            let greatest = f32::from_bits(greatest);
            let inverse = if greatest > 0.0 && greatest.is_finite() {
                127.0 / greatest
            } else {
                0.0
            };
            // The least magnitudes have no finite inverse.
            let inverse = if inverse.is_finite() { inverse } else { 0.0 };
            let factor = greatest / 127.0;
            for half in 0..GROUP / LANES {
                #[expect(unsafe_code, reason = "loads and stores of a tier go through pointers")]
                // SAFETY: both slices have 32 numbers.
                unsafe {
                    let scaled = tier.multiply(
                        tier.load(numbers.as_ptr().add(half * LANES)),
                        tier.splat(inverse),
                    );
                    // Zero for what is no number: its group's factor says so.
                    let inside = tier.greater(scaled, tier.splat(-127.0));
                    let inside = tier.lesser(inside, tier.splat(127.0));
                    tier.store_bytes(bytes.as_mut_ptr().add(half * LANES), inside);
                }
            }
            let sum = |half: &[i8]| half.iter().map(|byte| i32::from(*byte)).sum::<i32>();
            let sums = [sum(&bytes[..LANES]), sum(&bytes[LANES..])];
            *group = Group {
                factor,
                scaled_sum: factor * (sums[0] + sums[1]) as f32,
                sums,
            };
        }
    }
}

#[cfg(test)]
mod tests;
