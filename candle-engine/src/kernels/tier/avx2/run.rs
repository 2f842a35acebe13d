//! Detects the instructions and runs jobs with them.

#![expect(unsafe_code, reason = "functions that not every processor can run")]

use super::Avx2;
use crate::kernels::tier::lanes::Job;
use crate::kernels::tier::portable::Portable;

#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn with_features<J: Job>(job: J) -> J::Output {
    job.run(Avx2::<false>(()))
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
#[inline(never)]
fn with_dot_products<J: Job>(job: J) -> J::Output {
    job.run(Avx2::<true>(()))
}

/// Runs the job with the instructions that `of` proves.
#[inline]
pub(super) fn apart<J: Job, const VNNI: bool>(_of: Avx2<VNNI>, job: J) -> J::Output {
    // SAFETY: a value of this type proves that the processor has the instructions.
    unsafe {
        if VNNI {
            with_dot_products(job)
        } else {
            with_features(job)
        }
    }
}

/// Runs the job with AVX2, or in plain Rust if the processor does not have it.
#[inline]
pub(crate) fn run<J: Job, const VNNI: bool>(job: J) -> J::Output {
    if !(is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c"))
    {
        return job.run(Portable);
    }
    if VNNI && is_x86_feature_detected!("avxvnni") {
        // SAFETY: the features were just detected.
        unsafe { with_dot_products(job) }
    } else {
        // SAFETY: the features were just detected.
        unsafe { with_features(job) }
    }
}
