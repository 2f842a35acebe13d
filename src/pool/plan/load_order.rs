//! The order in which models that wait for memory are loaded (P3): first come, first served, with a limited delay that falls with the
//! number of requests that the load serves. Read-only.
//!
//! ```text
//! due   = first arrival + round / √(requests that wait)
//! round = load time × (models in use that are not loaded)
//! ```
//!
//! The earliest due time goes first. So a short load, or the load for many requests, passes a long one for a few, which shortens the
//! mean wait. No load is passed by a request that arrives after its due time, which bounds the longest wait to one load of each other
//! model.
//!
//! With a target for the priority, a load is due after half of the time that remains until it has to begin for its first request that
//! can still have its first token in time.

use crate::facts::queues::Waiting;
use crate::facts::state::Pool;
use crate::plan::demands::LOOKED_AT_MAX;
use crate::types::ids::{ModelId, Span, Time};
use crate::types::policy::Part;

/// The place of a model in the order of loads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadPlace {
    /// The load may still be passed by later requests. Other rules then come first.
    pub may_wait: bool,
    pub due: Time,
    /// The arrival of the first request that the load could serve.
    pub since: Time,
}

impl LoadPlace {
    pub fn first_come(since: Time) -> LoadPlace {
        LoadPlace {
            may_wait: false,
            due: since,
            since,
        }
    }
}

impl Pool {
    /// The place of a model whose oldest request arrived at this time. Requests that will have given up before the load is ready do
    /// not count.
    pub(crate) fn load_place(&self, id: ModelId, oldest: Time) -> LoadPlace {
        if !self.limits.policy.has(Part::LoadOrder) {
            return LoadPlace::first_come(oldest);
        }
        let model = &self.models[&id];
        let (since, in_vain) = match self.first_in_time(id) {
            Some(first) => first,
            None if self.comes_back_in(id) < model.spec.queue_timeout => {
                return LoadPlace {
                    may_wait: true,
                    due: Time(u64::MAX),
                    since: oldest,
                };
            }
            // Every waiting request will have timed out when the load is ready; later requests may find the replica ready.
            None => (oldest, 0),
        };
        let served = model.queue.len() as u64 - in_vain;
        let usual = since + self.may_be_passed_for(id, served);
        let due = self.due_by_target(id).map_or(usual, |due| due.min(usual));
        LoadPlace {
            may_wait: due > self.now,
            due,
            since,
        }
    }

    /// The time after a request's arrival for which later ones may be served first.
    fn may_be_passed_for(&self, id: ModelId, served: u64) -> Span {
        let model = &self.models[&id];
        // A guess delays no request for longer than the usual swap.
        let load = self.ready_in(model);
        let others = self.models.in_use().saturating_sub(self.replicas.len());
        let round = load.0.saturating_mul(others.max(1) as u64);
        let delay = round / served.isqrt().max(1);
        let timeout = model.spec.queue_timeout;
        if round <= timeout.0 {
            // All models can be loaded in time, so no request has to time out because others went first.
            Span(delay.min(timeout.0.saturating_sub(load.0) / 2))
        } else {
            Span(delay)
        }
    }

    /// The time from which the load is due for a target: after half of the time that the target leaves to its first request that can
    /// still meet it. `None` without a target, or if no request can meet it.
    fn due_by_target(&self, id: ModelId) -> Option<Time> {
        let (since, begins_by) = self.first_in_target(id)?;
        Some(since + Span(begins_by.since(since).0 / 2))
    }

    /// The arrival of the first request that can still meet its target, and the latest time at which the load can begin for it.
    pub(crate) fn first_in_target(&self, id: ModelId) -> Option<(Time, Time)> {
        let target = *self.limits.targets.get(&self.priority(id))?;
        let left = Span(target.0.checked_sub(self.comes_back_in(id).0)?);
        let mut begins = self
            .waiting(id)
            .map(|waiting| (waiting.since, waiting.since + left));
        begins.find(|(_, by)| *by > self.now)
    }

    /// The arrival time of the first request that a load could serve before it times out, and the number of requests ahead of it
    /// that wait in vain.
    fn first_in_time(&self, id: ModelId) -> Option<(Time, u64)> {
        let ready = self.now + self.comes_back_in(id);
        let mut waiting = self.waiting(id).zip(0..);
        let (first, before) = waiting.find(|(waiting, _)| waiting.deadline > ready)?;
        Some((first.since, before))
    }

    /// The model's oldest requests, by arrival. Every arrival visits them, so their number is bounded.
    pub(crate) fn waiting(&self, id: ModelId) -> impl Iterator<Item = &Waiting> {
        let waiting = self.models[&id].queue.by_arrival().take(LOOKED_AT_MAX);
        waiting.map(move |ticket| &self.queues[&ticket])
    }
}
