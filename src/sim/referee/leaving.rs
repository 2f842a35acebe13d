//! The referee's rules for clients that disconnect (Q3): nothing starts for them alone, started loads continue, and the queues
//! contain exactly the waiting requests.

use alloc::collections::BTreeMap;

use super::Referee;
use pool::{ModelId, PoolView, Priority, ReplicaId, StopReason, Ticket, Time};

impl Referee {
    /// A planned load starts. A load planned only for requests must not start after they have all gone.
    pub(super) fn begins(&mut self, now: Time, load: ReplicaId) {
        let Some(planned) = self.planned.remove(&load).filter(|load| load.for_requests) else {
            return;
        };
        let model = planned.model;
        if !self.has_waiting(model) && !self.loads_without_requests(now, model) {
            self.broken.push(format!(
                "Q3: {load} of {model} begins, and no request waits for it any more"
            ));
        }
    }

    /// Returns true if it may be loaded regardless of waiting requests: for an administrator, for its priority, or to grow.
    fn loads_without_requests(&self, now: Time, model: ModelId) -> bool {
        let is_hot = self.priority(model, now) >= Priority::ALWAYS_HOT;
        is_hot || self.specs[&model].scaling.is_some() || self.was_ordered(model)
    }

    fn was_ordered(&self, model: ModelId) -> bool {
        self.loads.values().any(|(_, load)| load.model == model)
    }

    /// A replica stops. A loading replica is not surplus because its requests have gone: the next request finds it ready.
    pub(super) fn goes_on(&mut self, replica: ReplicaId, reason: &StopReason) {
        let seen = self.replicas.get(&replica);
        let Some(seen) = seen.filter(|seen| seen.ready.is_none()) else {
            return;
        };
        if matches!(reason, StopReason::Surplus) && !self.was_ordered(seen.model) {
            self.broken.push(format!(
                "Q3: {replica} is surplus while it loads, and no order is for fewer"
            ));
        }
    }

    /// Each unanswered request waits exactly once, in its model's queue, and the queue contains no other requests.
    pub fn queues_are_right(&mut self, view: &PoolView) {
        let open = self.open_tickets.iter();
        let open: BTreeMap<Ticket, ModelId> = open
            .map(|(&ticket, request)| (ticket, request.model))
            .collect();
        let queued = view
            .waiting
            .iter()
            .map(|request| (request.ticket, request.model));
        let queued: BTreeMap<Ticket, ModelId> = queued.collect();
        if open != queued || queued.len() != view.waiting.len() {
            self.broken.push(format!(
                "Q3: {open:?} wait for an answer, and {queued:?} are in the queues"
            ));
        }
        for shown in &view.models {
            let waiting = open.values().filter(|of| **of == shown.model).count();
            if shown.waiting as usize != waiting {
                self.broken.push(format!(
                    "Q3: {waiting} wait for {}, which counts {}",
                    shown.model, shown.waiting
                ));
            }
        }
    }
}
