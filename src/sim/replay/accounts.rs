//! The counts of a replay: waits, loads, evictions, and memory held without use. Shared by the core and all baselines.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::report::{Holding, KEYS_MAX, Report, Tally, Waits};
use super::scenario::Scenario;
use super::spread::Spread;
use pool::{Bytes, DeviceId, KeyId, ModelId, Priority, Record, Span, Time};

/// The holdings of a replica during its stay.
#[derive(Clone, Debug)]
pub(super) struct Stay {
    pub model: ModelId,
    pub devices: Vec<DeviceId>,
    pub bytes_per_device: Bytes,
    pub from: Time,
    pub ready: Option<Time>,
    /// Set while it is ready and idle.
    pub idle_since: Option<Time>,
    pub idle: Span,
}

impl Stay {
    pub fn new(model: ModelId, devices: Vec<DeviceId>, bytes: Bytes, from: Time) -> Stay {
        Stay {
            model,
            devices,
            bytes_per_device: bytes,
            from,
            ready: None,
            idle_since: None,
            idle: Span::ZERO,
        }
    }

    /// A sleeper holds no counted memory.
    pub fn asleep(model: ModelId, devices: Vec<DeviceId>, from: Time) -> Stay {
        Stay {
            ready: Some(from),
            ..Stay::new(model, devices, Bytes::ZERO, from)
        }
    }

    pub fn is_ready(&mut self, now: Time) {
        self.ready = Some(now);
        self.idle_since = Some(now);
    }

    pub fn busy(&mut self, now: Time) {
        if let Some(since) = self.idle_since.take() {
            self.idle = Span(self.idle.0 + now.since(since).0);
        }
    }

    pub fn idle(&mut self, now: Time) {
        self.idle_since.get_or_insert(now);
    }
}

#[derive(Debug, Default)]
struct ModelCounts {
    priority: Priority,
    tally: Tally,
    waits: Spread,
    held: u128,
    idle: u128,
}

pub(super) struct Accounts {
    models: Vec<ModelCounts>,
    waits: Spread,
    /// Milliseconds that devices were held, and held while idle.
    device_held: u128,
    device_idle: u128,
    /// The times in which each device held a replica, without overlaps.
    occupied: BTreeMap<DeviceId, Vec<(Time, Time)>>,
    devices: u64,
    by_priority: BTreeMap<Priority, Spread>,
    by_key: BTreeMap<KeyId, Spread>,
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
                    ..ModelCounts::default()
                })
                .collect(),
            waits: Spread::default(),
            device_held: 0,
            device_idle: 0,
            occupied: BTreeMap::new(),
            devices: scenario.devices.len() as u64,
            by_priority: BTreeMap::new(),
            by_key: BTreeMap::new(),
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
        self.waits.add(wait);
        self.curve_point(arrived, wait);
    }

    pub fn timed_out(&mut self, model: ModelId, arrived: Time, now: Time) {
        self.models[model.0 as usize].tally.timed_out += 1;
        self.curve_point(arrived, now.since(arrived));
    }

    pub fn refused(&mut self, model: ModelId, why: &str) {
        let refused = &mut self.models[model.0 as usize].tally.refused;
        *refused.entry(why.to_owned()).or_default() += 1;
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

    /// The replica is gone; counts what it held.
    pub fn left(&mut self, stay: Stay, now: Time, reason: &str) {
        let held = now.since(stay.from);
        let loading = stay.ready.unwrap_or(now).since(stay.from);
        let idle = Span(stay.idle.0 + stay.idle_since.map_or(0, |since| now.since(since).0));
        let devices = stay.devices.len() as u128;
        let bytes = u128::from(stay.bytes_per_device.0) * devices;
        let tally = &mut self.models[stay.model.0 as usize];
        tally.tally.reload = Span(tally.tally.reload.0 + loading.0);
        tally.held += u128::from(held.0) * bytes;
        tally.idle += u128::from(idle.0) * bytes;
        self.device_held += u128::from(held.0) * devices;
        self.device_idle += u128::from(idle.0) * devices;
        self.report.to = self.report.to.max(now);
        // A sleeper holds no memory that is counted here.
        if bytes > 0 {
            for device in &stay.devices {
                occupy(self.occupied.entry(*device).or_default(), stay.from, now);
            }
        }
        if self.keep_holdings {
            for device in stay.devices {
                self.report.holdings.push(Holding {
                    device,
                    model: stay.model,
                    bytes: stay.bytes_per_device,
                    from: stay.from,
                    ready: stay.ready,
                    to: now,
                    reason: reason.to_owned(),
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
        let within = |(start, end): &(Time, Time)| u128::from(end.since(from.max(*start)).0);
        let occupied: u128 = self.occupied.values().flatten().map(within).sum();
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
            device_seconds_empty: whole(total.saturating_sub(occupied), 1000),
            by_priority: waits_of(self.by_priority),
            by_key: waits_of(self.by_key),
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

/// Adds a stay to disjoint stays in the order of their ends. No later stay ends earlier.
fn occupy(stays: &mut Vec<(Time, Time)>, mut from: Time, to: Time) {
    while let Some(last) = stays.pop_if(|last| last.1 >= from) {
        from = from.min(last.0);
    }
    stays.push((from, to));
}

fn add(all: &mut Tally, one: &Tally) {
    all.requests += one.requests;
    all.served += one.served;
    all.timed_out += one.timed_out;
    all.cold += one.cold;
    all.loads += one.loads;
    all.reload = Span(all.reload.0 + one.reload.0);
    for (why, count) in &one.refused {
        *all.refused.entry(why.clone()).or_default() += count;
    }
    for (why, count) in &one.evictions {
        *all.evictions.entry(why.clone()).or_default() += count;
    }
}
