//! Sixteen lanes as one AVX-512 vector, with VNNI's dot products of bytes, and BF16 dot products if the processor has them.

#![expect(
    unsafe_code,
    reason = "instructions that not every processor has, and loads through pointers"
)]

use std::arch::x86_64::*;

use super::lanes::{Job, LANES, Tier, array, inlined};

/// Proof that the processor has AVX-512 F, BW, DQ, VL and VNNI, and BF16 if `BF16`. Only [`run`] creates one.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const BF16: bool>(());

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline(never)]
fn with_features<J: Job>(job: J) -> J::Output {
    job.run(Avx512::<false>(()))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")]
#[inline(never)]
fn with_bf16<J: Job>(job: J) -> J::Output {
    job.run(Avx512::<true>(()))
}

/// Runs the job with AVX-512, or in plain Rust if the processor does not have it.
#[inline]
pub(super) fn run<J: Job>(job: J) -> J::Output {
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
    {
        // SAFETY: the features were just detected.
        unsafe { with_features(job) }
    } else {
        job.run(super::portable::Portable)
    }
}

/// Runs the job with AVX-512 and BF16 dot products, if the processor has them.
#[inline]
pub(super) fn run_bf16<J: Job>(job: J) -> J::Output {
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512bf16")
    {
        // SAFETY: the features were just detected.
        unsafe { with_bf16(job) }
    } else {
        run(job)
    }
}

#[inline(always)]
fn low_lanes(count: usize) -> __mmask16 {
    ((1u32 << count.min(LANES)) - 1) as __mmask16
}

// SAFETY, for every block here: a value of this type proves that the processor has the instructions, and the caller of an unsafe
// function guarantees that the pointers are valid.
impl<const BF16: bool> Tier for Avx512<BF16> {
    const MOST_ROWS: usize = 6;

    type Floats = __m512;
    type Ints = __m512i;
    type Bytes = __m512i;

    fn apart<J: Job>(self, job: J) -> J::Output {
        unsafe {
            if BF16 {
                with_bf16(job)
            } else {
                with_features(job)
            }
        }
    }
    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
    inlined! {
        fn splat(value: f32) -> __m512 { unsafe { _mm512_set1_ps(value) } }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, count: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(low_lanes(count), from) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: __m512) {
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, value: __m512, count: usize) {
        unsafe { _mm512_mask_storeu_ps(to, low_lanes(count), value) }
    }
    inlined! {
        fn add(a: __m512, b: __m512) -> __m512 { unsafe { _mm512_add_ps(a, b) } }
        fn subtract(a: __m512, b: __m512) -> __m512 { unsafe { _mm512_sub_ps(a, b) } }
        fn multiply(a: __m512, b: __m512) -> __m512 { unsafe { _mm512_mul_ps(a, b) } }
        fn divide(a: __m512, b: __m512) -> __m512 { unsafe { _mm512_div_ps(a, b) } }
        fn fused(a: __m512, b: __m512, c: __m512) -> __m512 { unsafe { _mm512_fmadd_ps(a, b, c) } }
        fn greater(a: __m512, b: __m512) -> __m512 { unsafe { _mm512_max_ps(a, b) } }
        fn lesser(a: __m512, b: __m512) -> __m512 { unsafe { _mm512_min_ps(a, b) } }
        fn keep(mask: u16, value: __m512, other: __m512) -> __m512 { unsafe { _mm512_mask_blend_ps(mask, other, value) } }
        fn zero_below(value: __m512, by: __m512, limit: f32) -> __m512 {
            unsafe {
                let stays = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(by, _mm512_set1_ps(limit));
                _mm512_maskz_mov_ps(stays, value)
            }
        }
        fn round(value: __m512) -> __m512 {
            unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(value) }
        }
        fn power_of_two(exponent: __m512) -> __m512 {
            unsafe {
                let biased = _mm512_add_epi32(_mm512_cvttps_epi32(exponent), _mm512_set1_epi32(127));
                _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
            }
        }
        fn sum(value: __m512) -> f32 {
            unsafe {
                let eight = _mm256_add_ps(
                    _mm512_castps512_ps256(value),
                    _mm512_extractf32x8_ps::<1>(value),
                );
                let four = _mm_add_ps(
                    _mm256_castps256_ps128(eight),
                    _mm256_extractf128_ps::<1>(eight),
                );
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
            }
        }
        fn sum_four(values: [__m512; 4]) -> [f32; 4] {
            unsafe {
                let mut four = [_mm_setzero_ps(); 4];
                for place in 0..4 {
                    let low = _mm512_castps512_ps256(values[place]);
                    let eight = _mm256_add_ps(low, _mm512_extractf32x8_ps::<1>(values[place]));
                    four[place] = _mm_add_ps(
                        _mm256_castps256_ps128(eight),
                        _mm256_extractf128_ps::<1>(eight),
                    );
                }
                // Adds lanes 0 and 2, and 1 and 3, of two vectors in one instruction; then adds those two sums of all four.
                let first = _mm_add_ps(
                    _mm_movelh_ps(four[0], four[1]),
                    _mm_movehl_ps(four[1], four[0]),
                );
                let second = _mm_add_ps(
                    _mm_movelh_ps(four[2], four[3]),
                    _mm_movehl_ps(four[3], four[2]),
                );
                let sums = _mm_add_ps(
                    _mm_shuffle_ps::<0b10_00_10_00>(first, second),
                    _mm_shuffle_ps::<0b11_01_11_01>(first, second),
                );
                let mut result = [0.0; 4];
                _mm_storeu_ps(result.as_mut_ptr(), sums);
                result
            }
        }
        fn greatest(value: __m512) -> f32 {
            unsafe {
                let eight = _mm256_max_ps(
                    _mm512_castps512_ps256(value),
                    _mm512_extractf32x8_ps::<1>(value),
                );
                let four = _mm_max_ps(
                    _mm256_castps256_ps128(eight),
                    _mm256_extractf128_ps::<1>(eight),
                );
                let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
            }
        }
        fn splat_int(value: i32) -> __m512i { unsafe { _mm512_set1_epi32(value) } }
        fn ints(values: [u32; LANES]) -> __m512i {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] =
                array!(LANES, 0, |lane| values[lane] as i32);
            unsafe { _mm512_setr_epi32(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) }
        }
        fn to_floats(value: __m512i) -> __m512 { unsafe { _mm512_cvtepi32_ps(value) } }
        fn halves_to_floats(value: __m512i) -> __m512 { unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(value)) } }
        fn shift_right_ints(value: __m512i, bits: u32) -> __m512i {
            unsafe { _mm512_srl_epi32(value, _mm_cvtsi32_si128(bits as i32)) }
        }
        fn shift_left_ints(value: __m512i, bits: u32) -> __m512i {
            unsafe { _mm512_sll_epi32(value, _mm_cvtsi32_si128(bits as i32)) }
        }
        fn and_ints(a: __m512i, mask: u32) -> __m512i { unsafe { _mm512_and_si512(a, _mm512_set1_epi32(mask as i32)) } }
        fn or_ints(a: __m512i, b: __m512i) -> __m512i { unsafe { _mm512_or_si512(a, b) } }
        fn add_ints(a: __m512i, b: __m512i) -> __m512i { unsafe { _mm512_add_epi32(a, b) } }
    }
    #[inline(always)]
    unsafe fn words(self, rows: &[*const u8; LANES], at: usize) -> [__m512i; 4] {
        unsafe {
            // Quarter `n` of the first vector is row `4 n`, of the second row `4 n + 1`, …
            let rows = array!(4, _mm512_setzero_si512(), |row| {
                let quarters = array!(4, _mm_setzero_si128(), |four| {
                    _mm_loadu_si128(rows[4 * four + row].wrapping_add(at).cast())
                });
                let low =
                    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(quarters[0]), quarters[1]);
                let high =
                    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(quarters[2]), quarters[3]);
                _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
            });
            let low = _mm512_unpacklo_epi32(rows[0], rows[1]);
            let high = _mm512_unpackhi_epi32(rows[0], rows[1]);
            let other_low = _mm512_unpacklo_epi32(rows[2], rows[3]);
            let other_high = _mm512_unpackhi_epi32(rows[2], rows[3]);
            [
                _mm512_unpacklo_epi64(low, other_low),
                _mm512_unpackhi_epi64(low, other_low),
                _mm512_unpacklo_epi64(high, other_high),
                _mm512_unpackhi_epi64(high, other_high),
            ]
        }
    }
    inlined! {
        fn sum_quarters(rows: [__m512i; 4]) -> __m512i {
            unsafe {
                let [a, b, c, d] = rows;
                let first = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
                let second = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
                let low = _mm512_unpacklo_epi64(first, second);
                _mm512_add_epi32(low, _mm512_unpackhi_epi64(first, second))
            }
        }
        fn by_quarter(fours: [__m512i; 4]) -> [__m512i; 4] {
            unsafe {
                let [a, b, c, d] = fours;
                let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
                let odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b);
                let other_even = _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d);
                let other_odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d);
                [
                    _mm512_shuffle_i32x4::<0b10_00_10_00>(even, other_even),
                    _mm512_shuffle_i32x4::<0b10_00_10_00>(odd, other_odd),
                    _mm512_shuffle_i32x4::<0b11_01_11_01>(even, other_even),
                    _mm512_shuffle_i32x4::<0b11_01_11_01>(odd, other_odd),
                ]
            }
        }
        fn signed_bytes(value: __m512i) -> __m512i { unsafe { _mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(value)) } }
        fn dot(sums: __m512i, unsigned: __m512i, signed: __m512i) -> __m512i {
            unsafe { _mm512_dpbusd_epi32(sums, unsigned, signed) }
        }
        fn dot_small(sums: __m512i, unsigned: __m512i, signed: __m512i) -> __m512i {
            unsafe { _mm512_dpbusd_epi32(sums, unsigned, signed) }
        }
        fn dot_bf16(sums: __m512, a: __m512i, b: __m512i) -> __m512 {
            unsafe {
                if BF16 {
                    // Reinterprets the same bits as another type; a closure would not always be compiled with the instruction set.
                    return _mm512_dpbf16_ps(
                        sums,
                        std::mem::transmute::<__m512i, __m512bh>(a),
                        std::mem::transmute::<__m512i, __m512bh>(b),
                    );
                }
                let upper = _mm512_set1_epi32(-0x1_0000);
                let sums = _mm512_fmadd_ps(
                    _mm512_castsi512_ps(_mm512_and_si512(a, upper)),
                    _mm512_castsi512_ps(_mm512_and_si512(b, upper)),
                    sums,
                );
                _mm512_fmadd_ps(
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(a)),
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(b)),
                    sums,
                )
            }
        }
    }
    #[inline(always)]
    unsafe fn splat_four(self, from: *const i8) -> __m512i {
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut i8, value: __m512) {
        unsafe {
            let bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(value));
            _mm_storeu_si128(to.cast(), bytes);
        }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_two(self, low: *const u8, high: *const u8) -> __m512i {
        unsafe {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.cast()));
            _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(high.cast()))
        }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, low: *const u8, high: *const u8) -> __m512i {
        unsafe {
            let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(low.cast()));
            let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(high.cast()));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
    }
    #[inline(always)]
    unsafe fn store_all(self, to: *mut u8, value: __m512i) {
        unsafe { _mm512_storeu_si512(to.cast(), value) }
    }
    inlined! {
        fn shift_right(value: __m512i, bits: [u32; 4]) -> __m512i {
            let [a, b, c, d] = bits.map(|count| count as i32);
            unsafe {
                let counts = _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
                _mm512_srlv_epi32(value, counts)
            }
        }
        fn shift_left(value: __m512i, bits: u32) -> __m512i { unsafe { _mm512_sll_epi32(value, _mm_cvtsi32_si128(bits as i32)) } }
        fn and(value: __m512i, mask: u8) -> __m512i { unsafe { _mm512_and_si512(value, _mm512_set1_epi8(mask as i8)) } }
        fn or(a: __m512i, b: __m512i) -> __m512i { unsafe { _mm512_or_si512(a, b) } }
        fn flip(value: __m512i, bits: u8) -> __m512i { unsafe { _mm512_xor_si512(value, _mm512_set1_epi8(bits as i8)) } }
        fn transpose(rows: [__m512i; LANES]) -> [__m512i; LANES] {
            unsafe {
                let zero = _mm512_setzero_si512();
                // Within quarters: four rows at a time give four groups.
                let mut fours = [zero; LANES];
                for four in 0..4 {
                    let [a, b, c, d] = array!(4, zero, |row| rows[4 * four + row]);
                    let low = _mm512_unpacklo_epi32(a, b);
                    let high = _mm512_unpackhi_epi32(a, b);
                    let other_low = _mm512_unpacklo_epi32(c, d);
                    let other_high = _mm512_unpackhi_epi32(c, d);
                    fours[4 * four] = _mm512_unpacklo_epi64(low, other_low);
                    fours[4 * four + 1] = _mm512_unpackhi_epi64(low, other_low);
                    fours[4 * four + 2] = _mm512_unpacklo_epi64(high, other_high);
                    fours[4 * four + 3] = _mm512_unpackhi_epi64(high, other_high);
                }
                // Then quarters: group `4 · quarter + place` is that quarter of `fours[place]`, `[4 + place]`, …
                let mut groups = [zero; LANES];
                for place in 0..4 {
                    let [a, b, c, d] = array!(4, zero, |four| fours[4 * four + place]);
                    let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
                    let odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b);
                    let other_even = _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d);
                    let other_odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d);
                    groups[place] = _mm512_shuffle_i32x4::<0b10_00_10_00>(even, other_even);
                    groups[4 + place] = _mm512_shuffle_i32x4::<0b10_00_10_00>(odd, other_odd);
                    groups[8 + place] = _mm512_shuffle_i32x4::<0b11_01_11_01>(even, other_even);
                    groups[12 + place] = _mm512_shuffle_i32x4::<0b11_01_11_01>(odd, other_odd);
                }
                groups
            }
        }
    }
}
