//! Tracks the replicas and models for which a decision may be due. Code that changes a fact touches what the fact concerns; `plan`
//! examines nothing else. A pure index: `check` proves that no untouched entry is due.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::types::ids::{DeviceId, ModelId, NodeId, ReplicaId, Time};
use crate::types::model::Loader;
use crate::types::replica::Phase;

#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    replicas: BTreeSet<ReplicaId>,
    models: BTreeSet<ModelId>,
    /// The next time at which a decision becomes due for a replica without an event; one entry per replica.
    replica_timers: BTreeSet<(Time, ReplicaId)>,
    timer_of: BTreeMap<ReplicaId, Time>,
    /// The ends of cool-downs.
    model_timers: BTreeSet<(Time, ModelId)>,
    /// Devices on which a blocked demand may have become possible since it was examined.
    grown: BTreeSet<DeviceId>,
    /// Every blocked demand is examined again, on all devices.
    grown_everywhere: bool,
    /// A fact that planned loads may depend on has changed.
    promises_changed: bool,
}

impl Agenda {
    pub fn replicas(&self) -> &BTreeSet<ReplicaId> {
        &self.replicas
    }

    pub fn models(&self) -> &BTreeSet<ModelId> {
        &self.models
    }

    /// Devices on which a blocked demand may have become possible since it was examined.
    pub fn grown(&self) -> &BTreeSet<DeviceId> {
        &self.grown
    }

    pub fn grown_everywhere(&self) -> bool {
        self.grown_everywhere
    }

    pub fn promises_changed(&self) -> bool {
        self.promises_changed
    }

    /// A fact that planned loads may depend on has changed.
    pub fn promises_change(&mut self) {
        self.promises_changed = true;
    }

    pub fn touch_replicas<'a>(&mut self, replicas: impl IntoIterator<Item = &'a ReplicaId>) {
        self.replicas.extend(replicas);
    }

    /// Empties the agenda, and returns the replicas that were on it.
    pub fn clear(&mut self) -> BTreeSet<ReplicaId> {
        self.models.clear();
        self.grown.clear();
        self.grown_everywhere = false;
        self.promises_changed = false;
        core::mem::take(&mut self.replicas)
    }

    pub(crate) fn set_timer(&mut self, replica: ReplicaId, at: Option<Time>) {
        if let Some(old) = self.timer_of.remove(&replica) {
            self.replica_timers.remove(&(old, replica));
        }
        if let Some(at) = at {
            self.replica_timers.insert((at, replica));
            self.timer_of.insert(replica, at);
        }
    }

    pub(crate) fn wake(&self) -> Option<Time> {
        let replica = self.replica_timers.first().map(|(at, _)| *at);
        let model = self.model_timers.first().map(|(at, _)| *at);
        replica.into_iter().chain(model).min()
    }
}

impl Pool {
    pub(crate) fn touch(&mut self, replica: ReplicaId) {
        self.agenda.replicas.insert(replica);
    }

    /// Touches every replica on the devices of this one, because keep-hot may count from the last use of a device (L2).
    pub(crate) fn touch_holders(&mut self, id: ReplicaId) {
        self.touch(id);
        let Some(replica) = self.replicas.get(&id) else {
            return;
        };
        for share in &replica.shares {
            if let Some(device) = self.devices.get(&share.device) {
                self.agenda.replicas.extend(&device.holders);
            }
        }
    }

    /// Touches the model and all its replicas.
    pub(crate) fn touch_model(&mut self, id: ModelId) {
        self.agenda.models.insert(id);
        self.demand_index.touch(id);
        if let Some(model) = self.models.get(&id) {
            self.agenda.replicas.extend(&model.replicas);
        }
    }

    pub(crate) fn touch_everything(&mut self) {
        self.agenda.models.extend(self.models.keys());
        self.demand_index.touch_all(self.models.keys());
        self.agenda.replicas.extend(self.replicas.keys());
        self.agenda.promises_changed = true;
        self.grows_everywhere();
    }

    /// Records that a change of this replica or planned load may unblock a demand.
    pub(crate) fn grows_at(&mut self, replica: ReplicaId) {
        if let Some(found) = self.replicas.get(&replica) {
            for share in &found.shares {
                self.agenda.grown.insert(share.device);
                if let Some(node) = self.host_of(share.device) {
                    self.agenda.grown.extend(self.nodes.devices_of(node));
                }
                // A replica that drains for a load that was dropped may stay if there is memory again.
                if let Some(device) = self.devices.get(&share.device) {
                    self.agenda.replicas.extend(&device.holders);
                }
            }
        }
        self.demand_index.grow();
        self.agenda.promises_changed = true;
    }

    pub(crate) fn grows_at_model(&mut self, id: ModelId) {
        let Some(model) = self.models.get(&id) else {
            return;
        };
        let (replicas, planned) = (model.replicas.clone(), model.planned.clone());
        for replica in replicas {
            self.grows_at(replica);
        }
        for load in planned {
            for share in self.planned[&load].shares.clone() {
                self.grows_on(share.device);
            }
        }
        self.agenda.promises_changed = true;
    }

    pub(crate) fn grows_on(&mut self, device: DeviceId) {
        self.agenda.grown.insert(device);
        if let Some(node) = self.host_of(device) {
            self.agenda.grown.extend(self.nodes.devices_of(node));
        }
        if let Some(ledger) = self.devices.get(&device) {
            self.agenda.replicas.extend(&ledger.holders);
        }
        self.demand_index.grow();
        self.agenda.promises_changed = true;
    }

    /// The node of a device, if the memory of its host also decides what fits on its devices.
    fn host_of(&self, device: DeviceId) -> Option<NodeId> {
        let ledger = self.devices.get(&device);
        ledger
            .filter(|_| self.models.any_divided())
            .map(|ledger| ledger.node)
    }

    pub(crate) fn grows_everywhere(&mut self) {
        self.agenda.grown_everywhere = true;
        self.demand_index.grow();
        self.agenda.promises_changed = true;
    }

    /// Touches what has become due by time alone.
    pub(crate) fn time_passes(&mut self) {
        while let Some(&(at, replica)) = self.agenda.replica_timers.first() {
            if at > self.now {
                break;
            }
            self.agenda.set_timer(replica, None);
            self.agenda.replicas.insert(replica);
            self.read_ends(replica);
        }
        while let Some(&(at, model)) = self.agenda.model_timers.first() {
            if at > self.now {
                break;
            }
            self.agenda.model_timers.pop_first();
            self.touch_model(model);
            // A replica that has been silent for too long does not move (N2), so its planned load may not be needed.
            self.agenda.promises_changed |= self.nodes.any_moves();
        }
    }

    /// Frees the disk or link of a load that has ended or used up its reading time.
    pub(crate) fn read_ends(&mut self, id: ReplicaId) {
        let until = self
            .replicas
            .get(&id)
            .and_then(|replica| match replica.phase {
                Phase::Launching { .. } => replica.reads_until,
                _ => None,
            });
        if until.is_none_or(|until| until <= self.now) {
            self.disks.ends(id);
            self.agenda.promises_changed = true;
            self.demand_index.wake_postponed();
        }
    }

    /// Returns true if the disk or link of a planned load is in use.
    pub(crate) fn loader_busy(&self, load: ReplicaId) -> bool {
        let planned = &self.planned[&load];
        let mut shares = planned.shares.iter();
        shares.any(|share| self.reads_on(planned.model, self.devices[&share.device].node))
    }

    /// Returns true if the model's disk or link is in use on a node.
    pub(crate) fn reads_on(&self, model: ModelId, node: NodeId) -> bool {
        self.is_reading(&self.models[&model], node)
    }

    pub(crate) fn is_reading(&self, model: &Model, node: NodeId) -> bool {
        let loads = |loader: Loader| self.disks.loads_on(node, loader.loader).next();
        model.spec.loader.and_then(loads).is_some()
    }

    /// The time at which the model's disk or link on a node becomes free; `None` if it is free.
    pub(crate) fn disk_free_at(&self, model: ModelId, node: NodeId) -> Option<Time> {
        let loader = self.models[&model].spec.loader?.loader;
        let ends = |load: ReplicaId| self.replicas[&load].reads_until;
        self.disks.loads_on(node, loader).filter_map(ends).max()
    }

    /// Schedules another examination of the model at the end of its cool-down.
    pub(crate) fn look_again(&mut self, at: Time, model: ModelId) {
        self.agenda.model_timers.insert((at, model));
    }
}
