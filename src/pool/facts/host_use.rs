//! The host memory that loads with a part of their model there hold, will return, or can take on a node. Makes no choices.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::facts::host::Host;
use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::types::ids::{Bytes, NodeId, ReplicaId};
use crate::types::replica::{Phase, Planned, Replica};

/// The figures of a node's host that decide which loads fit there.
pub(crate) struct HostRoom {
    /// The memory for new loads, as it is and after every replica has left. Negative if it is short.
    free: i128,
    empty: i128,
    /// The part that mapped weights take if they exceed the host, and the size from which they do.
    mapped: Bytes,
    most: Bytes,
}

impl HostRoom {
    /// Returns true if a load may fit that did not fit before. Some replicas may leave for it, or all.
    pub(crate) fn may_hold_more(&self, before: &HostRoom) -> bool {
        self.free > before.free
            || self.empty > before.empty
            || self.mapped < before.mapped
            || self.most < before.most
    }
}

impl Pool {
    pub(crate) fn host_room(&self, node: NodeId) -> HostRoom {
        let Some(host) = self.nodes.host(node) else {
            // A load needs no room on an unknown host.
            return HostRoom {
                free: i128::MAX,
                empty: i128::MAX,
                mapped: Bytes::ZERO,
                most: Bytes::ZERO,
            };
        };
        let unseen = self.host_unseen(node, None);
        let after = |returned: Bytes| match host.balance(returned, unseen) {
            Ok(left) => i128::from(left.0),
            Err(lacks) => -i128::from(lacks.0),
        };
        let holders = self.holders_of_host(node);
        let held = |id: &ReplicaId| self.host_held(*id);
        let leaves = |id: &&ReplicaId| self.replicas.get(id).is_some_and(returns_host);
        let most = host.most().unwrap_or_default();
        HostRoom {
            free: after(holders.iter().filter(leaves).map(held).sum()),
            empty: after(holders.iter().map(held).sum()),
            mapped: most.saturating_sub(self.others_on_host(node)),
            most,
        }
    }

    /// The host memory that a model needs on a node. `None` if it needs none, or if the node's host is unknown.
    pub(crate) fn needs_of_host(&self, model: &Model, node: NodeId) -> Option<Bytes> {
        let bytes = self.part_on(model, node);
        (bytes > Bytes::ZERO && self.nodes.host(node).is_some()).then_some(bytes)
    }

    /// The host memory that a replica of a model takes on a node. Mapped weights take no more than other programs leave there: the
    /// system reads the others from the disk whenever they are needed.
    pub(crate) fn part_on(&self, model: &Model, node: NodeId) -> Bytes {
        let spec = &model.spec;
        let host = self.nodes.host(node);
        let host = host.filter(|_| spec.host_mapped > Bytes::ZERO);
        let Some(most) = host.and_then(Host::most) else {
            return spec.host_bytes;
        };
        let left = most.saturating_sub(self.others_on_host(node));
        spec.host_bytes.min(left.max(spec.host_unmapped()))
    }

    /// The host memory without which a model cannot load on a node: its part, or the part that is not mapped if the host cannot hold
    /// all. `None` if it needs none, or if the node's host is unknown.
    pub(crate) fn least_of_host(&self, model: &Model, node: NodeId) -> Option<Bytes> {
        let part = self.needs_of_host(model, node)?;
        let exceeds = part < model.spec.host_bytes;
        Some(if exceeds {
            model.spec.host_unmapped()
        } else {
            part
        })
    }

    /// The host memory of other programs on a node. Parts that exceed the host hide some or all of it.
    fn others_on_host(&self, node: NodeId) -> Bytes {
        let Some(host) = self.nodes.host(node) else {
            return Bytes::ZERO;
        };
        let shown = self.shown_on_host(node);
        let parts: Bytes = shown.map(|model| model.spec.host_bytes).sum();
        let unused = host.left().saturating_sub(host.returning);
        host.total.saturating_sub(unused + host.held + parts)
    }

    /// The models of awake replicas on a node whose parts its reading shows.
    fn shown_on_host(&self, node: NodeId) -> impl Iterator<Item = &Model> {
        let host = self.nodes.host(node);
        self.on_host_of(node)
            .map(|(_, replica)| replica)
            .filter(move |replica| {
                replica.parked.is_none() && host.is_some_and(|host| host.shows(replica.launched))
            })
            .map(|replica| &self.models[&replica.model])
    }

    /// The host memory that an awake replica returns. Mapped weights that exceed the host fill all memory that the others leave, the
    /// reserve included.
    fn part_returned(&self, replica: &Replica) -> Bytes {
        let model = &self.models[&replica.model];
        let node = self.node_of(replica);
        let part = self.part_on(model, node);
        let exceeds = |model: &Model| self.part_on(model, node) < model.spec.host_bytes;
        let host = self.nodes.host(node);
        let host = host.filter(|host| host.shows(replica.launched) && exceeds(model));
        let Some(host) = host else {
            return part;
        };
        let (large, fitting): (Vec<&Model>, Vec<&Model>) =
            self.shown_on_host(node).partition(|model| exceeds(model));
        let fitting: Bytes = fitting.iter().map(|model| model.spec.host_bytes).sum();
        let unused = host.left().saturating_sub(host.returning);
        let others = self.others_on_host(node);
        let filled = host
            .total
            .saturating_sub(others + host.held + unused + fitting);
        Bytes(filled.0 / large.len().max(1) as u64)
    }

    /// Returns true if the host has memory for a planned load now. Mapped weights that exceed the host wait for what is leaving.
    pub(crate) fn host_has_room(&self, load: ReplicaId) -> bool {
        let Some((node, model)) = self.planned_on_host(load) else {
            return true;
        };
        let Some(least) = self.least_of_host(model, node) else {
            return true;
        };
        let now = self.host_now(node, Some(load));
        let part = self.part_on(model, node);
        let leaves = self
            .on_host_of(node)
            .any(|(id, replica)| returns_host(replica) && self.host_held(id) > Bytes::ZERO);
        now >= least && (now >= part || !leaves)
    }

    /// Returns true if the host will have memory for a planned load once everything has left that is leaving.
    pub(crate) fn host_will_have_room(&self, load: ReplicaId) -> bool {
        let of_host = self.planned_on_host(load);
        let least =
            of_host.and_then(|(node, model)| Some((node, self.least_of_host(model, node)?)));
        least.is_none_or(|(node, least)| {
            self.host_lacks(node, least, Bytes::ZERO, Some(load)) == Bytes::ZERO
        })
    }

    /// Host memory of planned and new loads on a node that its reading does not show yet, without the part of `load`. For a planned
    /// load, mapped weights that exceed the host count only with what they cannot do without: they take what it leaves.
    pub(crate) fn host_unseen(&self, node: NodeId, load: Option<ReplicaId>) -> Bytes {
        let planned = self.planned.iter();
        let planned =
            planned.filter(|(id, planned)| Some(**id) != load && self.is_for(planned, node));
        let counted = |model: &Model| match load {
            Some(_) => self.least_of_host(model, node).unwrap_or_default(),
            None => self.part_on(model, node),
        };
        let promised: Bytes = planned
            .filter(|(_, planned)| !planned.wakes)
            .map(|(_, planned)| counted(&self.models[&planned.model]))
            .sum();
        let host = self.nodes.host(node);
        let is_new = |replica: &&Replica| {
            replica.parked.is_none() && host.is_some_and(|host| !host.shows(replica.launched))
        };
        let new: Bytes = self
            .on_host_of(node)
            .map(|(_, replica)| replica)
            .filter(is_new)
            .map(|replica| {
                let model = &self.models[&replica.model];
                if returns_host(replica) {
                    self.part_on(model, node)
                } else {
                    counted(model)
                }
            })
            .sum();
        promised + new
    }

    /// The memory that a load can take now.
    pub(crate) fn host_now(&self, node: NodeId, load: Option<ReplicaId>) -> Bytes {
        let Some(host) = self.nodes.host(node) else {
            return Bytes(u64::MAX);
        };
        // Sleepers that are being ended have not returned their memory yet.
        let balance = host.balance(Bytes::ZERO, self.host_unseen(node, load));
        balance.unwrap_or_default()
    }

    /// The memory that a load lacks once every replica has left that is leaving, and `freed` has been returned as well.
    pub(crate) fn host_lacks(
        &self,
        node: NodeId,
        needs: Bytes,
        freed: Bytes,
        load: Option<ReplicaId>,
    ) -> Bytes {
        let Some(host) = self.nodes.host(node) else {
            return Bytes::ZERO;
        };
        let leaving = self.on_host_of(node);
        let leaving = leaving.filter(|(_, replica)| returns_host(replica));
        let returned: Bytes = leaving.map(|(id, _)| self.host_held(id)).sum();
        let promised = self.host_unseen(node, load) + needs;
        let balance = host.balance(returned + freed, promised);
        balance.err().unwrap_or_default()
    }

    /// The host memory that returns when the replica or the planned load leaves.
    pub(crate) fn host_held(&self, id: ReplicaId) -> Bytes {
        match (self.planned.get(&id), self.replicas.get(&id)) {
            (_, Some(replica)) => match &replica.parked {
                Some(parked) => parked.host,
                None => self.part_returned(replica),
            },
            (Some(planned), None) => self.part_of(planned),
            (None, None) => Bytes::ZERO,
        }
    }

    /// The replicas and planned loads of a node that hold host memory.
    pub(crate) fn holders_of_host(&self, node: NodeId) -> BTreeSet<ReplicaId> {
        let planned = self.planned.iter();
        let planned = planned.filter(|(_, planned)| self.is_for(planned, node));
        let ids = self.on_host_of(node).map(|(id, _)| id);
        ids.chain(planned.map(|(id, _)| *id))
            .filter(|id| self.host_held(*id) > Bytes::ZERO)
            .collect()
    }

    /// The parts of awake and loading replicas on a node's host.
    pub(crate) fn parts_on_host(&self, node: NodeId) -> Bytes {
        let replicas = self.on_host_of(node).map(|(_, replica)| replica);
        let awake = replicas.filter(|replica| replica.parked.is_none());
        awake
            .map(|replica| self.part_on(&self.models[&replica.model], node))
            .sum()
    }

    fn planned_on_host(&self, load: ReplicaId) -> Option<(NodeId, &Model)> {
        let planned = &self.planned[&load];
        let node = self.devices[&planned.shares.first()?.device].node;
        (!planned.wakes).then_some((node, &self.models[&planned.model]))
    }

    fn is_for(&self, planned: &Planned, node: NodeId) -> bool {
        let first = planned.shares.first();
        first.is_some_and(|share| self.devices[&share.device].node == node)
    }

    /// The part of a planned load on the host. A sleeper that wakes has its part already.
    fn part_of(&self, planned: &Planned) -> Bytes {
        if planned.wakes {
            Bytes::ZERO
        } else {
            let first = planned.shares.first();
            first.map_or(Bytes::ZERO, |share| {
                let node = self.devices[&share.device].node;
                self.part_on(&self.models[&planned.model], node)
            })
        }
    }

    /// The replicas of a node. Visits only its devices and the sleepers, because there may be a thousand nodes.
    fn on_host_of(&self, node: NodeId) -> impl Iterator<Item = (ReplicaId, &Replica)> {
        let devices = self.nodes.devices_of(node);
        let devices = devices.filter_map(|id| self.devices.get(id));
        let holders = devices.flat_map(|device| device.holders.iter().copied());
        let sleepers = self.replicas.asleep().iter().copied();
        let sleepers = sleepers.filter(|id| self.node_of(&self.replicas[id]) == node);
        let ids: BTreeSet<ReplicaId> = holders.chain(sleepers).collect();
        ids.into_iter()
            .filter_map(|id| Some((id, self.replicas.get(&id)?)))
    }
}

/// Returns true if the replica is leaving and returns its host memory. An engine that falls asleep takes more there.
fn returns_host(replica: &Replica) -> bool {
    replica.is_leaving() && !matches!(replica.phase, Phase::Parking { .. })
}
