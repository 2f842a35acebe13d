//! The sixteen lanes as two vectors of AVX2, with VNNI's dot products of bytes where the processor has them.

#![expect(
    unsafe_code,
    reason = "instructions that not every processor has, and loads through pointers"
)]

mod lanes;
mod run;

pub(super) use run::run;

use std::arch::x86_64::*;

use super::lanes::{Job, LANES, Tier, array};

/// Proof that the processor has AVX2, FMA and F16C, and AVX-VNNI if `VNNI`. Only [`run`](run()) creates one.
#[derive(Clone, Copy)]
pub(super) struct Avx2<const VNNI: bool>(());

#[derive(Clone, Copy)]
pub(super) struct Pair<V>(V, V);

type Floats = Pair<__m256>;
type Ints = Pair<__m256i>;

/// Methods that compute each half from the same half of their vectors, and from scalars after the semicolon. Closures would not
/// always be compiled with the tier's instructions.
macro_rules! halves {
    ($(fn $name:ident($($vector:ident: $kind:ty),+ $(; $($scalar:ident: $scalar_kind:ty),+)?) -> $output:ty $value:block)*) => {$(
        #[inline(always)]
        fn $name(self, $($vector: $kind,)+ $($($scalar: $scalar_kind),+)?) -> $output {
            let (low, high) = (($($vector.0,)+), ($($vector.1,)+));
            let low = {
                let ($($vector,)+) = low;
                $value
            };
            let ($($vector,)+) = high;
            Pair(low, $value)
        }
    )*};
}

// SAFETY, for every block here: a value of this type proves that the processor has the instructions, and the caller of an
// unsafe function guarantees that the pointers are valid.
impl<const VNNI: bool> Tier for Avx2<VNNI> {
    const MOST_ROWS: usize = 2;

    type Floats = Floats;
    type Ints = Ints;
    type Bytes = Ints;

    fn apart<J: Job>(self, job: J) -> J::Output {
        run::apart(self, job)
    }
    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
    #[inline(always)]
    fn splat(self, value: f32) -> Floats {
        let eight = unsafe { _mm256_set1_ps(value) };
        Pair(eight, eight)
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Floats {
        unsafe { Pair(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, count: usize) -> Floats {
        unsafe {
            Pair(
                _mm256_maskload_ps(from, self.low_lanes(count)),
                _mm256_maskload_ps(
                    from.wrapping_add(8),
                    self.low_lanes(count.saturating_sub(8)),
                ),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Floats {
        unsafe {
            Pair(
                _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(from.add(8).cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> Floats {
        unsafe { Pair(self.eight_bf16(from), self.eight_bf16(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Floats) {
        unsafe {
            _mm256_storeu_ps(to, value.0);
            _mm256_storeu_ps(to.add(8), value.1);
        }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, value: Floats, count: usize) {
        unsafe {
            _mm256_maskstore_ps(to, self.low_lanes(count), value.0);
            _mm256_maskstore_ps(
                to.wrapping_add(8),
                self.low_lanes(count.saturating_sub(8)),
                value.1,
            );
        }
    }
    halves! {
        fn add(a: Floats, b: Floats) -> Floats { unsafe { _mm256_add_ps(a, b) } }
        fn subtract(a: Floats, b: Floats) -> Floats { unsafe { _mm256_sub_ps(a, b) } }
        fn multiply(a: Floats, b: Floats) -> Floats { unsafe { _mm256_mul_ps(a, b) } }
        fn divide(a: Floats, b: Floats) -> Floats { unsafe { _mm256_div_ps(a, b) } }
        fn fused(a: Floats, b: Floats, c: Floats) -> Floats { unsafe { _mm256_fmadd_ps(a, b, c) } }
        fn greater(a: Floats, b: Floats) -> Floats { unsafe { _mm256_max_ps(a, b) } }
        fn lesser(a: Floats, b: Floats) -> Floats { unsafe { _mm256_min_ps(a, b) } }
    }
    #[inline(always)]
    fn keep(self, mask: u16, value: Floats, other: Floats) -> Floats {
        unsafe {
            let mask = _mm256_set1_epi32(i32::from(mask));
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let low = _mm256_cmpeq_epi32(_mm256_and_si256(mask, bits), bits);
            let bits = _mm256_slli_epi32::<8>(bits);
            let high = _mm256_cmpeq_epi32(_mm256_and_si256(mask, bits), bits);
            Pair(
                _mm256_blendv_ps(other.0, value.0, _mm256_castsi256_ps(low)),
                _mm256_blendv_ps(other.1, value.1, _mm256_castsi256_ps(high)),
            )
        }
    }
    halves! {
        fn zero_below(value: Floats, by: Floats; limit: f32) -> Floats {
            unsafe { _mm256_and_ps(value, _mm256_cmp_ps::<_CMP_NLT_UQ>(by, _mm256_set1_ps(limit))) }
        }
        fn round(value: Floats) -> Floats {
            unsafe {
                _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(value)
            }
        }
        fn power_of_two(exponent: Floats) -> Floats {
            unsafe {
                let biased =
                    _mm256_add_epi32(_mm256_cvttps_epi32(exponent), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
            }
        }
    }
    #[inline(always)]
    fn sum(self, value: Floats) -> f32 {
        unsafe {
            let eight = _mm256_add_ps(value.0, value.1);
            let four = _mm_add_ps(
                _mm256_castps256_ps128(eight),
                _mm256_extractf128_ps::<1>(eight),
            );
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn sum_four(self, values: [Floats; 4]) -> [f32; 4] {
        array!(4, 0.0, |place| self.sum(values[place]))
    }
    #[inline(always)]
    fn greatest(self, value: Floats) -> f32 {
        unsafe {
            let eight = _mm256_max_ps(value.0, value.1);
            let four = _mm_max_ps(
                _mm256_castps256_ps128(eight),
                _mm256_extractf128_ps::<1>(eight),
            );
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> Ints {
        let eight = unsafe { _mm256_set1_epi32(value) };
        Pair(eight, eight)
    }
    #[inline(always)]
    fn ints(self, values: [u32; LANES]) -> Ints {
        let from = values.as_ptr().cast::<__m256i>();
        unsafe { Pair(_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))) }
    }
    halves! {
        fn to_floats(value: Ints) -> Floats { unsafe { _mm256_cvtepi32_ps(value) } }
        fn halves_to_floats(value: Ints) -> Floats {
            unsafe {
                let low = _mm256_and_si256(value, _mm256_set1_epi32(0xffff));
                let packed = _mm_packus_epi32(
                    _mm256_castsi256_si128(low),
                    _mm256_extracti128_si256::<1>(low),
                );
                _mm256_cvtph_ps(packed)
            }
        }
        fn shift_right_ints(value: Ints; bits: u32) -> Ints { unsafe { _mm256_srl_epi32(value, _mm_cvtsi32_si128(bits as i32)) } }
        fn shift_left_ints(value: Ints; bits: u32) -> Ints { unsafe { _mm256_sll_epi32(value, _mm_cvtsi32_si128(bits as i32)) } }
        fn and_ints(a: Ints; mask: u32) -> Ints { unsafe { _mm256_and_si256(a, _mm256_set1_epi32(mask as i32)) } }
        fn or_ints(a: Ints, b: Ints) -> Ints { unsafe { _mm256_or_si256(a, b) } }
        fn add_ints(a: Ints, b: Ints) -> Ints { unsafe { _mm256_add_epi32(a, b) } }
    }
    #[inline(always)]
    fn sum_quarters(self, rows: [Ints; 4]) -> Ints {
        let [a, b, c, d] = rows;
        Pair(
            self.sum_fours(a.0, b.0, c.0, d.0),
            self.sum_fours(a.1, b.1, c.1, d.1),
        )
    }
    #[inline(always)]
    fn by_quarter(self, fours: [Ints; 4]) -> [Ints; 4] {
        let [a, b, c, d] = fours;
        unsafe {
            [
                Pair(
                    _mm256_permute2x128_si256::<0x20>(a.0, b.0),
                    _mm256_permute2x128_si256::<0x20>(c.0, d.0),
                ),
                Pair(
                    _mm256_permute2x128_si256::<0x31>(a.0, b.0),
                    _mm256_permute2x128_si256::<0x31>(c.0, d.0),
                ),
                Pair(
                    _mm256_permute2x128_si256::<0x20>(a.1, b.1),
                    _mm256_permute2x128_si256::<0x20>(c.1, d.1),
                ),
                Pair(
                    _mm256_permute2x128_si256::<0x31>(a.1, b.1),
                    _mm256_permute2x128_si256::<0x31>(c.1, d.1),
                ),
            ]
        }
    }
    halves! {
        fn signed_bytes(value: Ints) -> Ints { unsafe { _mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(value)) } }
        fn dot(sum: Ints, unsigned: Ints, signed: Ints) -> Ints {
            unsafe {
                if VNNI {
                    _mm256_dpbusd_avx_epi32(sum, unsigned, signed)
                } else {
                    // Products of bytes and their sums do not fit 16 bits: even and odd bytes are widened instead.
                    let even = _mm256_madd_epi16(
                        _mm256_and_si256(unsigned, _mm256_set1_epi16(0xff)),
                        _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(signed)),
                    );
                    let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(unsigned), _mm256_srai_epi16::<8>(signed));
                    _mm256_add_epi32(sum, _mm256_add_epi32(even, odd))
                }
            }
        }
        fn dot_small(sum: Ints, unsigned: Ints, signed: Ints) -> Ints {
            unsafe {
                if VNNI {
                    _mm256_dpbusd_avx_epi32(sum, unsigned, signed)
                } else {
                    let pairs = _mm256_maddubs_epi16(unsigned, signed);
                    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
                }
            }
        }
        fn dot_bf16(sum: Floats, a: Ints, b: Ints) -> Floats {
            unsafe {
                let upper = _mm256_set1_epi32(-0x1_0000);
                let sum = _mm256_fmadd_ps(
                    _mm256_castsi256_ps(_mm256_and_si256(a, upper)),
                    _mm256_castsi256_ps(_mm256_and_si256(b, upper)),
                    sum,
                );
                _mm256_fmadd_ps(
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(a)),
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(b)),
                    sum,
                )
            }
        }
    }
    #[inline(always)]
    unsafe fn splat_four(self, from: *const i8) -> Ints {
        self.splat_int(unsafe { from.cast::<i32>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut i8, value: Floats) {
        unsafe {
            let words =
                _mm256_packs_epi32(_mm256_cvtps_epi32(value.0), _mm256_cvtps_epi32(value.1));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let bytes = _mm_packs_epi16(
                _mm256_castsi256_si128(words),
                _mm256_extracti128_si256::<1>(words),
            );
            _mm_storeu_si128(to.cast(), bytes);
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> Ints {
        unsafe { self.load_two(from, from.add(32)) }
    }
    #[inline(always)]
    unsafe fn load_two(self, low: *const u8, high: *const u8) -> Ints {
        unsafe {
            Pair(
                _mm256_loadu_si256(low.cast()),
                _mm256_loadu_si256(high.cast()),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, low: *const u8, high: *const u8) -> Ints {
        unsafe {
            Pair(
                _mm256_broadcastsi128_si256(_mm_loadu_si128(low.cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(high.cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn store_all(self, to: *mut u8, value: Ints) {
        unsafe {
            _mm256_storeu_si256(to.cast(), value.0);
            _mm256_storeu_si256(to.add(32).cast(), value.1);
        }
    }
    #[inline(always)]
    fn shift_right(self, value: Ints, bits: [u32; 4]) -> Ints {
        let [a, b, c, d] = bits.map(|count| count as i32);
        unsafe {
            Pair(
                _mm256_srlv_epi32(value.0, _mm256_setr_epi32(a, a, a, a, b, b, b, b)),
                _mm256_srlv_epi32(value.1, _mm256_setr_epi32(c, c, c, c, d, d, d, d)),
            )
        }
    }
    #[inline(always)]
    fn shift_left(self, value: Ints, bits: u32) -> Ints {
        self.shift_left_ints(value, bits)
    }
    halves! {
        fn and(value: Ints; mask: u8) -> Ints { unsafe { _mm256_and_si256(value, _mm256_set1_epi8(mask as i8)) } }
        fn or(a: Ints, b: Ints) -> Ints { unsafe { _mm256_or_si256(a, b) } }
        fn flip(value: Ints; bits: u8) -> Ints { unsafe { _mm256_xor_si256(value, _mm256_set1_epi8(bits as i8)) } }
    }
    #[inline(always)]
    fn transpose(self, rows: [Ints; LANES]) -> [Ints; LANES] {
        let zero = rows[0].0;
        let low = self.transpose_eight(array!(8, zero, |row| rows[row].0));
        let high = self.transpose_eight(array!(8, zero, |row| rows[row].1));
        let other_low = self.transpose_eight(array!(8, zero, |row| rows[row + 8].0));
        let other_high = self.transpose_eight(array!(8, zero, |row| rows[row + 8].1));
        array!(LANES, rows[0], |group| if group < 8 {
            Pair(low[group], other_low[group])
        } else {
            Pair(high[group - 8], other_high[group - 8])
        })
    }
}
