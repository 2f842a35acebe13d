//! Chooses the instruction set this processor computes with.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
mod portable;

pub(super) use lanes::{Job, LANES, Tier, array};
pub(super) use portable::Portable;

/// An instruction set that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Plain,
    /// AVX2 with fused multiply-add and 16-bit floats.
    Avx2,
    /// AVX2 plus dot products of bytes.
    AvxVnni,
    /// AVX-512 with dot products of bytes.
    Avx512,
    /// AVX-512 with dot products of bytes and of BF16.
    Avx512Bf16,
}

impl Level {
    /// The levels this processor supports, the best one last.
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

    /// Runs a job that uses BF16 dot products.
    #[inline]
    pub(super) fn run_bf16<J: Job>(self, job: J) -> J::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => avx512::run_bf16(job),
            _ => self.run(job),
        }
    }

    /// Runs the job with the level's instructions except BF16 dot products, or in plain Rust if the processor does not support the
    /// level.
    #[inline]
    pub(super) fn run<J: Job>(self, job: J) -> J::Output {
        match self {
            Self::Plain => job.run(Portable),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::run::<J, false>(job),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => avx2::run::<J, true>(job),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Avx512Bf16 => avx512::run(job),
            #[cfg(not(target_arch = "x86_64"))]
            _ => job.run(Portable),
        }
    }
}
