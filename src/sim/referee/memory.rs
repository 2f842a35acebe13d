//! The referee's record of devices: held and unreturned memory, devices out of service (M2–M5, M7), and what is being read from
//! each disk or link.
//! One file because reserved, returned and read bytes are one account.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Referee, ReplicaRecord};
use pool::{
    Bytes, DeviceId, DeviceReading, KindId, Limits, ModelId, NodeId, ReplicaId, Share, Span, Tier,
    Time,
};

/// The state of a device.
#[derive(Clone, Debug)]
pub(super) struct DeviceMemory {
    pub node: NodeId,
    pub kind: KindId,
    pub capacity: Bytes,
    pub measured: bool,
    pub cordoned: bool,
    /// The memory that other processes really held when the last reading known to the pool was taken.
    pub foreign: Bytes,
    /// The memory that each replica held beyond its share at that time.
    excess: BTreeMap<ReplicaId, Bytes>,
    last_taken: Time,
    last_end: Option<Time>,
    /// The memory that others were known to hold at that time.
    foreign_at_end: Bytes,
    /// The time a process last ended or its memory was returned.
    last_change: Option<Time>,
    lingering: BTreeMap<ReplicaId, Lingering>,
}

/// Memory of an ended process that has not been returned.
#[derive(Clone, Debug)]
struct Lingering {
    /// The amount, as far as the pool can know.
    bytes: Bytes,
    ended: Time,
}

impl DeviceMemory {
    pub fn new(reading: &DeviceReading, measured: bool) -> DeviceMemory {
        DeviceMemory {
            node: reading.node,
            kind: reading.kind,
            capacity: reading.total.saturating_sub(reading.headroom),
            measured,
            cordoned: false,
            foreign: reading.foreign,
            excess: BTreeMap::new(),
            last_taken: Time(0),
            last_end: None,
            foreign_at_end: Bytes::ZERO,
            last_change: None,
            lingering: BTreeMap::new(),
        }
    }

    /// Memory that a launch must not use: what a reading has shown, and memory of processes that ended too recently (M4).
    fn unavailable(&self, now: Time, patience: Span) -> Bytes {
        let lingers = self
            .lingering
            .values()
            .filter(|ended| ended.ended < self.last_taken || now.since(ended.ended) < patience)
            .map(|ended| ended.bytes)
            .sum();
        self.foreign + self.all_excess() + lingers
    }

    pub fn excess_of(&self, replica: ReplicaId) -> Bytes {
        self.excess.get(&replica).copied().unwrap_or_default()
    }

    fn all_excess(&self) -> Bytes {
        self.excess.values().copied().sum()
    }

    /// The most memory that a plan may treat as used: everything not known to be free.
    pub fn at_most_unavailable(&self) -> Bytes {
        let lingers = self
            .lingering
            .values()
            .map(|lingering| lingering.bytes)
            .sum();
        self.foreign + self.all_excess() + lingers
    }

    /// Its memory changed without a process ending.
    pub fn changed(&mut self, now: Time) {
        self.last_end = Some(now);
        self.last_change = Some(now);
    }

    /// Returns true if the pool knows of all changes. While a process's memory is awaited, memory that others took at the same time
    /// may count as not returned by that process (M4).
    pub fn is_certain(&self) -> bool {
        let patience = Limits::default().release_wait;
        let is_distinct = self.foreign <= self.foreign_at_end
            || self
                .last_end
                .is_none_or(|end| end + patience < self.last_taken);
        let is_known = self.last_change.is_none_or(|at| at < self.last_taken);
        self.lingering.is_empty() && is_known && is_distinct
    }
}

impl Referee {
    /// A reading reaches the pool; other processes really held `foreign` when it was taken.
    pub fn reading(&mut self, device: DeviceId, reading: &DeviceReading, foreign: Bytes) {
        let excess: BTreeMap<ReplicaId, Bytes> = reading
            .own
            .iter()
            .filter_map(|(replica, held)| {
                let seen = self.replicas.get(replica)?;
                let share = seen.share_when(device, reading.taken)?;
                Some((*replica, held.saturating_sub(share)))
            })
            .collect();
        let memory = self.device_memory(device);
        let taken = reading.taken.unwrap_or_default();
        // A reading from before the end of a process does not show who holds which memory after it.
        if memory.measured && memory.last_end.is_some_and(|end| taken <= end) {
            memory.foreign = memory.foreign.min(foreign);
        } else {
            memory.foreign = foreign;
        }
        memory.excess = excess;
        memory.last_taken = taken;
    }

    /// The process has really ended. `lingers` is the memory not returned on each device.
    pub fn process_ended(&mut self, replica: ReplicaId, now: Time, lingers: &[(DeviceId, Bytes)]) {
        let Some(seen) = self.replicas.remove(&replica) else {
            return;
        };
        let shares = seen.shares.clone();
        self.ended.insert(replica, seen);
        for (device, bytes) in lingers {
            let share = shares.iter().find(|share| share.device == *device);
            let reserved = share.map(|share| share.bytes).unwrap_or_default();
            let memory = self.device_memory(*device);
            let known = reserved + memory.excess.remove(&replica).unwrap_or_default();
            let bytes = known.min(*bytes);
            memory
                .lingering
                .insert(replica, Lingering { bytes, ended: now });
            // While an earlier process's memory is awaited, memory that others took since cannot be distinguished either.
            let patience = Limits::default().release_wait;
            let waits = memory.last_end.is_some_and(|end| now <= end + patience);
            memory.foreign_at_end = if waits {
                memory.foreign_at_end.min(memory.foreign)
            } else {
                memory.foreign
            };
            memory.last_end = Some(now);
            memory.last_change = Some(now);
        }
    }

    pub fn memory_returned(&mut self, now: Time, device: DeviceId, replica: ReplicaId) {
        let memory = self.device_memory(device);
        memory.lingering.remove(&replica);
        memory.last_change = Some(now);
    }

    /// The shares of living processes on a device.
    pub(super) fn held(&self, device: DeviceId) -> Bytes {
        self.replicas
            .values()
            .flat_map(|seen| &seen.shares)
            .filter(|share| share.device == device)
            .map(|share| share.bytes)
            .sum()
    }

    pub(super) fn launched(
        &mut self,
        now: Time,
        replica: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) {
        self.begins(now, replica);
        self.placement_is_allowed(replica, model, placement);
        self.takes(now, replica, placement);
        let loader = self.specs[&model].loader;
        if loader.is_some() {
            self.reads_alone(now, replica, model, placement);
        }
        let seen = ReplicaRecord {
            model,
            shares: placement.to_vec(),
            launched: now,
            ready: None,
            closed: None,
            stopping: None,
            idle_since: None,
            marked: false,
            stays_open: false,
            used: false,
            reads_until: loader.map_or(now, |loader| now + loader.takes),
            sleeper: None,
            due: None,
        };
        if self.replicas.insert(replica, seen).is_some() {
            self.broken.push(format!("{replica} was launched twice"));
        }
        self.host_suffices(replica);
    }

    /// Adds these shares to the replica.
    pub(super) fn takes(&mut self, now: Time, replica: ReplicaId, shares: &[Share]) {
        let patience = self.limits.release_wait;
        for share in shares {
            let held = self.held(share.device) + share.bytes;
            let memory = &self.devices[&share.device];
            let (unavailable, capacity) = (memory.unavailable(now, patience), memory.capacity);
            if held > capacity {
                self.broken.push(format!(
                    "M3: with {replica} {} holds {held} of {capacity}",
                    share.device
                ));
            } else if held + unavailable > capacity {
                self.broken.push(format!(
                    "M4: {replica} takes {} of {}, where {unavailable} is not free and {held} of {capacity} would be given to replicas ({memory:?})",
                    share.bytes, share.device
                ));
            }
            if self.devices[&share.device].cordoned {
                self.broken.push(format!(
                    "M7: {replica} is launched on {}, which is out of service",
                    share.device
                ));
            }
        }
    }

    fn placement_is_allowed(&mut self, replica: ReplicaId, model: ModelId, placement: &[Share]) {
        let spec = &self.specs[&model];
        let mut wrong = Vec::new();
        let mut devices: Vec<DeviceId> = placement.iter().map(|share| share.device).collect();
        devices.sort_unstable();
        devices.dedup();
        if devices.len() != placement.len() || devices.is_empty() {
            wrong.push("the same device twice".to_owned());
        }
        let mut nodes: Vec<NodeId> = devices
            .iter()
            .map(|device| self.devices[device].node)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() > 1 {
            wrong.push(format!("over {} nodes", nodes.len()));
        }
        if let Some(allowed) = &spec.allowed
            && !devices.iter().all(|device| allowed.contains(device))
        {
            wrong.push(format!("{devices:?} of {allowed:?}"));
        }
        let count = devices.len() as u32;
        let ordered = self
            .loads
            .values()
            .any(|(_, load)| load.model == model && load.devices == Some(count));
        let figured = spec.devices_per_replica.max(1) == count
            || spec.wider.iter().any(|layout| layout.devices == count);
        if !ordered && !figured {
            wrong.push(format!(
                "{count} devices without an order or a layout for it"
            ));
        }
        for what in wrong {
            self.broken.push(format!("M5: {replica} {what}"));
        }
    }

    /// Only one load at a time reads from a disk or link of a node.
    fn reads_alone(&mut self, now: Time, load: ReplicaId, model: ModelId, placement: &[Share]) {
        if let Some(other) = self.who_reads(now, model, placement) {
            self.broken.push(format!(
                "loads: {load} begins while {other} reads the same disk"
            ));
        }
    }

    /// The load that has reserved the disk or link from which this model would read.
    fn who_reads(&self, now: Time, model: ModelId, placement: &[Share]) -> Option<ReplicaId> {
        let loader = self.specs[&model].loader?.loader;
        let node = |shares: &[Share]| self.devices[&shares[0].device].node;
        let reads = |seen: &ReplicaRecord| {
            seen.ready.is_none()
                && seen.stopping.is_none()
                && seen.reads_until > now
                && self.specs[&seen.model].loader.map(|loader| loader.loader) == Some(loader)
                && node(&seen.shares) == node(placement)
        };
        let mut all = self.replicas.iter();
        all.find(|(_, seen)| reads(seen)).map(|(&id, _)| id)
    }

    /// At the end of a step, no planned load waits although its memory is free. A load that stops while it reads may keep the disk
    /// until it is gone.
    pub fn step_ends(&mut self, now: Time) {
        let room = |share: &Share| {
            let memory = &self.devices[&share.device];
            let taken = memory.at_most_unavailable() + self.held(share.device) + share.bytes;
            !memory.cordoned
                && (!memory.measured || memory.is_certain())
                && taken <= memory.capacity
        };
        let stops = |model: ModelId| {
            let loader = self.specs[&model].loader.map(|loader| loader.loader);
            let same = |seen: &ReplicaRecord| {
                loader.is_some()
                    && self.specs[&seen.model].loader.map(|loader| loader.loader) == loader
                    && seen.stopping.is_some()
                    && seen.ready.is_none()
            };
            self.replicas.values().any(same)
        };
        let idle = self.planned.iter().filter(|(load, planned)| {
            self.kept.contains(load)
                && planned.shares.iter().all(room)
                && self
                    .who_reads(now, planned.model, &planned.shares)
                    .is_none()
                && !stops(planned.model)
                && !self.has_part(planned.model)
        });
        let wrong: Vec<String> = idle
            .map(|(load, planned)| {
                format!(
                    "loads: {load} of {} could begin and does not",
                    planned.model
                )
            })
            .collect();
        self.broken.extend(wrong);
    }

    pub(super) fn loads_from(&mut self, now: Time, replica: ReplicaId, tier: Tier) {
        if let Some(seen) = self.replicas.get_mut(&replica)
            && tier < Tier::Disk
        {
            seen.reads_until = now;
        }
    }

    pub(super) fn cordoned(&mut self, now: Time, device: DeviceId, cut: bool) {
        self.cordons += 1;
        self.device_memory(device).cordoned = true;
        let drain = if cut {
            Span::ZERO
        } else {
            self.limits.unload_drain
        };
        self.must_go(device, now + drain, "cordoned");
    }

    pub(super) fn device_failed(&mut self, now: Time, device: DeviceId, lost: bool) {
        let before = core::mem::replace(&mut self.device_memory(device).cordoned, true);
        self.cordons += u64::from(!before);
        if lost {
            self.must_go(device, now, "lost");
        } else if !before {
            self.must_go(device, now + self.limits.unload_drain, "failing");
        }
    }

    fn must_go(&mut self, device: DeviceId, due: Time, why: &'static str) {
        let (limits, specs) = (&self.limits, &self.specs);
        for seen in self.replicas.values_mut() {
            if !seen.shares.iter().any(|share| share.device == device) {
                continue;
            }
            // A load may be finished for its waiting requests, and then drains. A replica already draining for a model of equal
            // priority continues to drain, however long it takes.
            let spec = &specs[&seen.model];
            let served = match (why, seen.ready) {
                ("cordoned", None) => Span(spec.load_deadline.0 + limits.unload_drain.0),
                ("cordoned", Some(_)) if !seen.used => limits.unload_drain,
                _ => Span::ZERO,
            };
            if why == "failing" && seen.closed.is_some() {
                continue;
            }
            let due = due + served;
            let sooner = seen.due.is_none_or(|(known, _)| due < known);
            if sooner {
                seen.due = Some((due, why));
            }
        }
    }

    pub(super) fn who_should_be_gone(&mut self, now: Time) {
        let late = |seen: &ReplicaRecord| {
            seen.due
                .filter(|(due, _)| *due < now && seen.stopping.is_none())
        };
        let wrong: Vec<String> = self
            .replicas
            .iter()
            .filter_map(|(replica, seen)| {
                let (due, why) = late(seen)?;
                Some(format!(
                    "M7: {replica} is on a {why} device and had until {due}"
                ))
            })
            .collect();
        self.broken.extend(wrong);
    }
}
