//! A seeded random generator.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

pub(crate) fn seeded(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}
