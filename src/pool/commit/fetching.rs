//! Begins and ends fetches of weights.

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::{Action, RecordKind};
use crate::types::fetch::Fetch;
use crate::types::ids::ModelId;
use crate::types::reason::LoadReason;

impl Pool {
    pub(super) fn fetch(&mut self, model: ModelId, why: &LoadReason, actions: &mut Actions) {
        let only_looks = self.models[&model].spec.damage.is_some();
        let fetch = Fetch {
            since: self.now,
            only_looks,
            left: None,
            ends: None,
            cancel_sent: false,
        };
        self.models.begin_fetch(model, fetch);
        self.touch_model(model);
        let text = if only_looks {
            format!("its weights were damaged and are checked again: {why}")
        } else {
            format!("its weights are not on this machine: {why}")
        };
        let record = self.record(RecordKind::Fetch, Some(model), text);
        actions.record(record);
        actions.push(Action::Fetch { model });
    }

    pub(super) fn end_fetch(&mut self, id: ModelId, actions: &mut Actions) {
        let fetch = self
            .models
            .get_mut(&id)
            .and_then(|model| model.fetch.as_mut());
        fetch.expect("running").cancel_sent = true;
        actions.push(Action::EndFetch { model: id });
    }
}
