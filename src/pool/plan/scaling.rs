//! Finds the surplus replica of a model (S1). `src/pool/observe/scaling.rs` counts the requests and sets the number.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::ids::{ModelId, ReplicaId, Time};
use crate::types::node::NodeTime;
use crate::types::order::Order;
use crate::types::replica::{Phase, Replica};

impl Pool {
    /// The number of replicas that a loaded model should have; 0 if it is not scaled or an administrator's order sets the number.
    pub(crate) fn scaled_to(&self, id: ModelId) -> usize {
        let Some(scaler) = self.scalers.get(&id).filter(|_| !self.service.is_closing()) else {
            return 0;
        };
        let loads = |order: &Order| order.load().is_some_and(|load| load.model == id);
        if self.orders.values().any(loads) {
            0
        } else {
            scaler.wanted as usize
        }
    }

    /// The number of replicas that scaling, an administrator's wish and orders call for; at least 1.
    fn needed(&self, id: ModelId) -> usize {
        let wish = self.models[&id].wish.as_ref();
        let wished = wish.map_or(0, |wish| wish.replicas as usize);
        let loads = |order: &&Order| order.load().is_some_and(|load| load.model == id);
        let ordered = self.orders.values().filter(loads);
        let ordered = ordered.map(|order| order.replicas as usize).max();
        let scaled = self.scaled_to(id);
        scaled.max(wished).max(ordered.unwrap_or(0)).max(1)
    }

    /// The surplus replica of a model that is scaled or whose replica has returned (N8): the least used, then the youngest. Of
    /// equally busy replicas of which one has returned, the replica whose node ends first leaves.
    pub(crate) fn surplus_of(&self, id: ModelId) -> Option<ReplicaId> {
        let model = &self.models[&id];
        // A load may still fail, so it does not replace a replica that has returned.
        let count = if model.has_returned {
            self.staying_ready(model)
        } else if self.scaled_to(id) > 0 {
            self.staying(model)
        } else {
            return None;
        };
        if count <= self.needed(id) {
            return None;
        }
        // A load that has not begun leaves before a replica that serves.
        if model.replicas.iter().any(|id| self.is_spared(*id)) {
            return None;
        }
        let serves = |id: &&ReplicaId| self.stays_ready(&self.replicas[*id]);
        let least = |id: &&ReplicaId| {
            let replica = &self.replicas[*id];
            let time = self.nodes.time(self.node_of(replica));
            let ends = time.filter(|_| model.has_returned).map(NodeTime::ends);
            let ends = ends.unwrap_or(Time(u64::MAX));
            let used = replica.last_end.filter(|_| model.has_returned);
            (replica.in_flight, ends, used, core::cmp::Reverse(**id))
        };
        let serving = model.replicas.iter().filter(serves);
        serving.min_by_key(least).copied()
    }

    /// Returns true if this is a load that has not begun, and the model has as many other replicas as its requests, an
    /// administrator's wish and orders call for.
    pub(crate) fn is_spared(&self, id: ReplicaId) -> bool {
        let replica = &self.replicas[&id];
        if !replica.may_be_spared || !matches!(replica.phase, Phase::Launching { .. }) {
            return false;
        }
        self.staying(&self.models[&replica.model]) > self.needed(replica.model)
    }

    /// The time since which all ready replicas of the model have been idle; `None` if one is busy.
    pub(crate) fn all_idle_since(&self, id: ModelId) -> Option<Time> {
        let replicas = self.models[&id]
            .replicas
            .iter()
            .map(|id| &self.replicas[id]);
        let ready = replicas.filter(|replica| matches!(replica.phase, Phase::Ready { .. }));
        let idle: Option<Vec<Time>> = ready.map(Replica::idle_since).collect();
        idle?.into_iter().max()
    }
}
