//! Models for a workload that only names them: sizes and load times typical of language models, drawn from a seed, and devices that
//! hold a given share of them.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use pool::{Bytes, DeviceId, DeviceReading, Loader, LoaderId, ModelSpec, NodeId, Span};
use sim::replay::Scenario;

/// Gigabytes of language models in use, from 0.8 to 32 billion parameters in two bytes each.
const SIZES_TENTHS_GB: [u64; 12] = [16, 30, 50, 64, 80, 140, 160, 180, 260, 340, 480, 640];
const TENTH_GB: u64 = 100_000_000;
/// Weights are read at two gigabytes per second.
const BYTES_PER_MILLISECOND: u64 = 2_000_000;
/// Start times of engines that start immediately, and of engines that compile and profile first (two in five).
const QUICK_START: Span = Span::from_secs(2);
const SLOW_START: Span = Span::from_secs(25);
const SLOW_PERMILLE: u64 = 400;

/// A model with a drawn size and load time.
pub fn drawn(name: &str, random: &mut Pcg64Mcg) -> ModelSpec {
    let size = SIZES_TENTHS_GB[random.random_range(0..SIZES_TENTHS_GB.len())] * TENTH_GB;
    let start = if random.random_range(0..1000) < SLOW_PERMILLE {
        SLOW_START
    } else {
        QUICK_START
    };
    let reload = Span(start.0 + size / BYTES_PER_MILLISECOND);
    ModelSpec {
        name: name.to_owned(),
        bytes_per_device: Bytes(size),
        need_is_fixed: true,
        reload,
        loader: Some(Loader {
            loader: LoaderId(0),
            takes: reload,
        }),
        keep_hot: Span::from_secs(365 * 86_400),
        queue_timeout: Span::from_secs(3_600),
        queue_limit: 1_000_000,
        ..ModelSpec::default()
    }
}

pub fn seeded(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Equal devices of one node that together hold a share of all models. Each holds at least the largest model.
pub fn devices_for(
    models: &[ModelSpec],
    count: u32,
    share_permille: u64,
) -> Vec<(DeviceId, DeviceReading)> {
    let all: u64 = models.iter().map(|model| model.bytes_per_device.0).sum();
    let largest = models
        .iter()
        .map(|model| model.bytes_per_device.0)
        .max()
        .unwrap_or(0);
    let each = (all / 1000 * share_permille / u64::from(count.max(1))).max(largest);
    devices(count, Bytes(each))
}

pub fn devices(count: u32, each: Bytes) -> Vec<(DeviceId, DeviceReading)> {
    (0..count)
        .map(|nth| {
            let reading = DeviceReading {
                name: format!("gpu{nth}"),
                node: NodeId(nth / 8),
                total: each,
                ..DeviceReading::default()
            };
            (DeviceId(nth), reading)
        })
        .collect()
}

/// A scenario without cleanups or administrators.
pub fn scenario(models: Vec<ModelSpec>, devices: Vec<(DeviceId, DeviceReading)>) -> Scenario {
    Scenario {
        devices,
        models,
        stop_takes: Span(500),
        ..Scenario::default()
    }
}
