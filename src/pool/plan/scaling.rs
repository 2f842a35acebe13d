//! Finds the surplus replica of a model (S1). `src/pool/observe/scaling.rs` counts the requests and sets the number.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::ids::{ModelId, ReplicaId, Time};
use crate::types::order::Order;
use crate::types::replica::{Phase, Replica};

impl Pool {
    /// The number of replicas that a loaded model should have; 0 if it is not scaled or an administrator's order sets the number.
    pub(crate) fn scaled_to(&self, id: ModelId) -> usize {
        let Some(scaler) = self.scalers.get(&id).filter(|_| self.closing.is_none()) else {
            return 0;
        };
        let loads = |order: &Order| order.load().is_some_and(|load| load.model == id);
        if self.orders.values().any(loads) {
            0
        } else {
            scaler.wanted as usize
        }
    }

    /// The surplus replica, if there is one: the least used, then the youngest.
    pub(crate) fn surplus_of(&self, id: ModelId) -> Option<ReplicaId> {
        let wanted = self.scaled_to(id);
        let model = &self.models[&id];
        let wished = model.wish.as_ref().map_or(0, |wish| wish.replicas as usize);
        if wanted == 0 || self.staying(model) <= wanted.max(wished) {
            return None;
        }
        // A load that has not begun leaves before a replica that serves.
        if model.replicas.iter().any(|id| self.is_spared(*id)) {
            return None;
        }
        let serves = |id: &&ReplicaId| self.stays_ready(&self.replicas[*id]);
        let least = |id: &&ReplicaId| (self.replicas[*id].in_flight, core::cmp::Reverse(**id));
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
        let model = &self.models[&replica.model];
        let wished = model.wish.as_ref().map_or(0, |wish| wish.replicas as usize);
        let loads = |order: &&Order| order.load().is_some_and(|load| load.model == replica.model);
        let ordered = self.orders.values().filter(loads);
        let ordered = ordered.map(|order| order.replicas as usize).max();
        let scaled = self.scaled_to(replica.model);
        let needed = scaled.max(wished).max(ordered.unwrap_or(0)).max(1);
        self.staying(model) > needed
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
