//! Turns the gates' counts by key, groups and the measured costs of tokens into facts (F1, P9). Makes no choices.

use alloc::vec::Vec;

use crate::facts::queues::Waiting;
use crate::facts::state::Pool;
use crate::types::groups::Groups;
use crate::types::ids::{GroupId, KeyId, ModelId, ReplicaId, Ticket};
use crate::types::key_seats::ReplicaKeys;
use crate::types::tokens::{ServiceClass, TokenCosts, Tokens};

impl Pool {
    pub(crate) fn keys_read(&mut self, gates: &[ReplicaKeys]) {
        for ReplicaKeys { replica, keys } in gates {
            if let Some(found) = self.replicas.get(replica) {
                let charging = self.charging(found.model);
                self.shares.read(*replica, keys, charging, self.now);
            }
        }
        self.shares.count_sometimes(self.now);
        self.service_changed();
    }

    pub(crate) fn request_queued(&mut self, waiting: &Waiting) {
        let Waiting {
            key, model, class, ..
        } = *waiting;
        self.shares.joins(key, model, class, self.now);
        self.service_changed();
    }

    pub(crate) fn request_unqueued(&mut self, waiting: &Waiting) {
        let Waiting {
            key, model, class, ..
        } = *waiting;
        self.shares.leaves(key, model, class);
        self.service_changed();
    }

    /// The gateway has described a waiting request.
    pub(crate) fn request_described(
        &mut self,
        ticket: Ticket,
        class: ServiceClass,
        expected: Tokens,
    ) {
        let Some(before) = self.queues.describe(ticket, class, expected) else {
            return;
        };
        if before.class != class {
            if let Some(model) = self.models.get_mut(&before.model) {
                model.queue.set_class(ticket, class);
            }
            self.shares.leaves(before.key, before.model, before.class);
            self.shares.joins(before.key, before.model, class, self.now);
            self.touch_model(before.model);
            self.service_changed();
        }
    }

    pub(crate) fn groups_set(&mut self, groups: Groups) {
        let waiting = self.queues.iter();
        let waiting = waiting.map(|(_, waiting)| (waiting.key, waiting.model, waiting.class));
        self.shares.set_groups(groups, waiting);
        self.touch_everything();
    }

    pub(crate) fn member_set(&mut self, key: KeyId, group: Option<GroupId>) {
        let waiting = self.queues.iter();
        let waiting = waiting.filter(|(_, waiting)| waiting.key == key);
        let waiting: Vec<(ModelId, ServiceClass)> = waiting
            .map(|(_, waiting)| (waiting.model, waiting.class))
            .collect();
        if self.shares.move_member(key, group, &waiting) {
            for (model, _) in waiting {
                self.touch_model(model);
                self.grows_at_model(model);
            }
            self.service_changed();
        }
    }

    pub(crate) fn tokens_measured(&mut self, id: ModelId, costs: TokenCosts) {
        if let Some(model) = self.models.get_mut(&id) {
            model.token_costs = Some(costs);
        }
    }

    /// The measured costs of the model's tokens.
    pub fn token_costs(&self, id: ModelId) -> Option<TokenCosts> {
        self.models.get(&id)?.token_costs
    }

    pub(crate) fn keys_end(&mut self, replica: ReplicaId) {
        self.shares.ends(replica, self.now);
        self.service_changed();
    }

    /// A replica may now leave for another key's request, and a model's request may rank differently.
    fn service_changed(&mut self) {
        let change = self.shares.take_change();
        for replica in change.replicas {
            self.grows_at(replica);
        }
        for model in change.models {
            self.touch_model(model);
            self.grows_at_model(model);
        }
    }
}
