//! Helpers for sixteen lanes on AVX2: lane masks and transposition.

#![expect(unsafe_code, reason = "instructions that not every processor has")]

use super::super::array;
use super::Avx2;
use std::arch::x86_64::*;

// SAFETY, for every block here: a value of this type proves that the processor has the instructions, and the caller of an unsafe
// function guarantees that the pointers are valid.
impl<const VNNI: bool> Avx2<VNNI> {
    /// Sets the uppermost bit of the first `count` of eight lanes.
    #[inline(always)]
    pub(super) fn low_lanes(self, count: usize) -> __m256i {
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(count.min(8) as i32), lanes)
        }
    }

    /// Loads eight BF16 numbers.
    #[inline(always)]
    pub(super) unsafe fn eight_bf16(self, from: *const u16) -> __m256 {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }

    /// Sums each half (four lanes) of four rows.
    #[inline(always)]
    pub(super) fn sum_fours(self, a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m256i {
        unsafe {
            let first = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            let second = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
            let low = _mm256_unpacklo_epi64(first, second);
            _mm256_add_epi32(low, _mm256_unpackhi_epi64(first, second))
        }
    }

    /// Transposes eight rows of eight four-byte groups.
    #[inline(always)]
    pub(super) fn transpose_eight(self, rows: [__m256i; 8]) -> [__m256i; 8] {
        unsafe {
            let mut fours = [_mm256_setzero_si256(); 8];
            for four in 0..2 {
                let [a, b, c, d] = array!(4, rows[0], |row| rows[4 * four + row]);
                let low = _mm256_unpacklo_epi32(a, b);
                let high = _mm256_unpackhi_epi32(a, b);
                let other_low = _mm256_unpacklo_epi32(c, d);
                let other_high = _mm256_unpackhi_epi32(c, d);
                fours[4 * four] = _mm256_unpacklo_epi64(low, other_low);
                fours[4 * four + 1] = _mm256_unpackhi_epi64(low, other_low);
                fours[4 * four + 2] = _mm256_unpacklo_epi64(high, other_high);
                fours[4 * four + 3] = _mm256_unpackhi_epi64(high, other_high);
            }
            let mut groups = [_mm256_setzero_si256(); 8];
            for place in 0..4 {
                let (a, b) = (fours[place], fours[4 + place]);
                groups[place] = _mm256_permute2x128_si256::<0x20>(a, b);
                groups[4 + place] = _mm256_permute2x128_si256::<0x31>(a, b);
            }
            groups
        }
    }
}
