//! Counts the ongoing requests of scaled models and sets how many replicas each should have (S1), with Ray Serve's formula: ongoing
//! requests per replica against a target, averaged over a period, and applied once the result has pointed in one direction for long
//! enough (<https://github.com/ray-project/ray>, `python/ray/serve/autoscaling_policy.py`). Integers only. `plan/scaling.rs`
//! chooses the surplus replica.
//!
//! The first replica is not scaled: demand loads it and keep-hot unloads it. Additional replicas take no room from models of equal
//! priority.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::autoscaling::{Scaler, Scaling, TICK};
use crate::types::ids::{ModelId, ReplicaId};

impl Pool {
    /// Starts counting the requests of a model that has become ready, if it may have several replicas.
    pub(crate) fn begin_scaling(&mut self, id: ModelId) {
        let Some(scaling) = self.scaling_of(id) else {
            return;
        };
        let wanted = scaling.initial.clamp(scaling.least.max(1), scaling.most);
        let fresh = Scaler {
            counts: VecDeque::new(),
            up_since: None,
            down_since: None,
            due: self.now + TICK,
            wanted,
        };
        self.scalers.entry(id).or_insert(fresh);
    }

    fn scaling_of(&self, id: ModelId) -> Option<&Scaling> {
        let model = self.models.get(&id).filter(|model| !model.removed)?;
        model
            .spec
            .scaling
            .as_deref()
            .filter(|scaling| scaling.most > 1)
    }

    /// Counts the requests of models that are due and sets their number of replicas.
    pub(crate) fn scale(&mut self) {
        let now = self.now;
        let due: Vec<ModelId> = self
            .scalers
            .iter()
            .filter(|(_, scaler)| scaler.due <= now)
            .map(|(&id, _)| id)
            .collect();
        for id in due {
            let live = self.models.get(&id).map_or(0, |model| self.live(model));
            let Some(scaling) = self.scaling_of(id).filter(|_| live > 0).cloned() else {
                self.scalers.remove(&id);
                self.agenda.promises_change();
                continue;
            };
            let model = &self.models[&id];
            let in_flight = |id: &ReplicaId| u64::from(self.replicas[id].in_flight);
            let ongoing =
                model.replicas.iter().map(in_flight).sum::<u64>() + model.queue.len() as u64;
            let scaler = self.scalers.get_mut(&id).expect("just seen");
            let before = scaler.wanted;
            scaler.count(now, ongoing, live, &scaling);
            if scaler.wanted != before {
                // Loads that were needed may no longer be.
                self.agenda.promises_change();
                self.touch_model(id);
            }
        }
    }

    /// A replica left and is not replaced: it was unused, or an order removed it.
    pub(crate) fn scaled_down(&mut self, id: ModelId) {
        let live = self.models.get(&id).map_or(0, |model| self.live(model));
        if let Some(scaler) = self.scalers.get_mut(&id) {
            scaler.wanted = scaler
                .wanted
                .min(u32::try_from(live).unwrap_or(u32::MAX))
                .max(1);
            (scaler.up_since, scaler.down_since) = (None, None);
            self.agenda.promises_change();
        }
    }
}
