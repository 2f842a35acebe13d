//! The operations that kernels are written against, on sixteen lanes. Each instruction set implements [`Tier`], with bit-identical
//! results.
//!
//! All implementations round the same way: products are added by fused multiply-add, and lanes are summed by halves. A result
//! therefore does not depend on the processor, except for [`Tier::dot_bf16`].

/// Number of lanes in every vector.
pub(crate) const LANES: usize = 16;

/// Builds an array in place. `array::from_fn` and `map` would call a closure, which is not always compiled with the tier's
/// instructions.
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

/// Inlined methods of a tier. Functions that are not inlined would be compiled without the tier's instructions.
macro_rules! inlined {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $output:ty $value:block)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: $kind),*) -> $output $value
    )*};
}
pub(crate) use inlined;

/// Work that is compiled once for each tier. `run` and everything it calls must be `#[inline(always)]` to be compiled with the
/// tier's instructions.
pub(crate) trait Job {
    type Output;
    fn run<T: Tier>(self, tier: T) -> Self::Output;
}

/// Vectors of sixteen numbers, or sixty-four bytes.
///
/// Functions that take pointers are unsafe: the numbers or bytes they access must be valid there. Pointers need no alignment.
#[expect(
    unsafe_code,
    reason = "loads and stores go through pointers, which spares inner loops the bounds checks"
)]
pub(crate) trait Tier: Copy {
    /// Maximum number of input rows a kernel takes together: as many as the registers hold. The limit also reduces compile time.
    const MOST_ROWS: usize;

    type Floats: Copy;
    type Ints: Copy;
    /// Sixty-four bytes, four per lane.
    type Bytes: Copy;

    /// Runs a job as a separate function. A compiler that sees too many loops together spills their registers to memory, which
    /// makes an inner loop several times slower.
    fn apart<J: Job>(self, job: J) -> J::Output;

    /// Prefetches the cache line of `from`; any address is allowed.
    fn prefetch(self, from: *const u8);

    fn splat(self, value: f32) -> Self::Floats;
    unsafe fn load(self, from: *const f32) -> Self::Floats;
    /// Loads the first `count` lanes and sets the rest to zero.
    unsafe fn load_part(self, from: *const f32, count: usize) -> Self::Floats;
    unsafe fn load_f16(self, from: *const u16) -> Self::Floats;
    unsafe fn load_bf16(self, from: *const u16) -> Self::Floats;
    unsafe fn store(self, to: *mut f32, value: Self::Floats);
    unsafe fn store_part(self, to: *mut f32, value: Self::Floats, count: usize);
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn subtract(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn multiply(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn divide(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a · b + c`, rounded once.
    fn fused(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The maximum of each lane; `b` if either is NaN.
    fn greater(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The minimum of each lane; `b` if either is NaN.
    fn lesser(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Selects lanes of `value` where the bit in `mask` is set, otherwise lanes of `other`.
    fn keep(self, mask: u16, value: Self::Floats, other: Self::Floats) -> Self::Floats;
    /// Selects lanes of `value`, or zero where `by` is less than `limit`.
    fn zero_below(self, value: Self::Floats, by: Self::Floats, limit: f32) -> Self::Floats;
    /// Rounds to the nearest integers, ties to even.
    fn round(self, value: Self::Floats) -> Self::Floats;
    /// Two to the power of integral lanes from -126 to 127.
    fn power_of_two(self, exponent: Self::Floats) -> Self::Floats;
    /// The sum of all lanes, by halves.
    fn sum(self, value: Self::Floats) -> f32;
    /// The sums of four vectors, each as [`Self::sum`] takes it.
    fn sum_four(self, values: [Self::Floats; 4]) -> [f32; 4];
    /// The greatest lane; unspecified if a lane is NaN.
    fn greatest(self, value: Self::Floats) -> f32;

    fn splat_int(self, value: i32) -> Self::Ints;
    fn ints(self, values: [u32; LANES]) -> Self::Ints;
    fn to_floats(self, value: Self::Ints) -> Self::Floats;
    /// Converts the 16-bit floats in the lower halves of the lanes.
    fn halves_to_floats(self, value: Self::Ints) -> Self::Floats;
    fn shift_right_ints(self, value: Self::Ints, bits: u32) -> Self::Ints;
    fn shift_left_ints(self, value: Self::Ints, bits: u32) -> Self::Ints;
    fn and_ints(self, a: Self::Ints, mask: u32) -> Self::Ints;
    fn or_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Loads four 32-bit words at `at` of each of sixteen rows, word by word.
    ///
    /// # Safety
    /// Sixteen bytes must be readable at `at` in each of the rows.
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
    /// Sums each quarter (four lanes) of four rows; the quarters' sums become four rows.
    fn sum_quarters(self, rows: [Self::Ints; 4]) -> Self::Ints;
    /// Turns four results of [`Self::sum_quarters`] (sixteen rows in all) into the sums of these rows, quarter by quarter.
    fn by_quarter(self, fours: [Self::Ints; 4]) -> [Self::Ints; 4];
    /// Packs the lowest eight bits of the lanes into signed bytes.
    fn signed_bytes(self, value: Self::Ints) -> Self::Ints;
    /// Adds to each lane the dot product of its four unsigned and four signed bytes.
    fn dot(self, sums: Self::Ints, unsigned: Self::Bytes, signed: Self::Bytes) -> Self::Ints;
    /// Like [`Self::dot`], for unsigned bytes below 64: no sum of two products overflows 16 bits.
    fn dot_small(self, sums: Self::Ints, unsigned: Self::Bytes, signed: Self::Bytes) -> Self::Ints;
    /// Adds to each lane the products of its two BF16 numbers, the upper half first. With a hardware instruction, the last bits of
    /// the sum are up to the processor.
    fn dot_bf16(self, sums: Self::Floats, a: Self::Bytes, b: Self::Bytes) -> Self::Floats;
    /// Copies four bytes to every lane.
    unsafe fn splat_four(self, from: *const i8) -> Self::Bytes;
    /// Rounds to bytes, ties to even; lanes must be between -127 and 127.
    unsafe fn store_bytes(self, to: *mut i8, value: Self::Floats);

    unsafe fn load_bytes(self, from: *const u8) -> Self::Bytes;
    /// Loads thirty-two bytes from each pointer.
    unsafe fn load_two(self, low: *const u8, high: *const u8) -> Self::Bytes;
    /// Loads sixteen bytes from each pointer, each twice.
    unsafe fn load_pairs(self, low: *const u8, high: *const u8) -> Self::Bytes;
    unsafe fn store_all(self, to: *mut u8, value: Self::Bytes);
    /// Shifts each quarter by its own count, as 32-bit numbers.
    fn shift_right(self, value: Self::Bytes, bits: [u32; 4]) -> Self::Bytes;
    fn shift_left(self, value: Self::Bytes, bits: u32) -> Self::Bytes;
    fn and(self, value: Self::Bytes, mask: u8) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    fn flip(self, value: Self::Bytes, bits: u8) -> Self::Bytes;
    /// Transposes sixteen rows of sixteen four-byte groups.
    fn transpose(self, rows: [Self::Bytes; LANES]) -> [Self::Bytes; LANES];
}
