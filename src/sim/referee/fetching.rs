//! The referee's record of missing weights: nothing is launched without them, and nothing is fetched twice or during a cool-down.

use super::Referee;
use pool::{FetchEnd, ModelId, ReplicaId, Time};

impl Referee {
    pub(super) fn model_set(&mut self, model: ModelId, absent: bool) {
        let changed = if absent {
            self.absent.insert(model)
        } else {
            self.absent.remove(&model)
        };
        if changed {
            self.forget_failures(model);
        }
        let failures = self.failures.get_mut(&model).expect("a model of ours");
        failures.too_small.clear();
    }

    pub(super) fn fetch_begins(&mut self, now: Time, model: ModelId) {
        if !self.absent.contains(&model) {
            self.broken.push(format!(
                "weights: {model} is fetched although its weights are here"
            ));
        }
        if !self.fetching.insert(model) {
            self.broken
                .push(format!("weights: {model} is fetched twice simultaneously"));
        }
        self.too_soon(now, &format!("the fetch of {model}"), model, "a fetch");
    }

    pub(super) fn fetch_is_to_end(&mut self, model: ModelId) {
        if !self.fetching.contains(&model) {
            self.broken.push(format!(
                "weights: the fetch of {model} is to end, and there is none"
            ));
        }
    }

    pub(super) fn fetch_ended(&mut self, now: Time, model: ModelId, end: &FetchEnd) {
        let ran = self.fetching.remove(&model);
        if ran && matches!(end, FetchEnd::Failed { .. }) {
            self.failed(now, model);
        }
    }

    pub(super) fn has_weights(&mut self, load: ReplicaId, model: ModelId) {
        if self.absent.contains(&model) {
            self.broken.push(format!(
                "weights: {load} of {model} is launched without them"
            ));
        }
    }
}
