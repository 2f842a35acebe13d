//! The account of device time in the terms of the controller: names of devices, stages of replicas, and rows for the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::devices::Devices;
use crate::gates::{GateUse, SeatRequests};
use crate::view::DeviceTime;
use ledger::{Account, DeviceState, GateNews, Life, Part, Payer, Sight, Tenancy};
use pool::{
    Bytes, DeviceId, DeviceMemory, Holding, ModelId, NodeId, ReplicaKeys, ReplicaState, Span, Time,
};
use store::{LedgerAmount, LedgerBatch, LedgerKey};

/// A longer time without a controller is not counted.
const UNSEEN_MAX: Span = Span::from_secs(31 * 24 * 3600);
const HOUR_MS: u64 = 3_600_000;

#[derive(Default)]
pub(crate) struct Ledger {
    pub account: Account,
    /// The time up to which earlier controllers have written the parts of each device.
    seen: BTreeMap<String, Time>,
    /// The time this controller started, by the machine's clock.
    started: Time,
    /// Another controller with devices of the same names may use the store.
    is_shared: bool,
    /// The devices of the account, by their names in the store.
    devices: BTreeMap<DeviceId, String>,
    /// Their names in this process, by those in the store.
    names: BTreeMap<String, String>,
    /// Times before this controller that are not written yet.
    unseen: Vec<Unseen>,
    /// The time of each device by state since the start.
    totals: Arc<BTreeMap<(String, &'static str), DeviceTime>>,
}

/// A time of a device that no controller has seen, by the machine's clock.
struct Unseen {
    device: String,
    bytes: u64,
    from: Time,
    to: Time,
}

impl Ledger {
    pub fn new(seen: BTreeMap<String, Time>, started: Time, is_shared: bool) -> Ledger {
        Ledger {
            seen,
            started,
            is_shared,
            ..Ledger::default()
        }
    }

    /// The time of each device by state since the start, as last taken.
    pub fn totals(&self) -> Arc<BTreeMap<(String, &'static str), DeviceTime>> {
        Arc::clone(&self.totals)
    }

    /// Takes a reading of a gate.
    pub fn gate(&mut self, now: Time, seats: &ReplicaKeys, used: GateUse) {
        let news = GateNews {
            busy_ms: used.busy.0,
            in_flight: used.in_flight,
            last_key: used.last_key,
            reports_tokens: used.reports_tokens,
            keys: Some(&seats.keys),
            batches: &used.batches,
        };
        self.account.gate(now, seats.replica, &news);
    }

    /// A device that an earlier controller has seen is not known until this one started. A node that joins later was away.
    fn begins(&mut self, device: String, total: Bytes) {
        let to = self.started;
        let seen = self.seen.remove(&device).filter(|from| *from < to);
        if let Some(from) = seen.filter(|from| to.since(*from) <= UNSEEN_MAX) {
            let bytes = total.0;
            self.unseen.push(Unseen {
                device,
                bytes,
                from,
                to,
            });
        }
    }

    /// Takes the devices and their memory.
    pub fn devices(&mut self, now: Time, all: &[DeviceMemory], known: &Devices) {
        let is_shared = self.is_shared;
        let name = |memory: &DeviceMemory| {
            let info = &known.get(memory.device)?.info;
            Some(stored_name(
                &info.name,
                (info.node, &info.node_name),
                is_shared,
            ))
        };
        let is_known = |memory: &DeviceMemory| self.devices.contains_key(&memory.device);
        if self.devices.len() != all.len() || !all.iter().all(is_known) {
            let new = all
                .iter()
                .filter(|memory| !self.devices.contains_key(&memory.device));
            let new: Vec<(String, Bytes)> = new
                .filter_map(|memory| Some((name(memory)?, memory.total)))
                .collect();
            for (name, total) in new {
                self.begins(name, total);
            }
            let named = |memory: &DeviceMemory| Some((memory.device, name(memory)?));
            self.devices = all.iter().filter_map(named).collect();
            let name_here = |(id, stored): (&DeviceId, &String)| (stored.clone(), known.name(*id));
            self.names = self.devices.iter().map(name_here).collect();
        }
        let names = &self.devices;
        let state =
            |memory: &DeviceMemory| Some(state_of(memory, names.get(&memory.device)?, known));
        self.account.devices(now, all.iter().filter_map(state));
    }

    /// The parts since the last call, as rows of this hour and day. `name` gives the payer's name in the store.
    pub fn take(
        &mut self,
        now: Time,
        wall: Time,
        (hour, day): (i64, i64),
        day_of: impl Fn(Time) -> i64,
        name: impl Fn(Payer) -> String,
    ) -> LedgerBatch {
        let mut rows: Vec<(LedgerKey, LedgerAmount)> = Vec::new();
        for unseen in std::mem::take(&mut self.unseen) {
            let mut from = unseen.from;
            while from < unseen.to {
                let end = Time((from.0 / HOUR_MS + 1) * HOUR_MS).min(unseen.to);
                let ms = end.since(from).0;
                let mut part = Part::unseen(&unseen.device, ms);
                part.byte_seconds = unseen.bytes.saturating_mul(ms / 1_000);
                rows.push(row(part, to_hour(from), day_of(from), &name));
                from = end;
            }
        }
        let parts = self.account.take(now);
        let names = &self.names;
        let here: BTreeSet<&String> = names.values().collect();
        let totals = Arc::make_mut(&mut self.totals);
        totals.retain(|(device, _), _| here.contains(device));
        for part in &parts {
            let Some(name) = names.get(&part.device) else {
                continue;
            };
            let total = totals.entry((name.clone(), part.state.name()));
            let total = total.or_default();
            total.ms += part.device_ms;
            total.energy_mj += part.energy_mj;
            total.energy_ms += part.energy_ms;
        }
        let row = |part| row(part, hour, day, &name);
        rows.extend(parts.into_iter().map(row));
        let mut batch = LedgerBatch::default();
        for (key, amount) in rows {
            if self.names.contains_key(&key.device) {
                batch.see(&key.device, wall);
            }
            batch.add(key, amount);
        }
        batch
    }
}

/// The name of a device in the store. Names of other nodes' devices begin with the name of their node.
fn stored_name(name: &str, (node, machine): (NodeId, &str), is_shared: bool) -> String {
    if is_shared && node == NodeId(0) {
        format!("{machine}/{name}")
    } else {
        name.to_owned()
    }
}

pub(super) fn to_hour(at: Time) -> i64 {
    i64::try_from(at.0 / HOUR_MS).unwrap_or(i64::MAX)
}

fn row(
    part: Part,
    hour: i64,
    day: i64,
    name: impl Fn(Payer) -> String,
) -> (LedgerKey, LedgerAmount) {
    let key = LedgerKey {
        hour,
        day,
        device: part.device,
        model: part.model,
        payer: name(part.payer),
        state: part.state.name().to_owned(),
    };
    let amount = LedgerAmount {
        device_ms: part.device_ms,
        byte_seconds: part.byte_seconds.into(),
        energy_mj: part.energy_mj,
        energy_ms: part.energy_ms,
    };
    (key, amount)
}

pub(super) fn state_of<'a>(
    memory: &DeviceMemory,
    name: &'a str,
    known: &Devices,
) -> DeviceState<'a> {
    let device = known.get(memory.device);
    let is_read = device.is_some_and(|device| device.used.is_some() && device.stale.is_none());
    let sight = if memory.is_silent {
        Sight::Silent
    } else if is_read {
        Sight::Known
    } else {
        Sight::Stale
    };
    DeviceState {
        device: memory.device,
        name,
        total: memory.total,
        foreign: memory.foreign,
        is_cordoned: memory.is_cordoned,
        sight,
    }
}

pub(super) fn tenancy<'a>(holding: Holding<'a>, seats: &SeatRequests) -> Tenancy<'a> {
    let life = match holding.state {
        ReplicaState::Planned | ReplicaState::Launching => Life::Loading,
        ReplicaState::Ready | ReplicaState::Draining => Life::Serving,
        ReplicaState::Asleep => Life::Asleep,
        ReplicaState::Parking | ReplicaState::Stopping => Life::Leaving,
    };
    let shares = holding.shares.iter();
    Tenancy {
        replica: holding.replica,
        model: holding.model,
        name: holding.name,
        life,
        devices: shares.map(|share| (share.device, share.bytes)).collect(),
        host: (holding.host.0 > 0).then_some((holding.node, holding.host)),
        is_administrators: holding.is_kept,
        loaded_for: if life == Life::Loading {
            loaded_for(holding.model, seats)
        } else {
            Payer::Unassigned
        },
    }
}

/// The key whose request has waited longest for the model. Without a waiting request, an administrator has loaded it.
fn loaded_for(model: ModelId, seats: &SeatRequests) -> Payer {
    let waiting = seats.values().filter(|request| request.model == model);
    let first = waiting.min_by_key(|request| request.came);
    first.map_or(Payer::Administrator, |request| Payer::Key(request.user.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_two_controllers_of_one_store_have_different_names() {
        let own = |machine| stored_name("gpu0", (NodeId(0), machine), true);
        assert_ne!(own("one"), own("other"));
        assert_eq!(stored_name("gpu0", (NodeId(0), "one"), false), "gpu0");
        let of_node = stored_name("rack/gpu0", (NodeId(3), "rack"), true);
        assert_eq!(of_node, "rack/gpu0");
    }

    #[test]
    fn a_node_that_joins_late_was_unknown_only_until_the_controller_started() {
        let seen = [("gpu0", 1_000), ("rack/gpu0", 2_000), ("newer", 70_000)];
        let seen = seen.map(|(name, at)| (name.to_owned(), Time(at)));
        let mut ledger = Ledger::new(BTreeMap::from(seen), Time(60_000), false);
        let names = ["gpu0", "rack/gpu0", "newer", "never seen", "rack/gpu0"];
        for name in names {
            ledger.begins(name.to_owned(), Bytes(10));
        }
        let name = |payer: Payer| payer.to_string();
        let late = Time(3_000_000);
        let batch = ledger.take(late, late, (0, 0), |_| 0, name);
        let unseen = batch.parts().map(|(key, amount)| {
            assert_eq!(key.state, "not_known");
            (key.device.as_str(), amount.device_ms)
        });
        assert!(unseen.eq([("gpu0", 59_000), ("rack/gpu0", 58_000)]));
    }

    #[test]
    fn time_without_a_controller_is_divided_into_hours_and_days() {
        let mut ledger = Ledger::default();
        ledger.unseen.push(Unseen {
            device: "gpu0".to_owned(),
            bytes: 10,
            from: Time(23 * HOUR_MS + 1_800_000),
            to: Time(25 * HOUR_MS + 60_000),
        });
        let day_of = |at: Time| to_hour(at) / 24;
        let mut take = || {
            let name = |payer: Payer| payer.to_string();
            ledger.take(Time(0), Time(0), (30, 1), day_of, name)
        };
        let batch = take();
        let hours = batch.parts().map(|(key, amount)| {
            assert_eq!(key.state, "not_known");
            (key.hour, key.day, amount.device_ms, amount.byte_seconds)
        });
        let expected = [
            (23, 0, 1_800_000, 18_000),
            (24, 1, 3_600_000, 36_000),
            (25, 1, 60_000, 600),
        ];
        assert!(hours.eq(expected));
        assert!(take().is_empty());
    }
}
