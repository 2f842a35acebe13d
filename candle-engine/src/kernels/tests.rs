//! Helpers shared by the tests of the kernels.

use std::num::NonZeroUsize;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Level, Pool};
use crate::stored_tensor::{Encoding, StoredTensor};

pub(super) fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut source = StdRng::seed_from_u64(seed);
    (0..count).map(|_| source.random_range(-1.0..1.0)).collect()
}

pub(super) fn pool(threads: usize, level: Level) -> Pool {
    Pool::with_level(NonZeroUsize::new(threads).unwrap(), level)
}

/// Stores the bytes at an odd address.
pub(super) fn stored(encoding: Encoding, shape: &[usize], bytes: &[u8]) -> StoredTensor {
    let mut moved = vec![0];
    moved.extend_from_slice(bytes);
    let range = 1..moved.len();
    StoredTensor::new(encoding, shape.to_vec(), Arc::new(moved), range).unwrap()
}

/// A matrix whose every block is random, factors included.
pub(super) fn random_stored(
    seed: u64,
    encoding: Encoding,
    rows: usize,
    columns: usize,
) -> StoredTensor {
    use half::{bf16, f16};
    let mut source = StdRng::seed_from_u64(seed);
    let mut bytes = vec![0u8; encoding.bytes_of(rows * columns).unwrap()];
    source.fill(&mut bytes[..]);
    for block in bytes.chunks_exact_mut(encoding.block_bytes()) {
        let value: f32 = source.random_range(-1.0..1.0);
        let mut put = |at: usize, scale: f32| {
            let factor = f16::from_f32(source.random_range(0.1..1.0) * scale).to_le_bytes();
            block[at..at + 2].copy_from_slice(&factor);
        };
        match encoding {
            Encoding::F32 => block.copy_from_slice(&value.to_le_bytes()),
            Encoding::F16 => block.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Encoding::Bf16 => block.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
            Encoding::Q8_0 => put(0, 0.01),
            Encoding::Q4_0 => put(0, 0.1),
            Encoding::Q4K | Encoding::Q5K => {
                put(0, 0.01);
                put(2, 0.01);
            }
            Encoding::Q6K => put(208, 0.001),
        }
    }
    stored(encoding, &[rows, columns], &bytes)
}
