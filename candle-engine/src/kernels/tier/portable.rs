//! Sixteen lanes in plain Rust: the reference for the other tiers, and the fallback for other processors.

#![expect(
    unsafe_code,
    reason = "the trait's loads and stores go through pointers"
)]

use half::{bf16, f16};

use super::lanes::{Job, LANES, Tier, inlined};

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
    inlined! {
        fn splat(value: f32) -> Floats {
            [value; LANES]
        }
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
    inlined! {
        fn add(a: Floats, b: Floats) -> Floats { each(|lane| a[lane] + b[lane]) }
        fn subtract(a: Floats, b: Floats) -> Floats { each(|lane| a[lane] - b[lane]) }
        fn multiply(a: Floats, b: Floats) -> Floats { each(|lane| a[lane] * b[lane]) }
        fn divide(a: Floats, b: Floats) -> Floats { each(|lane| a[lane] / b[lane]) }
        fn fused(a: Floats, b: Floats, c: Floats) -> Floats { each(|lane| a[lane].mul_add(b[lane], c[lane])) }
        fn greater(a: Floats, b: Floats) -> Floats { each(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] }) }
        fn lesser(a: Floats, b: Floats) -> Floats { each(|lane| if a[lane] < b[lane] { a[lane] } else { b[lane] }) }
        fn keep(mask: u16, value: Floats, other: Floats) -> Floats {
            each(|lane| {
                if mask >> lane & 1 == 1 {
                    value[lane]
                } else {
                    other[lane]
                }
            })
        }
        fn zero_below(value: Floats, by: Floats, limit: f32) -> Floats {
            each(|lane| if by[lane] < limit { 0.0 } else { value[lane] })
        }
        fn round(value: Floats) -> Floats { each(|lane| value[lane].round_ties_even()) }
        fn power_of_two(exponent: Floats) -> Floats {
            each(|lane| f32::from_bits((((exponent[lane] as i32) + 127) as u32) << 23))
        }
        fn sum(value: Floats) -> f32 {
            let eight: [f32; 8] = std::array::from_fn(|lane| value[lane] + value[lane + 8]);
            let four: [f32; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
            (four[0] + four[2]) + (four[1] + four[3])
        }
    }
    #[inline(always)]
    fn sum_four(self, values: [Floats; 4]) -> [f32; 4] {
        values.map(|value| self.sum(value))
    }
    inlined! {
        fn greatest(value: Floats) -> f32 { value.iter().fold(value[0], |best, lane| if best > *lane { best } else { *lane }) }
        fn splat_int(value: i32) -> Ints {
            [value; LANES]
        }
        fn ints(values: [u32; LANES]) -> Ints { values.map(|value| value as i32) }
        fn to_floats(value: Ints) -> Floats { value.map(|lane| lane as f32) }
        fn halves_to_floats(value: Ints) -> Floats { value.map(|lane| f16::from_bits(lane as u16).to_f32()) }
        fn shift_right_ints(value: Ints, bits: u32) -> Ints { value.map(|lane| ((lane as u32) >> bits) as i32) }
        fn shift_left_ints(value: Ints, bits: u32) -> Ints { value.map(|lane| ((lane as u32) << bits) as i32) }
        fn and_ints(a: Ints, mask: u32) -> Ints { a.map(|lane| ((lane as u32) & mask) as i32) }
        fn or_ints(a: Ints, b: Ints) -> Ints { std::array::from_fn(|lane| a[lane] | b[lane]) }
        fn add_ints(a: Ints, b: Ints) -> Ints { std::array::from_fn(|lane| a[lane].wrapping_add(b[lane])) }
        fn sum_quarters(rows: [Ints; 4]) -> Ints { std::array::from_fn(|lane| rows[lane % 4][lane / 4 * 4..][..4].iter().sum()) }
        fn by_quarter(fours: [Ints; 4]) -> [Ints; 4] {
            std::array::from_fn(|quarter| {
                std::array::from_fn(|row| fours[row / 4][quarter * 4 + row % 4])
            })
        }
        fn signed_bytes(value: Ints) -> Ints { value.map(|lane| i32::from(lane as u8 as i8)) }
        fn dot(sums: Ints, unsigned: Bytes, signed: Bytes) -> Ints {
            std::array::from_fn(|lane| {
                (4 * lane..4 * lane + 4).fold(sums[lane], |sum, byte| {
                    sum + i32::from(unsigned[byte]) * i32::from(signed[byte] as i8)
                })
            })
        }
    }
    #[inline(always)]
    fn dot_small(self, sums: Ints, unsigned: Bytes, signed: Bytes) -> Ints {
        self.dot(sums, unsigned, signed)
    }
    inlined! {
        fn dot_bf16(sums: Floats, a: Bytes, b: Bytes) -> Floats {
            each(|lane| {
                let number = |bytes: &Bytes, half: usize| {
                    let at = 4 * lane + 2 * half;
                    bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
                };
                let upper = number(&a, 1).mul_add(number(&b, 1), sums[lane]);
                number(&a, 0).mul_add(number(&b, 0), upper)
            })
        }
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
    inlined! {
        fn shift_right(value: Bytes, bits: [u32; 4]) -> Bytes { shifted(value, |number, quarter| number >> bits[quarter]) }
        fn shift_left(value: Bytes, bits: u32) -> Bytes { shifted(value, |number, _| number << bits) }
        fn and(value: Bytes, mask: u8) -> Bytes { value.map(|byte| byte & mask) }
        fn or(a: Bytes, b: Bytes) -> Bytes { each_byte(|byte| a[byte] | b[byte]) }
        fn flip(value: Bytes, bits: u8) -> Bytes { value.map(|byte| byte ^ bits) }
        fn transpose(rows: [Bytes; LANES]) -> [Bytes; LANES] {
            std::array::from_fn(|group| each_byte(|byte| rows[byte / 4][4 * group + byte % 4]))
        }
    }
}
