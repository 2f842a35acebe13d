//! The referee's rules for clients that go away (Q3): nothing begins for them alone, what has begun goes on, and the
//! queues are those of the requests that wait.

use alloc::collections::BTreeMap;

use super::Referee;
use pool::{ModelId, PoolView, Priority, ReplicaId, StopReason, Ticket, Time};

impl Referee {
    /// A planned load begins. One that was planned for requests alone does not once they have all gone.
    pub(super) fn begins(&mut self, now: Time, load: ReplicaId) {
        let Some(planned) = self.planned.remove(&load).filter(|it| it.for_requests) else {
            return;
        };
        let model = planned.model;
        if !self.has_waiting(model) && !self.loads_without_requests(now, model) {
            self.broken.push(format!(
                "Q3: {load} of {model} begins, and no request waits for it any more"
            ));
        }
    }

    /// It may be loaded whether requests wait or not: for an administrator, for its priority, or to grow.
    fn loads_without_requests(&self, now: Time, model: ModelId) -> bool {
        let is_hot = self.priority(model, now) >= Priority::ALWAYS_HOT;
        is_hot || self.specs[&model].scaling.is_some() || self.was_ordered(model)
    }

    fn was_ordered(&self, model: ModelId) -> bool {
        self.loads.values().any(|(_, load)| load.model == model)
    }

    /// A replica stops. One that loads is not surplus because its requests have gone: the next one finds it ready.
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

    /// Each request without an answer waits in its model's queue, once, and nothing else does.
    pub fn queues_are_right(&mut self, view: &PoolView) {
        let open = self.open_tickets.iter();
        let open: BTreeMap<Ticket, ModelId> = open.map(|(&it, &(of, _))| (it, of)).collect();
        let queued = view.waiting.iter().map(|it| (it.ticket, it.model));
        let queued: BTreeMap<Ticket, ModelId> = queued.collect();
        if open != queued || queued.len() != view.waiting.len() {
            self.broken.push(format!(
                "Q3: {open:?} wait for an answer, and {queued:?} are in the queues"
            ));
        }
        for it in &view.models {
            let waiting = open.values().filter(|of| **of == it.model).count();
            if it.waiting as usize != waiting {
                self.broken.push(format!(
                    "Q3: {waiting} wait for {}, which counts {}",
                    it.model, it.waiting
                ));
            }
        }
    }
}
