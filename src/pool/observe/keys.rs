//! Turns the gates' counts by key into facts: how much each key has been served (P9). Makes no choices.

use alloc::vec::Vec;

use crate::facts::key_service::ServiceChange;
use crate::facts::state::Pool;
use crate::types::ids::{KeyId, ModelId, ReplicaId};
use crate::types::key_seats::ReplicaKeys;

impl Pool {
    pub(crate) fn keys_read(&mut self, gates: &[ReplicaKeys]) {
        for ReplicaKeys { replica, keys } in gates {
            if self.replicas.contains_key(replica) {
                let change = self.key_service.read(*replica, keys, self.now);
                self.service_changed(&change);
            }
        }
        let change = self.key_service.count_sometimes(self.now);
        self.service_changed(&change);
        self.key_service.forget();
    }

    pub(crate) fn key_joins(&mut self, key: KeyId) {
        let change = self.key_service.joins(key, self.now);
        self.service_changed(&change);
    }

    pub(crate) fn key_leaves(&mut self, key: KeyId) {
        let change = self.key_service.leaves(key, self.now);
        self.service_changed(&change);
    }

    pub(crate) fn keys_end(&mut self, replica: ReplicaId) {
        let change = self.key_service.ends(replica, self.now);
        self.service_changed(&change);
    }

    /// A replica may now leave for another key's request, and a model's request may rank differently.
    fn service_changed(&mut self, change: &ServiceChange) {
        for &replica in &change.replicas {
            self.grows_at(replica);
        }
        for &key in &change.keys {
            let replicas: Vec<ReplicaId> = self.key_service.replicas_of(key).collect();
            for replica in replicas {
                self.grows_at(replica);
            }
            let waited_for = self.queues.waited_for().iter();
            let waits = |id: &&ModelId| self.models[*id].queue.has_key(key);
            let models: Vec<ModelId> = waited_for.filter(waits).copied().collect();
            for model in models {
                self.touch_model(model);
                self.grows_at_model(model);
            }
        }
    }
}
