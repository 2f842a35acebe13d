//! The composition of a storm: its devices and models, and the faults that are part of it. All drawn from the seed.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::super::random::Random;
use pool::{
    Bytes, DeviceId, DeviceReading, IdleYields, KeepHotScope, KindId, Layout, Limits, Link, Loader,
    LoaderId, ModelId, ModelSpec, NodeId, NodeSpan, Parking, Priority, Scaling, Span, UNTIL_NEEDED,
    reading_interval,
};

/// The enabled features of this world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// Readings have times; memory of ended processes is returned late.
    pub measured: bool,
    /// The interval between two readings while memory is awaited, and otherwise.
    pub settle_period: Span,
    pub period: Span,
    /// The maximum age of a reading when it reaches the pool.
    pub lag: Span,
    /// Processes hold more than they reserved.
    pub growth: bool,
    pub cordons: bool,
    /// Number of device failures.
    pub troubles: u64,
    pub remembered: bool,
    /// Figures are measured and learned.
    pub learns: bool,
    /// The host memory that sleeping engines may use together; zero if engines cannot sleep.
    pub host: Bytes,
    /// Weights are fetched over a network.
    pub fetches: bool,
}

impl Conditions {
    pub fn new(random: &mut Random) -> Conditions {
        let measured = random.chance(400);
        Conditions {
            measured,
            settle_period: [reading_interval(true, true), Span(500), Span(3_000)]
                [random.below(4).saturating_sub(1) as usize],
            period: Span::from_secs(random.between(20, 300)),
            lag: Span(random.below(400)),
            growth: measured && random.chance(400),
            cordons: random.chance(400),
            troubles: if random.chance(250) {
                random.between(1, 3)
            } else {
                0
            },
            remembered: random.chance(250),
            learns: random.chance(300),
            host: if random.chance(400) {
                Bytes(random.between(8, 400) * Bytes::GIB)
            } else {
                Bytes::ZERO
            },
            fetches: random.chance(300),
        }
    }

    /// Conditions without failures.
    pub fn calm(random: &mut Random) -> Conditions {
        Conditions {
            measured: random.chance(300),
            settle_period: reading_interval(true, true),
            period: Span::from_secs(60),
            lag: Span(50),
            growth: false,
            cordons: false,
            troubles: 0,
            remembered: false,
            learns: false,
            host: Bytes::ZERO,
            fetches: false,
        }
    }
}

pub(super) fn devices(random: &mut Random) -> BTreeMap<DeviceId, DeviceReading> {
    let nodes = random.between(1, 2);
    let large = random.chance(150);
    let per_node = random.between(1, if large { 8 } else { 4 });
    let kinds = if random.chance(400) { 2 } else { 1 };
    let mut devices = BTreeMap::new();
    for node in 0..nodes {
        let total = Bytes([24, 40, 80, 141][random.below(4) as usize] * Bytes::GIB);
        for _ in 0..per_node {
            let reading = DeviceReading {
                name: format!("gpu{}", devices.len()),
                node: NodeId(node as u32),
                kind: KindId(random.below(kinds) as u32),
                total,
                headroom: Bytes(total.0 / 20),
                ..DeviceReading::default()
            };
            devices.insert(DeviceId(devices.len() as u32), reading);
        }
    }
    devices
}

/// Many devices on several nodes. Often all devices of a node are alike. Other processes hold a part of some or most devices, in
/// equal or different amounts.
pub(super) fn many_devices(random: &mut Random) -> BTreeMap<DeviceId, DeviceReading> {
    let nodes = random.between(5, 12);
    let kinds = random.between(1, 3);
    let held = [0, 300, 900][random.below(3) as usize];
    let in_tenths = random.chance(500);
    let mut devices = BTreeMap::new();
    for node in 0..nodes {
        let total = Bytes([24, 40, 80, 141][random.below(4) as usize] * Bytes::GIB);
        for _ in 0..random.between(4, 8) {
            let foreign = match (random.chance(held), in_tenths) {
                (false, _) => 0,
                (true, true) => total.0 / 10 * random.between(1, 9),
                (true, false) => random.below(total.0 / 10 * 9),
            };
            let reading = DeviceReading {
                name: format!("gpu{}", devices.len()),
                node: NodeId(node as u32),
                kind: KindId(random.below(kinds) as u32),
                total,
                headroom: Bytes(total.0 / 20),
                foreign: Bytes(foreign),
                ..DeviceReading::default()
            };
            devices.insert(DeviceId(devices.len() as u32), reading);
        }
    }
    devices
}

/// Islands of two or four devices per node, in some worlds.
pub(super) fn links(
    random: &mut Random,
    devices: &BTreeMap<DeviceId, DeviceReading>,
) -> Vec<(DeviceId, DeviceId, Link)> {
    if random.chance(500) {
        return Vec::new();
    }
    let island = [2, 4][random.below(2) as usize];
    let mut links = Vec::new();
    for (&one, reading) in devices {
        for (&other, there) in devices.range(DeviceId(one.0 + 1)..) {
            if reading.node != there.node {
                continue;
            }
            let near = one.0 / island == other.0 / island;
            links.push((one, other, if near { Link::NvLink } else { Link::SameRoot }));
        }
    }
    links
}

/// `spread` is the maximum number of devices of a replica.
pub(super) fn models(
    random: &mut Random,
    devices: u64,
    spread: u64,
    most: u64,
) -> BTreeMap<ModelId, ModelSpec> {
    let count = random.between(2, most);
    let loaders = if random.chance(400) {
        random.between(1, 2)
    } else {
        0
    };
    let choosy = random.chance(300);
    let growing = random.chance(300);
    (0..count)
        .map(|nth| {
            let mut spec = model(random, nth, spread);
            if loaders > 0 && random.chance(800) {
                spec.loader = Some(Loader {
                    loader: LoaderId(random.below(loaders) as u32),
                    takes: Span(random.between(500, spec.reload.0 * 3 / 2)),
                });
            }
            if choosy && random.chance(400) {
                let some = random.between(1, devices);
                let allowed: BTreeSet<DeviceId> = (0..some)
                    .map(|_| DeviceId(random.below(devices) as u32))
                    .collect();
                spec.allowed = Some(allowed);
            }
            if growing && random.chance(500) {
                spec.wider = wider(&spec);
            }
            (ModelId(nth as u32), spec)
        })
        .collect()
}

/// Most engines fall asleep faster than they load; some keep a large part of their devices.
pub(super) fn parking(random: &mut Random, spec: &ModelSpec) -> Option<Parking> {
    if random.chance(250) {
        return None;
    }
    let weights = spec.bytes_per_device.0 / 100 * random.between(30, 90);
    Some(Parking {
        host: Bytes(weights * u64::from(spec.devices_per_replica.max(1))),
        resident_per_device: Bytes(random.below(3) * Bytes::GIB / 2),
        wakes_in: Span(random.between(100, spec.reload.0)),
    })
}

/// Parts of some models on the host, in half of the worlds with sleepers. Some exceed the host, and some are mapped from a file.
pub(super) fn parts(seed: u64, host: Bytes, specs: &mut BTreeMap<ModelId, ModelSpec>) {
    let mut random = Random::new(seed ^ 0x9a97);
    if host == Bytes::ZERO || random.chance(500) {
        return;
    }
    for spec in specs
        .values_mut()
        .filter(|spec| spec.nodes == NodeSpan::One)
    {
        if random.chance(500) {
            continue;
        }
        let most = if random.chance(150) { 150 } else { 50 };
        spec.host_bytes = Bytes(host_total(host).0 / 100 * random.between(1, most));
        if random.chance(400) {
            spec.host_mapped = Bytes(spec.host_bytes.0 / 100 * random.between(50, 100));
        }
    }
}

/// The memory of a host whose sleepers may take `capacity`.
pub(super) fn host_total(capacity: Bytes) -> Bytes {
    Bytes(capacity.0 * 2)
}

/// Twice and four times as many devices, each with somewhat more than its share.
fn wider(spec: &ModelSpec) -> Vec<Layout> {
    [2, 4]
        .map(|times| Layout {
            devices: spec.devices_per_replica * times,
            bytes_per_device: Bytes(spec.bytes_per_device.0 * 11 / (10 * u64::from(times))),
        })
        .into()
}

fn model(random: &mut Random, nth: u64, spread: u64) -> ModelSpec {
    ModelSpec {
        name: format!("model-{nth}"),
        priority: Priority([0, 0, 0, 1, 1, 2, 3][random.below(7) as usize]),
        devices_per_replica: if random.chance(200) {
            random.between(1, spread) as u32
        } else {
            1
        },
        bytes_per_device: Bytes(random.between(4, 80) * Bytes::GIB),
        need_is_fixed: random.chance(150),
        keep_hot: if random.chance(50) {
            UNTIL_NEEDED
        } else {
            Span::from_secs(random.between(20, 900))
        },
        keep_hot_scope: if random.chance(400) {
            KeepHotScope::Device
        } else {
            KeepHotScope::Model
        },
        min_resident: random
            .chance(700)
            .then(|| Span::from_secs(random.between(1, 20))),
        max_turn: random
            .chance(500)
            .then(|| Span::from_secs(random.between(5, 60))),
        queue_limit: random.between(1, 40) as u32,
        queue_timeout: Span::from_secs(random.between(10, 300)),
        seats_per_replica: random.between(1, 8) as u32,
        load_deadline: Span::from_secs(random.between(60, 400)),
        reload: Span::from_secs(random.between(1, 60)),
        reload_is_guess: random.chance(400),
        engine: if random.chance(500) { "one" } else { "other" },
        stop_grace: Span::from_secs(random.between(1, 10)),
        scaling: random.chance(120).then(|| Box::new(scaling(random))),
        ..ModelSpec::default()
    }
}

/// Models that scale, quickly or slowly.
fn scaling(random: &mut Random) -> Scaling {
    let least = random.between(1, 2) as u32;
    let most = least + random.between(0, 2) as u32;
    Scaling {
        least,
        initial: random.between(u64::from(least), u64::from(most)) as u32,
        most,
        target_milli: random.between(200, 5_000),
        look_back: Span::from_secs(random.between(1, 60)),
        up_delay: Span::from_secs(random.below(60)),
        down_delay: Span::from_secs(random.below(200)),
        up_factor_milli: random.between(100, 2_000),
        down_factor_milli: random.between(100, 2_000),
    }
}

/// Numbers from an earlier run: sometimes valid, sometimes invalid.
pub(super) fn numbers(random: &mut Random) -> Vec<u64> {
    let any = |random: &mut Random| match random.below(4) {
        0 => u64::MAX - random.below(3),
        1 => 0,
        2 => random.below(1 << 40),
        _ => random.below(u64::MAX),
    };
    if random.chance(300) {
        let length = random.below(40);
        return (0..length).map(|_| any(random)).collect();
    }
    // The version, then three sections, each after its length.
    let mut numbers = vec![1];
    for length in [28, 5, 1] {
        numbers.push(length);
        numbers.extend((0..length).map(|_| any(random)));
    }
    numbers
}

/// Targets for the time to the first token of some priorities, in every third world.
pub(super) fn targets(seed: u64) -> BTreeMap<Priority, Span> {
    let mut random = Random::new(seed ^ 0x7461_7267);
    let mut targets = BTreeMap::new();
    if random.chance(333) {
        for priority in [0, 1, 2].map(Priority) {
            if random.chance(600) {
                targets.insert(priority, Span(random.between(500, 120_000)));
            }
        }
    }
    targets
}

pub(super) fn limits(random: &mut Random) -> Limits {
    Limits {
        preempt_drain: Span::from_secs(random.between(1, 40)),
        idle_yields: match random.below(3) {
            0 => IdleYields::Auto,
            1 => IdleYields::After(Span::from_secs(random.between(1, 120))),
            _ => IdleYields::Never,
        },
        ..Limits::default()
    }
}
