//! The memory that replicas and devices hold, and the groups of callers, for the account of device time. Cheaper than a view.

use alloc::collections::BTreeMap;

use crate::facts::state::Pool;
use crate::types::groups::Groups;
use crate::types::ids::{Bytes, DeviceId, ModelId, NodeId, ReplicaId};
use crate::types::replica::Replica;
use crate::types::replica_state::ReplicaState;
use crate::types::share::Share;

/// A replica with the memory that is reserved for it.
#[derive(Clone, Debug)]
pub struct Holding<'a> {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub name: &'a str,
    pub state: ReplicaState,
    pub shares: &'a [Share],
    /// The node of its first device.
    pub node: NodeId,
    /// Host memory that it holds while asleep.
    pub host: Bytes,
    /// An administrator keeps it loaded: its model is always-hot or leased.
    pub is_kept: bool,
}

/// The memory of a device, as far as no replica holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    pub device: DeviceId,
    pub node: NodeId,
    pub total: Bytes,
    /// Memory of other programs, and of ended engines until the driver returns it (M4).
    pub foreign: Bytes,
    pub is_cordoned: bool,
    /// Its node does not respond (N2).
    pub is_silent: bool,
}

impl Pool {
    /// The replicas that hold memory. Planned loads hold none.
    pub fn holdings(&self) -> impl Iterator<Item = Holding<'_>> {
        let mut kept: BTreeMap<ModelId, bool> = BTreeMap::new();
        self.replicas.iter().map(move |(&id, replica)| {
            let model = replica.model;
            let is_kept = *kept.entry(model).or_insert_with(|| self.is_kept(model));
            self.holding(id, replica, is_kept)
        })
    }

    fn holding<'a>(&'a self, id: ReplicaId, replica: &'a Replica, is_kept: bool) -> Holding<'a> {
        let parked = replica.parked.as_ref();
        Holding {
            replica: id,
            model: replica.model,
            name: &self.models[&replica.model].spec.name,
            state: replica.phase.state(),
            shares: &replica.shares,
            node: self.node_of(replica),
            host: parked.map_or(Bytes::ZERO, |parked| parked.host),
            is_kept,
        }
    }

    fn is_kept(&self, model: ModelId) -> bool {
        let is_leased = self.models[&model].lease_left(self.wall()).is_some();
        self.is_protected(model) || is_leased
    }

    /// The groups of callers and their members.
    pub fn groups(&self) -> &Groups {
        self.shares.groups()
    }

    /// The memory of all devices.
    pub fn device_memory(&self) -> impl Iterator<Item = DeviceMemory> + '_ {
        let ids = self.devices.iter().map(|(&id, _)| id);
        ids.filter_map(|id| self.memory_of(id))
    }

    /// The memory of one device.
    pub fn memory_of(&self, id: DeviceId) -> Option<DeviceMemory> {
        let device = self.devices.get(&id)?;
        Some(DeviceMemory {
            device: id,
            node: device.node,
            total: device.total,
            foreign: device.foreign + device.settling,
            is_cordoned: device.cordon.is_some(),
            is_silent: self.nodes.is_silent(device.node),
        })
    }
}
