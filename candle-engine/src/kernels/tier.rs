//! Chooses the instruction set with which this processor computes.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
mod plain;

pub(super) use lanes::{Job, LANES, Tier, array};
pub(super) use plain::Plain;

/// Which way the processor computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Plain,
    /// AVX2 with fused multiply-add and 16-bit floats.
    Avx2,
    /// The same with dot products of bytes.
    AvxVnni,
    /// AVX-512 with dot products of bytes.
    Avx512,
    /// The same with dot products of BF16.
    Avx512Bf16,
}

impl Level {
    /// All that this processor can do, the best last.
    pub(crate) fn available() -> Vec<Self> {
        let mut levels = vec![Self::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                levels.push(Self::Avx2);
                if is_x86_feature_detected!("avxvnni") {
                    levels.push(Self::AvxVnni);
                }
            }
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                levels.push(Self::Avx512);
                if is_x86_feature_detected!("avx512bf16") {
                    levels.push(Self::Avx512Bf16);
                }
            }
        }
        levels
    }

    pub(crate) fn best() -> Self {
        Self::available().pop().unwrap_or(Self::Plain)
    }

    /// Runs a job that uses products of BF16.
    #[inline]
    pub(super) fn run_bf16<J: Job>(self, job: J) -> J::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => avx512::run_bf16(job),
            _ => self.run(job),
        }
    }

    /// Runs the job with the instructions of the level, but for products of BF16, or plainly where this processor does not
    /// have them.
    #[inline]
    pub(super) fn run<J: Job>(self, job: J) -> J::Output {
        match self {
            Self::Plain => job.run(Plain),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::run::<J, false>(job),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => avx2::run::<J, true>(job),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Avx512Bf16 => avx512::run(job),
            #[cfg(not(target_arch = "x86_64"))]
            _ => job.run(Plain),
        }
    }
}
