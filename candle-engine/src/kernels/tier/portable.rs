//! Sixteen lanes in plain Rust: the reference for the other tiers, and the fallback for other processors.

#![expect(
    unsafe_code,
    reason = "the trait's loads and stores go through pointers"
)]

use half::{bf16, f16};

use super::lanes::{Job, LANES, Tier};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

type Floats = [f32; LANES];
type Ints = [i32; LANES];
type Bytes = [u8; 64];

#[inline(always)]
fn each(function: impl Fn(usize) -> f32) -> Floats {
    std::array::from_fn(function)
}

#[inline(always)]
fn each_byte(function: impl Fn(usize) -> u8) -> Bytes {
    std::array::from_fn(function)
}

/// Applies `shift` to each 32-bit number and its quarter.
#[inline(always)]
fn shifted(value: Bytes, shift: impl Fn(u32, usize) -> u32) -> Bytes {
    let mut result = [0; 64];
    for lane in 0..LANES {
        let number = u32::from_le_bytes(std::array::from_fn(|byte| value[4 * lane + byte]));
        result[4 * lane..4 * lane + 4].copy_from_slice(&shift(number, lane / 4).to_le_bytes());
    }
    result
}

// SAFETY, for every block here: the caller of an unsafe function guarantees that the pointers are valid.
impl Tier for Portable {
    const MOST_ROWS: usize = 1;

    type Floats = Floats;
    type Ints = Ints;
    type Bytes = Bytes;

    fn apart<J: Job>(self, job: J) -> J::Output {
        job.run(self)
    }
    #[inline(always)]
    fn prefetch(self, _from: *const u8) {}
    #[inline(always)]
    fn splat(self, value: f32) -> Floats {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Floats {
        unsafe { from.cast::<Floats>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, count: usize) -> Floats {
        each(|lane| {
            if lane < count {
                unsafe { from.add(lane).read_unaligned() }
            } else {
                0.0
            }
        })
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Floats {
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        each(|lane| f16::from_bits(bits[lane]).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> Floats {
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        each(|lane| bf16::from_bits(bits[lane]).to_f32())
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Floats) {
        unsafe { to.cast::<Floats>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, value: Floats, count: usize) {
        for (lane, number) in value.iter().enumerate().take(count) {
            unsafe { to.add(lane).write_unaligned(*number) }
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16, value: Floats) {
        let bits: [u16; LANES] = std::array::from_fn(|lane| f16::from_f32(value[lane]).to_bits());
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(bits) }
    }
    #[inline(always)]
    fn add(self, a: Floats, b: Floats) -> Floats {
        each(|lane| a[lane] + b[lane])
    }
    #[inline(always)]
    fn subtract(self, a: Floats, b: Floats) -> Floats {
        each(|lane| a[lane] - b[lane])
    }
    #[inline(always)]
    fn multiply(self, a: Floats, b: Floats) -> Floats {
        each(|lane| a[lane] * b[lane])
    }
    #[inline(always)]
    fn divide(self, a: Floats, b: Floats) -> Floats {
        each(|lane| a[lane] / b[lane])
    }
    #[inline(always)]
    fn fused(self, a: Floats, b: Floats, c: Floats) -> Floats {
        each(|lane| a[lane].mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    fn greater(self, a: Floats, b: Floats) -> Floats {
        each(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }
    #[inline(always)]
    fn lesser(self, a: Floats, b: Floats) -> Floats {
        each(|lane| if a[lane] < b[lane] { a[lane] } else { b[lane] })
    }
    #[inline(always)]
    fn keep(self, mask: u16, value: Floats, other: Floats) -> Floats {
        each(|lane| {
            if mask >> lane & 1 == 1 {
                value[lane]
            } else {
                other[lane]
            }
        })
    }
    #[inline(always)]
    fn zero_below(self, value: Floats, by: Floats, limit: f32) -> Floats {
        each(|lane| if by[lane] < limit { 0.0 } else { value[lane] })
    }
    #[inline(always)]
    fn round(self, value: Floats) -> Floats {
        each(|lane| value[lane].round_ties_even())
    }
    #[inline(always)]
    fn power_of_two(self, exponent: Floats) -> Floats {
        each(|lane| f32::from_bits((((exponent[lane] as i32) + 127) as u32) << 23))
    }
    #[inline(always)]
    fn sum(self, value: Floats) -> f32 {
        let eight: [f32; 8] = std::array::from_fn(|lane| value[lane] + value[lane + 8]);
        let four: [f32; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
    #[inline(always)]
    fn sum_four(self, values: [Floats; 4]) -> [f32; 4] {
        values.map(|value| self.sum(value))
    }
    #[inline(always)]
    fn greatest(self, value: Floats) -> f32 {
        value.iter().fold(
            value[0],
            |best, lane| if best > *lane { best } else { *lane },
        )
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> Ints {
        [value; LANES]
    }
    #[inline(always)]
    fn ints(self, values: [u32; LANES]) -> Ints {
        values.map(|value| value as i32)
    }
    #[inline(always)]
    fn to_floats(self, value: Ints) -> Floats {
        value.map(|lane| lane as f32)
    }
    #[inline(always)]
    fn halves_to_floats(self, value: Ints) -> Floats {
        value.map(|lane| f16::from_bits(lane as u16).to_f32())
    }
    #[inline(always)]
    fn shift_right_ints(self, value: Ints, bits: u32) -> Ints {
        value.map(|lane| ((lane as u32) >> bits) as i32)
    }
    #[inline(always)]
    fn shift_left_ints(self, value: Ints, bits: u32) -> Ints {
        value.map(|lane| ((lane as u32) << bits) as i32)
    }
    #[inline(always)]
    fn and_ints(self, a: Ints, mask: u32) -> Ints {
        a.map(|lane| ((lane as u32) & mask) as i32)
    }
    #[inline(always)]
    fn or_ints(self, a: Ints, b: Ints) -> Ints {
        std::array::from_fn(|lane| a[lane] | b[lane])
    }
    #[inline(always)]
    fn add_ints(self, a: Ints, b: Ints) -> Ints {
        std::array::from_fn(|lane| a[lane].wrapping_add(b[lane]))
    }
    #[inline(always)]
    fn sum_quarters(self, rows: [Ints; 4]) -> Ints {
        std::array::from_fn(|lane| rows[lane % 4][lane / 4 * 4..][..4].iter().sum())
    }
    #[inline(always)]
    fn by_quarter(self, fours: [Ints; 4]) -> [Ints; 4] {
        std::array::from_fn(|quarter| {
            std::array::from_fn(|row| fours[row / 4][quarter * 4 + row % 4])
        })
    }
    #[inline(always)]
    fn signed_bytes(self, value: Ints) -> Ints {
        value.map(|lane| i32::from(lane as u8 as i8))
    }
    #[inline(always)]
    fn dot(self, sums: Ints, unsigned: Bytes, signed: Bytes) -> Ints {
        std::array::from_fn(|lane| {
            (4 * lane..4 * lane + 4).fold(sums[lane], |sum, byte| {
                sum + i32::from(unsigned[byte]) * i32::from(signed[byte] as i8)
            })
        })
    }
    #[inline(always)]
    fn dot_small(self, sums: Ints, unsigned: Bytes, signed: Bytes) -> Ints {
        self.dot(sums, unsigned, signed)
    }
    #[inline(always)]
    fn dot_bf16(self, sums: Floats, a: Bytes, b: Bytes) -> Floats {
        each(|lane| {
            let number = |bytes: &Bytes, half: usize| {
                let at = 4 * lane + 2 * half;
                bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
            };
            let upper = number(&a, 1).mul_add(number(&b, 1), sums[lane]);
            number(&a, 0).mul_add(number(&b, 0), upper)
        })
    }
    #[inline(always)]
    unsafe fn splat_four(self, from: *const i8) -> Bytes {
        let four = unsafe { from.cast::<[u8; 4]>().read_unaligned() };
        each_byte(|byte| four[byte % 4])
    }
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut i8, value: Floats) {
        let bytes = value.map(|lane| lane.round_ties_even() as i8);
        unsafe { to.cast::<[i8; LANES]>().write_unaligned(bytes) }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> Bytes {
        unsafe { from.cast::<Bytes>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_two(self, low: *const u8, high: *const u8) -> Bytes {
        let halves = unsafe {
            [
                low.cast::<[u8; 32]>().read_unaligned(),
                high.cast::<[u8; 32]>().read_unaligned(),
            ]
        };
        each_byte(|byte| halves[byte / 32][byte % 32])
    }
    #[inline(always)]
    unsafe fn load_pairs(self, low: *const u8, high: *const u8) -> Bytes {
        let halves = unsafe {
            [
                low.cast::<[u8; 16]>().read_unaligned(),
                high.cast::<[u8; 16]>().read_unaligned(),
            ]
        };
        each_byte(|byte| halves[byte / 32][byte % 16])
    }
    #[inline(always)]
    unsafe fn store_all(self, to: *mut u8, value: Bytes) {
        unsafe { to.cast::<Bytes>().write_unaligned(value) }
    }
    #[inline(always)]
    fn shift_right(self, value: Bytes, bits: [u32; 4]) -> Bytes {
        shifted(value, |number, quarter| number >> bits[quarter])
    }
    #[inline(always)]
    fn shift_left(self, value: Bytes, bits: u32) -> Bytes {
        shifted(value, |number, _| number << bits)
    }
    #[inline(always)]
    fn and(self, value: Bytes, mask: u8) -> Bytes {
        value.map(|byte| byte & mask)
    }
    #[inline(always)]
    fn or(self, a: Bytes, b: Bytes) -> Bytes {
        each_byte(|byte| a[byte] | b[byte])
    }
    #[inline(always)]
    fn flip(self, value: Bytes, bits: u8) -> Bytes {
        value.map(|byte| byte ^ bits)
    }
    #[inline(always)]
    fn transpose(self, rows: [Bytes; LANES]) -> [Bytes; LANES] {
        std::array::from_fn(|group| each_byte(|byte| rows[byte / 4][4 * group + byte % 4]))
    }
}
