//! What a storm is made of: its devices and models, and what its administrators come up with.

use std::collections::BTreeMap;

use super::random::Random;
use super::storm::Play;
use crate::pool::{
    Bytes, CleanupScope, Command, DeviceId, DeviceReading, Event, LoadOrder, ModelId, ModelSpec,
    NodeId, OrderId, Override, Priority, Span, Time,
};

impl Play {
    pub(super) fn orders(&mut self, at: Time, order: OrderId) {
        if order.0 == u64::MAX {
            let command = Command::Shutdown {
                drain: Span::from_secs(60),
            };
            return self.feed(at, Event::OrderAsked { order, command });
        }
        let model = ModelId(self.random.below(self.specs.len() as u64) as u32);
        let some =
            |random: &mut Random, low, high| random.chance(400).then(|| random.between(low, high));
        let command = match self.random.below(10) {
            0..=3 => Command::Load(LoadOrder {
                model,
                replicas: self.random.between(1, 3) as u32,
                devices: some(&mut self.random, 1, 3).map(|it| it as u32),
                priority: some(&mut self.random, 0, 3).map(|it| Priority(it as u32)),
                keep_hot: None,
                lease: some(&mut self.random, 60_000, 900_000).map(Span),
                force: self.random.chance(200),
            }),
            4 | 5 => Command::Unload {
                model,
                replica: None,
                now: self.random.chance(300),
            },
            6 => {
                let over = Override {
                    priority: some(&mut self.random, 0, 3).map(|it| Priority(it as u32)),
                    keep_hot: None,
                    expires: some(&mut self.random, 60_000, 900_000).map(|it| at + Span(it)),
                };
                Command::Set { model, over }
            }
            7 => {
                let scope = if self.random.chance(500) {
                    CleanupScope::All
                } else {
                    CleanupScope::Idle
                };
                if scope == CleanupScope::All {
                    self.cleanups.insert(order, ());
                } else {
                    self.referee.night_falls();
                }
                Command::Cleanup {
                    scope,
                    drain: Span::from_secs(self.random.below(600)),
                }
            }
            8 => Command::Reopen,
            _ => Command::Reset,
        };
        self.feed(at, Event::OrderAsked { order, command });
    }
}

pub(super) fn devices(random: &mut Random) -> BTreeMap<DeviceId, DeviceReading> {
    let nodes = random.between(1, 2);
    let per_node = random.between(1, 4);
    let mut devices = BTreeMap::new();
    for node in 0..nodes {
        let total = Bytes([24, 40, 80, 141][random.below(4) as usize] * Bytes::GIB);
        for _ in 0..per_node {
            let reading = DeviceReading {
                name: format!("gpu{}", devices.len()),
                node: NodeId(node as u32),
                total,
                headroom: Bytes(total.0 / 20),
                ..DeviceReading::default()
            };
            devices.insert(DeviceId(devices.len() as u32), reading);
        }
    }
    devices
}

pub(super) fn models(random: &mut Random, devices: u64) -> BTreeMap<ModelId, ModelSpec> {
    let count = random.between(2, 10);
    let model = |random: &mut Random, nth: u64| ModelSpec {
        name: format!("model-{nth}"),
        priority: Priority([0, 0, 0, 1, 1, 2, 3][random.below(7) as usize]),
        devices_per_replica: if random.chance(200) {
            random.between(1, devices) as u32
        } else {
            1
        },
        bytes_per_device: Bytes(random.between(4, 80) * Bytes::GIB),
        keep_hot: Span::from_secs(random.between(20, 900)),
        min_resident: Some(Span::from_secs(random.between(1, 20))),
        max_turn: random
            .chance(500)
            .then(|| Span::from_secs(random.between(5, 60))),
        queue_limit: random.between(1, 40) as u32,
        queue_timeout: Span::from_secs(random.between(10, 300)),
        seats_per_replica: random.between(1, 8) as u32,
        load_deadline: Span::from_secs(random.between(60, 400)),
        reload: Span::from_secs(random.between(1, 60)),
        stop_grace: Span::from_secs(random.between(1, 10)),
        ..ModelSpec::default()
    };
    (0..count)
        .map(|nth| (ModelId(nth as u32), model(random, nth)))
        .collect()
}
