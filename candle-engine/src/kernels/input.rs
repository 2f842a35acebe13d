//! Inputs quantised to bytes: each group of 32 numbers has its own factor, which turns products with quantised weights into integer
//! sums.
//!
//! GGML quantises inputs the same way for Q8_0 and Q4_0, but with 16-bit factors, and in groups of 256 for the K encodings. This
//! module uses the finer groups for all encodings.

use super::pool::Pool;
use super::tier::{Job, LANES, Tier};

/// Numbers that share a factor.
pub(super) const GROUP: usize = 32;

/// Minimum number of values for which rows are shared among threads.
const NUMBERS_WORTH_SHARING: usize = 1 << 14;

/// The factor and sums of a group of 32 numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub(super) struct Group {
    pub factor: f32,
    /// The sum of the quantised bytes, times the factor.
    pub scaled_sum: f32,
    /// The sums of the first and the last 16 bytes.
    pub sums: [i32; 2],
}

/// Rows of numbers, quantised to bytes.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub columns: usize,
    pub bytes: Vec<i8>,
    pub groups: Vec<Group>,
}

impl Input {
    /// Quantises rows of `columns` numbers, a multiple of 32. A group that contains a non-finite number gets a non-finite factor.
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
            #[expect(unsafe_code, reason = "each task has different groups")]
            // SAFETY: pieces are complete groups and do not overlap.
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
            // The bit patterns of float magnitudes sort like the magnitudes, with NaN above everything else.
            let greatest = numbers.iter().fold(0, |greatest, number| {
                (number.to_bits() & 0x7fff_ffff).max(greatest)
            });
            let greatest = f32::from_bits(greatest);
            let inverse = if greatest > 0.0 && greatest.is_finite() {
                127.0 / greatest
            } else {
                0.0
            };
            // The inverse of the smallest magnitudes is infinite.
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
                    // NaN becomes a byte like any other: the group's factor is NaN already.
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
