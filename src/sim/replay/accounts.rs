//! The counts of a replay: waits, loads, evictions, and memory held without use. Shared by the core and all baselines.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;

use super::report::{Attainment, Holding, KEYS_MAX, Report, Tally, Waits};
use super::scenario::Scenario;
use super::spread::Spread;
use super::stay::{Occupied, Stay};
use alloc::vec::Vec;
use pool::{Bytes, DeviceId, KeyId, ModelId, Priority, Record, Span, Time};

#[derive(Debug, Default)]
struct ModelCounts {
    priority: Priority,
    queue_timeout: Span,
    tally: Tally,
    waits: Spread,
    held: u128,
    idle: u128,
}

pub(super) struct Accounts {
    models: Vec<ModelCounts>,
    waits: Spread,
    /// The same with unserved requests, each with its full queue timeout.
    waits_of_all: Spread,
    /// Milliseconds that devices were held, and held while idle.
    device_held: u128,
    device_idle: u128,
    /// The times in which each device held a replica that was awake, and any replica.
    awake: BTreeMap<DeviceId, Occupied>,
    present: BTreeMap<DeviceId, Occupied>,
    /// Byte·milliseconds of host memory held by sleepers.
    host_held: u128,
    devices: u64,
    by_priority: BTreeMap<Priority, Spread>,
    by_key: BTreeMap<KeyId, Spread>,
    targets: BTreeMap<Priority, Attainment>,
    keep_holdings: bool,
    curve_step: Span,
    curve: BTreeMap<u64, (u64, u128)>,
    report: Report,
}

impl Accounts {
    pub fn new(
        policy: &str,
        scenario: &Scenario,
        keep_holdings: bool,
        curve_step: Span,
    ) -> Accounts {
        Accounts {
            models: scenario
                .models
                .iter()
                .map(|spec| ModelCounts {
                    priority: spec.priority,
                    queue_timeout: spec.queue_timeout,
                    ..ModelCounts::default()
                })
                .collect(),
            waits: Spread::default(),
            waits_of_all: Spread::default(),
            device_held: 0,
            device_idle: 0,
            awake: BTreeMap::new(),
            present: BTreeMap::new(),
            host_held: 0,
            devices: scenario.devices.len() as u64,
            by_priority: BTreeMap::new(),
            by_key: BTreeMap::new(),
            targets: scenario
                .limits
                .targets
                .iter()
                .map(|(&priority, &target)| {
                    let attainment = Attainment {
                        target,
                        ..Attainment::default()
                    };
                    (priority, attainment)
                })
                .collect(),
            keep_holdings,
            curve_step,
            curve: BTreeMap::new(),
            report: Report {
                policy: policy.to_owned(),
                from: Time(u64::MAX),
                ..Report::default()
            },
        }
    }

    pub fn arrived(&mut self, model: ModelId, at: Time, cold: bool) {
        let tally = &mut self.models[model.0 as usize].tally;
        tally.requests += 1;
        tally.cold += u64::from(cold);
        self.report.from = self.report.from.min(at);
        self.report.to = self.report.to.max(at);
    }

    pub fn seated(&mut self, model: ModelId, key: KeyId, arrived: Time, now: Time) {
        let wait = now.since(arrived);
        let tally = &mut self.models[model.0 as usize];
        tally.tally.served += 1;
        tally.waits.add(wait);
        self.by_priority
            .entry(tally.priority)
            .or_default()
            .add(wait);
        if self.by_key.len() < KEYS_MAX || self.by_key.contains_key(&key) {
            self.by_key.entry(key).or_default().add(wait);
        }
        if let Some(attainment) = self.targets.get_mut(&tally.priority) {
            if wait <= attainment.target {
                attainment.met += 1;
            } else {
                attainment.missed += 1;
            }
        }
        self.waits.add(wait);
        self.waits_of_all.add(wait);
        self.curve_point(arrived, wait);
    }

    pub fn timed_out(&mut self, model: ModelId, arrived: Time, now: Time) {
        self.models[model.0 as usize].tally.timed_out += 1;
        self.missed_target(model);
        self.waits_of_all.add(now.since(arrived));
        self.curve_point(arrived, now.since(arrived));
    }

    pub fn refused(&mut self, model: ModelId, why: &str) {
        let counts = &mut self.models[model.0 as usize];
        *counts.tally.refused.entry(why.to_owned()).or_default() += 1;
        self.waits_of_all.add(counts.queue_timeout);
        self.missed_target(model);
    }

    fn missed_target(&mut self, model: ModelId) {
        let priority = self.models[model.0 as usize].priority;
        if let Some(attainment) = self.targets.get_mut(&priority) {
            attainment.missed += 1;
        }
    }

    pub fn evicted(&mut self, model: ModelId, why: &str) {
        let evictions = &mut self.models[model.0 as usize].tally.evictions;
        *evictions.entry(why.to_owned()).or_default() += 1;
    }

    pub fn cut(&mut self, requests: u64) {
        self.report.cut += requests;
    }

    pub fn inversion(&mut self) {
        self.report.inversions += 1;
    }

    pub fn broken(&mut self, what: String) {
        self.report.broken.push(what);
    }

    pub fn recorded(&mut self, record: Record) {
        self.report.records.push(record);
    }

    pub fn load_began(&mut self, model: ModelId) {
        self.models[model.0 as usize].tally.loads += 1;
    }

    /// A load that wakes a sleeper.
    pub fn wake_began(&mut self, model: ModelId) {
        self.load_began(model);
        self.models[model.0 as usize].tally.wakes += 1;
    }

    /// The replica is gone; counts what it held.
    pub fn left(&mut self, stay: Stay, now: Time, reason: &str) {
        let held = now.since(stay.from);
        let loading = stay.ready.unwrap_or(now).since(stay.from);
        let idle = Span(stay.idle.0 + stay.idle_since.map_or(0, |since| now.since(since).0));
        let is_asleep = stay.asleep.is_some();
        let devices = stay.devices.len() as u128;
        let bytes = u128::from(stay.bytes_per_device.0) * devices;
        let tally = &mut self.models[stay.model.0 as usize];
        tally.tally.reload = Span(tally.tally.reload.0 + loading.0);
        tally.held += u128::from(held.0) * bytes;
        tally.idle += u128::from(idle.0) * bytes;
        if let Some(host) = stay.asleep {
            self.host_held += u128::from(held.0) * u128::from(host.0);
        } else {
            self.device_held += u128::from(held.0) * devices;
            self.device_idle += u128::from(idle.0) * devices;
        }
        self.report.to = self.report.to.max(now);
        for device in stay.devices.iter().filter(|_| bytes > 0) {
            let present = self.present.entry(*device).or_default();
            present.add(stay.from, now);
            if !is_asleep {
                let awake = self.awake.entry(*device).or_default();
                awake.add(stay.from, now);
            }
        }
        if self.keep_holdings {
            let mut idle_times = stay.idle_times;
            idle_times.extend(stay.idle_since.map(|since| (since, now)));
            for device in stay.devices {
                self.report.holdings.push(Holding {
                    device,
                    model: stay.model,
                    bytes: stay.bytes_per_device,
                    from: stay.from,
                    ready: stay.ready,
                    to: now,
                    reason: reason.to_owned(),
                    idle: idle_times.clone(),
                });
            }
        }
    }

    fn curve_point(&mut self, arrived: Time, wait: Span) {
        if self.curve_step > Span::ZERO {
            let point = self.curve.entry(arrived.0 / self.curve_step.0).or_default();
            point.0 += 1;
            point.1 += u128::from(wait.0);
        }
    }

    pub fn close(mut self) -> Report {
        const GIB_SECOND: u128 = Bytes::GIB as u128 * 1000;
        let whole = |amount: u128, unit: u128| u64::try_from(amount / unit).unwrap_or(u64::MAX);
        let mut all = Tally::default();
        let (mut held, mut idle) = (0, 0);
        for (nth, mut counts) in self.models.into_iter().enumerate() {
            counts.tally.waits = counts.waits.waits();
            counts.tally.held_gib_seconds = whole(counts.held, GIB_SECOND);
            counts.tally.idle_gib_seconds = whole(counts.idle, GIB_SECOND);
            held += counts.held;
            idle += counts.idle;
            add(&mut all, &counts.tally);
            if counts.tally != Tally::default() {
                self.report
                    .by_model
                    .insert(ModelId(nth as u32), counts.tally);
            }
        }
        all.waits = self.waits.waits();
        all.held_gib_seconds = whole(held, GIB_SECOND);
        all.idle_gib_seconds = whole(idle, GIB_SECOND);
        let from = self.report.from.min(self.report.to);
        let held = |devices: &BTreeMap<DeviceId, Occupied>| {
            let each = devices.values().map(|device| device.since(from));
            each.sum::<u128>()
        };
        let (awake, present) = (held(&self.awake), held(&self.present));
        let total = u128::from(self.report.to.since(from).0) * u128::from(self.devices);
        let step = self.curve_step;
        let point = |(nth, (count, sum)): (u64, (u64, u128))| {
            let mean = u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX);
            (Time(nth * step.0), count, Span(mean))
        };
        Report {
            all,
            device_seconds_held: whole(self.device_held, 1000),
            device_seconds_idle: whole(self.device_idle, 1000),
            device_seconds_empty: whole(total.saturating_sub(present), 1000),
            device_seconds_asleep: whole(present.saturating_sub(awake), 1000),
            host_gib_seconds: whole(self.host_held, GIB_SECOND),
            waits_of_all: self.waits_of_all.waits(),
            by_priority: waits_of(self.by_priority),
            by_key: waits_of(self.by_key),
            targets: self.targets,
            wait_curve: self.curve.into_iter().map(point).collect(),
            from,
            devices: self.devices,
            ..self.report
        }
    }
}

fn waits_of<K: Ord>(spreads: BTreeMap<K, Spread>) -> BTreeMap<K, Waits> {
    let spreads = spreads.into_iter();
    spreads.map(|(key, waits)| (key, waits.waits())).collect()
}

fn add(all: &mut Tally, one: &Tally) {
    all.requests += one.requests;
    all.served += one.served;
    all.timed_out += one.timed_out;
    all.cold += one.cold;
    all.loads += one.loads;
    all.wakes += one.wakes;
    all.reload = Span(all.reload.0 + one.reload.0);
    for (why, count) in &one.refused {
        *all.refused.entry(why.clone()).or_default() += count;
    }
    for (why, count) in &one.evictions {
        *all.evictions.entry(why.clone()).or_default() += count;
    }
}
