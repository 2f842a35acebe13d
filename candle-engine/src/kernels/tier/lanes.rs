//! What a processor can do at once: sixteen lanes, in three ways that give the same bits. Kernels are written once over
//! [`Tier`].
//!
//! Every way rounds the same: products are added by fused multiply-add, and sums of lanes are taken by halves. So a result
//! does not depend on the processor that computes it, but for [`Tier::dot_bf16`].

/// Lanes of every vector here.
pub(crate) const LANES: usize = 16;

/// An array of so many values, made in place. `array::from_fn` and `map` would call a closure, which is not always compiled with
/// the instructions of the tier.
macro_rules! array {
    ($count:expr, $first:expr, |$index:ident| $value:expr) => {{
        let mut values = [$first; $count];
        for $index in 0..$count {
            values[$index] = $value;
        }
        values
    }};
}
pub(crate) use array;

/// Work that is compiled once for each tier it is run on. `run` and all that it calls must be `#[inline(always)]`, so that it is compiled
/// with the instructions of the tier.
pub(crate) trait Job {
    type Output;
    fn run<T: Tier>(self, tier: T) -> Self::Output;
}

/// Sixteen numbers at once, or sixty-four bytes.
///
/// Functions that take pointers are unsafe: so many numbers or bytes must lie there; no alignment is needed.
#[expect(
    unsafe_code,
    reason = "loads and stores go through pointers, so that inner loops check no bounds"
)]
pub(crate) trait Tier: Copy {
    /// Rows of input that a kernel takes at once, at most: as many as registers hold. Also keeps down what is compiled.
    const MOST_ROWS: usize;

    type Floats: Copy;
    type Ints: Copy;
    /// Sixty-four bytes: four of each lane.
    type Bytes: Copy;

    /// Runs a job as a function of its own. A compiler that sees too many loops at once keeps their numbers in memory instead of
    /// registers, which makes an inner loop several times slower.
    fn apart<J: Job>(self, job: J) -> J::Output;

    /// Asks for bytes that will be read soon; any address will do.
    fn prefetch(self, from: *const u8);

    fn splat(self, value: f32) -> Self::Floats;
    unsafe fn load(self, from: *const f32) -> Self::Floats;
    /// The first `count` lanes, the rest zero.
    unsafe fn load_part(self, from: *const f32, count: usize) -> Self::Floats;
    unsafe fn load_f16(self, from: *const u16) -> Self::Floats;
    unsafe fn load_bf16(self, from: *const u16) -> Self::Floats;
    unsafe fn store(self, to: *mut f32, value: Self::Floats);
    unsafe fn store_part(self, to: *mut f32, value: Self::Floats, count: usize);
    unsafe fn store_f16(self, to: *mut u16, value: Self::Floats);
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn subtract(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn multiply(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn divide(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a · b + c`, rounded once.
    fn fused(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The greater of each lane; `b` where either is not a number.
    fn greater(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The less of each lane; `b` where either is not a number.
    fn lesser(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Lanes of `value`, but of `other` where the bit of the lane is not set in `mask`.
    fn keep(self, mask: u16, value: Self::Floats, other: Self::Floats) -> Self::Floats;
    /// `value`, but zero where `by` is less than `limit`.
    fn zero_below(self, value: Self::Floats, by: Self::Floats, limit: f32) -> Self::Floats;
    /// The nearest integers, halves to even.
    fn round(self, value: Self::Floats) -> Self::Floats;
    /// Two to the power of integers from -126 to 127.
    fn power_of_two(self, exponent: Self::Floats) -> Self::Floats;
    /// The sum of all lanes, by halves.
    fn sum(self, value: Self::Floats) -> f32;
    /// The sums of four vectors, each as [`Self::sum`] takes it.
    fn sum_four(self, values: [Self::Floats; 4]) -> [f32; 4];
    /// The greatest lane; whatever where one is not a number.
    fn greatest(self, value: Self::Floats) -> f32;

    fn splat_int(self, value: i32) -> Self::Ints;
    fn ints(self, values: [u32; LANES]) -> Self::Ints;
    fn to_floats(self, value: Self::Ints) -> Self::Floats;
    /// Lanes of 16-bit floats in the lower halves.
    fn halves_to_floats(self, value: Self::Ints) -> Self::Floats;
    fn shift_right_ints(self, value: Self::Ints, bits: u32) -> Self::Ints;
    fn shift_left_ints(self, value: Self::Ints, bits: u32) -> Self::Ints;
    fn and_ints(self, a: Self::Ints, mask: u32) -> Self::Ints;
    fn or_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// The four 32-bit words that lie at a place of each of sixteen rows, word by word.
    ///
    /// # Safety
    /// Sixteen bytes lie there in each of the rows.
    #[inline(always)]
    unsafe fn words(self, rows: &[*const u8; LANES], at: usize) -> [Self::Ints; 4] {
        array!(4, self.splat_int(0), |word| self.ints(array!(
            LANES,
            0,
            |row| {
                let from = rows[row].wrapping_add(at + 4 * word);
                // SAFETY: the caller's promise.
                unsafe { from.cast::<u32>().read_unaligned() }
            }
        )))
    }
    /// Of four rows the sums of each quarter: four lanes of each quarter become four rows.
    fn sum_quarters(self, rows: [Self::Ints; 4]) -> Self::Ints;
    /// What [`Self::sum_quarters`] gave for four times four rows becomes the sums of sixteen rows, quarter by quarter.
    fn by_quarter(self, fours: [Self::Ints; 4]) -> [Self::Ints; 4];
    /// Bytes of the lanes' lowest eight bits, as signed numbers.
    fn signed_bytes(self, value: Self::Ints) -> Self::Ints;
    /// To each lane the dot product of its four unsigned bytes with its four signed ones is added.
    fn dot(self, sums: Self::Ints, unsigned: Self::Bytes, signed: Self::Bytes) -> Self::Ints;
    /// The same, where unsigned bytes are under 64: no sum of two products overflows 16 bits.
    fn dot_small(self, sums: Self::Ints, unsigned: Self::Bytes, signed: Self::Bytes) -> Self::Ints;
    /// To each lane the products of its two numbers of BF16 are added, of the upper half first. Where the processor has an
    /// instruction of its own for that, the last bits of the sum are as it rounds.
    fn dot_bf16(self, sums: Self::Floats, a: Self::Bytes, b: Self::Bytes) -> Self::Floats;
    /// Four bytes in every lane.
    unsafe fn splat_four(self, from: *const i8) -> Self::Bytes;
    /// Rounds to bytes, halves to even; lanes are within -127 and 127.
    unsafe fn store_bytes(self, to: *mut i8, value: Self::Floats);

    unsafe fn load_bytes(self, from: *const u8) -> Self::Bytes;
    /// Thirty-two bytes from each.
    unsafe fn load_two(self, low: *const u8, high: *const u8) -> Self::Bytes;
    /// Sixteen bytes from each, each twice.
    unsafe fn load_pairs(self, low: *const u8, high: *const u8) -> Self::Bytes;
    unsafe fn store_all(self, to: *mut u8, value: Self::Bytes);
    /// Each quarter is shifted by its own count, as 32-bit numbers.
    fn shift_right(self, value: Self::Bytes, bits: [u32; 4]) -> Self::Bytes;
    fn shift_left(self, value: Self::Bytes, bits: u32) -> Self::Bytes;
    fn and(self, value: Self::Bytes, mask: u8) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    fn flip(self, value: Self::Bytes, bits: u8) -> Self::Bytes;
    /// Sixteen rows of sixteen groups of four bytes become sixteen groups of sixteen rows.
    fn transpose(self, rows: [Self::Bytes; LANES]) -> [Self::Bytes; LANES];
}
