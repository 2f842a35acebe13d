//! Which replica of a model is surplus (S1). `src/pool/observe/scaling.rs` counts the requests and sets the number.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::ids::{ModelId, ReplicaId, Time};
use crate::types::order::Order;
use crate::types::replica::Phase;

impl Pool {
    /// How many replicas a loaded model should have; 0: not scaled, or an administrator's order is setting it.
    pub(crate) fn scaled_to(&self, id: ModelId) -> usize {
        let Some(scaler) = self.scalers.get(&id).filter(|_| self.closing.is_none()) else {
            return 0;
        };
        let loads = |order: &Order| order.load().is_some_and(|load| load.model == id);
        match self.orders.values().any(loads) {
            true => 0,
            false => scaler.wanted as usize,
        }
    }

    /// The surplus replica, if there is one: the least used, the youngest of those.
    pub(crate) fn surplus_of(&self, id: ModelId) -> Option<ReplicaId> {
        let wanted = self.scaled_to(id);
        let model = &self.models[&id];
        let wished = model.wish.as_ref().map_or(0, |it| it.replicas as usize);
        if wanted == 0 || self.staying(model) <= wanted.max(wished) {
            return None;
        }
        let ready = |it: &&ReplicaId| matches!(self.replicas[*it].phase, Phase::Ready { .. });
        let least = |it: &&ReplicaId| (self.replicas[*it].in_flight, core::cmp::Reverse(**it));
        model
            .replicas
            .iter()
            .filter(ready)
            .filter(|it| !self.is_silent(&self.replicas[*it]))
            .filter(|it| !self.is_moving(&self.replicas[*it]))
            .min_by_key(least)
            .copied()
    }

    /// Since when all of the model's ready replicas have been idle; `None` if one is busy.
    pub(crate) fn all_idle_since(&self, id: ModelId) -> Option<Time> {
        let replicas = self.models[&id]
            .replicas
            .iter()
            .map(|it| &self.replicas[it]);
        let ready = replicas.filter(|it| matches!(it.phase, Phase::Ready { .. }));
        let idle: Option<Vec<Time>> = ready.map(|it| it.idle_since()).collect();
        idle?.into_iter().max()
    }
}
