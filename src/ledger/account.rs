//! The account of all devices. The controller reports each change with its time; `take` returns the parts since the last call.

use std::collections::{BTreeMap, BTreeSet};

use super::cut::Cut;
use super::device::{Device, Sight};
use super::energy::EnergyReading;
use super::parts::{Amount, PARTS_MAX, Part, PartKey, Payer, Place, Use};
use super::tenant::{Life, Tenant};
use pool::{Bytes, DeviceId, KeyId, KeySeats, ModelId, NodeId, ReplicaId, Time};

/// A replica is settled early when this many keys have used it.
const KEYS_MAX: usize = 4_096;

/// A device, as the pool knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState<'a> {
    pub device: DeviceId,
    /// The name under which the device is stored.
    pub name: &'a str,
    pub total: Bytes,
    /// The memory of other programs, and of ended engines.
    pub foreign: Bytes,
    pub is_cordoned: bool,
    pub sight: Sight,
}

/// A replica that holds memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenancy<'a> {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub name: &'a str,
    pub life: Life,
    /// The reserved memory on each device.
    pub devices: Vec<(DeviceId, Bytes)>,
    /// The node and the host memory of a sleeping replica.
    pub host: Option<(NodeId, Bytes)>,
    /// An administrator keeps it loaded.
    pub is_administrators: bool,
    /// The payer until the first request.
    pub loaded_for: Payer,
}

/// A reading of a gate.
#[derive(Clone, Debug)]
pub struct GateNews<'a> {
    /// The time with a request inside since the gate was made.
    pub busy_ms: u64,
    pub in_flight: u32,
    /// The key whose request ended last.
    pub last_key: Option<KeyId>,
    /// The engine reports the tokens of requests.
    pub reports_tokens: bool,
    /// The seats of each key since the last reading, if they have changed.
    pub keys: Option<&'a [KeySeats]>,
    /// The part of `keys` that requests of batches take.
    pub batches: &'a [KeySeats],
}

/// The account of all devices and replicas.
#[derive(Debug, Default)]
pub struct Account {
    devices: BTreeMap<DeviceId, Device>,
    tenants: BTreeMap<ReplicaId, Tenant>,
    parts: BTreeMap<PartKey, Amount>,
    models: BTreeMap<ModelId, String>,
    hosts: BTreeMap<NodeId, String>,
    host_carry: BTreeMap<NodeId, u128>,
}

impl Account {
    /// Sets all devices. The account of a device begins when it is first named, and ends when it no longer is.
    pub fn devices<'a>(&mut self, now: Time, all: impl IntoIterator<Item = DeviceState<'a>>) {
        let mut named = BTreeSet::new();
        for state in all {
            named.insert(state.device);
            let new = || Device::new(state.name.to_owned(), now);
            let device = self.devices.entry(state.device).or_insert_with(new);
            device.advance(now);
            device.is_gone = false;
            device.set(state.total, state.foreign, state.is_cordoned, state.sight);
        }
        for (id, device) in &mut self.devices {
            if !named.contains(id) {
                device.advance(now);
                device.is_gone = true;
            }
        }
    }

    /// Takes a reading of a device: its size, the memory of others, and the measured memory of each replica, or `None` if the
    /// device is not measured.
    pub fn measured(
        &mut self,
        now: Time,
        state: &DeviceState<'_>,
        own: Option<&BTreeMap<ReplicaId, Bytes>>,
        (taken, energy): (Time, Option<EnergyReading>),
    ) {
        let Some(device) = self.devices.get_mut(&state.device) else {
            return;
        };
        device.energy.read(taken, energy);
        let changed = device.changed(own);
        // A replica is divided with the memory that it held.
        for replica in changed {
            self.settle(replica, now);
        }
        if let Some(device) = self.devices.get_mut(&state.device) {
            device.advance(now);
            device.measure(own);
            device.set(state.total, state.foreign, state.is_cordoned, state.sight);
        }
    }

    /// Sets all replicas that hold memory.
    pub fn replicas<'a>(&mut self, now: Time, all: impl IntoIterator<Item = Tenancy<'a>>) {
        let mut named = BTreeSet::new();
        for tenancy in all {
            named.insert(tenancy.replica);
            self.replica(now, tenancy);
        }
        let known = self.tenants.keys().copied();
        let gone: Vec<ReplicaId> = known.filter(|id| !named.contains(id)).collect();
        for id in gone {
            self.settle(id, now);
            if let Some(tenant) = self.tenants.remove(&id) {
                for (device, _) in tenant.devices {
                    if let Some(device) = self.devices.get_mut(&device) {
                        device.remove(id);
                    }
                }
            }
        }
    }

    fn replica(&mut self, now: Time, tenancy: Tenancy<'_>) {
        let id = tenancy.replica;
        if let Some(known) = self.tenants.get(&id) {
            let is_same = (tenancy.life == Life::Leaving || tenancy.life == known.life())
                && tenancy.devices == known.devices
                && tenancy.host == known.host
                && tenancy.is_administrators == known.is_administrators;
            if is_same {
                return;
            }
            self.settle(id, now);
        }
        let name = self.models.entry(tenancy.model).or_default();
        if *name != tenancy.name {
            tenancy.name.clone_into(name);
        }
        let new = || Tenant::new(tenancy.model, tenancy.loaded_for, now);
        let tenant = self.tenants.entry(id).or_insert_with(new);
        let before = std::mem::replace(&mut tenant.devices, tenancy.devices.clone());
        tenant.host = tenancy.host;
        tenant.is_administrators = tenancy.is_administrators;
        tenant.live(tenancy.life);
        for (device, _) in before {
            if let Some(known) = self.devices.get_mut(&device)
                && tenancy.devices.iter().all(|(other, _)| *other != device)
            {
                known.advance(now);
                known.remove(id);
            }
        }
        for (device, reserved) in tenancy.devices {
            if let Some(device) = self.devices.get_mut(&device) {
                device.advance(now);
                device.reserve(id, reserved);
            }
        }
    }

    /// Takes a reading of the gate of a replica.
    pub fn gate(&mut self, now: Time, replica: ReplicaId, news: &GateNews<'_>) {
        let Some(tenant) = self.tenants.get_mut(&replica) else {
            return;
        };
        tenant.read(now, news);
        if tenant.keys() > KEYS_MAX {
            self.settle(replica, now);
        }
    }

    /// Divides what the replica has held since it was settled last.
    fn settle(&mut self, id: ReplicaId, now: Time) {
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return;
        };
        let settled = tenant.settle(now);
        let model = tenant.model;
        let mut amounts = Vec::with_capacity(tenant.devices.len() + 1);
        for (device_id, _) in &tenant.devices {
            if let Some(device) = self.devices.get_mut(device_id) {
                device.advance(now);
                amounts.push((Place::Device(*device_id), device.take(id)));
            }
        }
        if let Some((node, bytes)) = tenant.host {
            let byte_ms = u128::from(bytes.0) * u128::from(settled.span_ms);
            amounts.push((Place::Host(node), Amount { ns: 0, byte_ms }));
        }
        for (place, amount) in amounts {
            for (payer, state, piece) in settled.divide(amount) {
                let key = PartKey {
                    place,
                    model: Some(model),
                    payer,
                    state,
                };
                add(&mut self.parts, key, piece);
            }
        }
    }

    /// Names the host memory of a node, for [`Account::take`].
    pub fn host(&mut self, node: NodeId, name: &str) {
        let known = self.hosts.entry(node).or_default();
        if known != name {
            name.clone_into(known);
        }
    }

    /// The parts since the last call. The parts of a device sum to its wall time up to `now`; less than a millisecond is left for
    /// the next call.
    pub fn take(&mut self, now: Time) -> Vec<Part> {
        let replicas: Vec<ReplicaId> = self.tenants.keys().copied().collect();
        for id in replicas {
            self.settle(id, now);
        }
        for (&id, device) in &mut self.devices {
            device.advance(now);
            for (state, amount) in device.take_rest() {
                let key = PartKey {
                    place: Place::Device(id),
                    model: None,
                    payer: Payer::Unassigned,
                    state,
                };
                add(&mut self.parts, key, amount);
            }
        }
        let mut by_place: BTreeMap<Place, Vec<(PartKey, Amount)>> = BTreeMap::new();
        for (key, amount) in std::mem::take(&mut self.parts) {
            by_place.entry(key.place).or_default().push((key, amount));
        }
        let mut parts = Vec::new();
        for (place, amounts) in by_place {
            self.round(place, &amounts, &mut parts);
        }
        self.devices.retain(|_, device| !device.is_gone);
        let tenants = self.tenants.values();
        let models: BTreeSet<ModelId> = tenants.map(|tenant| tenant.model).collect();
        self.models.retain(|id, _| models.contains(id));
        let tenants = self.tenants.values();
        let hosts: BTreeSet<NodeId> = tenants.filter_map(|tenant| Some(tenant.host?.0)).collect();
        self.hosts.retain(|node, _| hosts.contains(node));
        self.host_carry.retain(|node, _| hosts.contains(node));
        parts
    }

    /// Rounds the amounts of a place to milliseconds and byte-seconds, and carries what is left over to the next call.
    fn round(&mut self, place: Place, amounts: &[(PartKey, Amount)], parts: &mut Vec<Part>) {
        let (name, mut passed, (mj, known_ms)) = match place {
            Place::Device(id) => {
                let Some(device) = self.devices.get_mut(&id) else {
                    return;
                };
                (device.name.clone(), device.carry, device.energy.take())
            }
            Place::Host(node) => {
                let name = self.hosts.get(&node).cloned();
                let byte_ms = self.host_carry.get(&node).copied().unwrap_or(0);
                let name = format!("host of {}", name.unwrap_or_else(|| node.to_string()));
                (name, Amount { ns: 0, byte_ms }, (0, 0))
            }
        };
        let all = amounts.iter().map(|(_, amount)| amount.ns).sum();
        let mut energy = Cut::new(u128::from(mj), all);
        let mut known = Cut::new(u128::from(known_ms), all);
        let whole = |amount: Amount| (amount.ns / 1_000_000, amount.byte_ms / 1_000);
        for (key, amount) in amounts {
            let before = whole(passed);
            passed.add(*amount);
            let after = whole(passed);
            let part = Part {
                device: name.clone(),
                model: self.name(key.model),
                payer: key.payer,
                state: key.state,
                device_ms: small(after.0 - before.0),
                byte_seconds: small(after.1 - before.1),
                energy_mj: small(energy.piece(amount.ns)),
                energy_ms: small(known.piece(amount.ns)),
            };
            if part.device_ms + part.energy_mj + part.energy_ms > 0 || part.byte_seconds > 0 {
                parts.push(part);
            }
        }
        let left = Amount {
            ns: passed.ns % 1_000_000,
            byte_ms: passed.byte_ms % 1_000,
        };
        match place {
            Place::Device(id) => {
                if let Some(device) = self.devices.get_mut(&id) {
                    device.carry = left;
                }
            }
            Place::Host(node) => {
                self.host_carry.insert(node, left.byte_ms);
            }
        }
    }

    fn name(&self, model: Option<ModelId>) -> String {
        let name = model.and_then(|model| self.models.get(&model));
        name.cloned().unwrap_or_default()
    }
}

fn small(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Adds to a part. Beyond [`PARTS_MAX`] parts, further payers are counted together.
fn add(parts: &mut BTreeMap<PartKey, Amount>, mut key: PartKey, amount: Amount) {
    if amount.is_zero() {
        return;
    }
    if parts.len() >= PARTS_MAX && matches!(key.payer, Payer::Key(_)) && !parts.contains_key(&key) {
        key.payer = Payer::Others;
    }
    parts.entry(key).or_default().add(amount);
}

impl Part {
    /// A part of a device's time that no controller has seen.
    pub fn unseen(device: &str, ms: u64) -> Part {
        Part {
            device: device.to_owned(),
            model: String::new(),
            payer: Payer::Unassigned,
            state: Use::Unknown,
            device_ms: ms,
            byte_seconds: 0,
            energy_mj: 0,
            energy_ms: 0,
        }
    }
}

#[cfg(test)]
mod tests;
