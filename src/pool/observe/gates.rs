//! Turns the gates' counts into facts: seats taken, seats ended, and gates that have closed or proved busy. Makes no choices.

use crate::facts::state::Pool;
use crate::types::event::GateReading;
use crate::types::ids::{ModelId, ReplicaId, Span};
use crate::types::keep_alive::KeepAlive;
use crate::types::replica::Phase;

impl Pool {
    pub(crate) fn gate_read(&mut self, reading: GateReading) {
        let now = self.now;
        let GateReading {
            replica: id,
            in_flight,
            entered,
            last_end,
            idle_before,
        } = reading;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let served_first = replica.is_unserved() && entered > replica.entered;
        let became_idle = replica.in_flight > 0 && in_flight == 0;
        let was_idle = replica.in_flight == 0;
        let new = entered.saturating_sub(replica.entered);
        // The gate knows when the last request ended; this reading may come later.
        let until = last_end.filter(|_| in_flight == 0).unwrap_or(now);
        replica.seats.taken(replica.in_flight, until);
        replica.seats.taken(0, now);
        replica.in_flight = in_flight;
        replica.entered = replica.entered.max(entered);
        if new > 0 {
            replica.entered_at = now;
        }
        replica.last_end = replica.last_end.max(last_end);
        let ended = replica.entered.saturating_sub(u64::from(in_flight));
        let counted = replica.seats.counted(ended, in_flight == 0);
        let id_of_model = replica.model;
        let mut gap_ended = None;
        let model = self
            .models
            .get_mut(&id_of_model)
            .expect("a replica's model stays");
        // Shorter requests mean shorter turns (P3).
        let shorter = counted.is_some_and(|(seat_ms, requests)| {
            let took = model.request_times.mean();
            model.request_times.add(seat_ms, requests);
            took.is_none_or(|took| model.request_times.mean() < Some(took))
        });
        if new > 0 {
            model.seated += new;
            if was_idle {
                // The gate knows the exact time; this reading may come much later.
                let unused = model.last_used.map(|last| now.since(last));
                gap_ended = idle_before.into_iter().chain(unused).min();
                let reload = model.reload();
                model.demand.wanted(now, gap_ended, reload);
            } else if let Some(gap) = idle_before {
                model.demand.came_after(gap);
            }
        }
        if new > 0 || in_flight > 0 {
            model.last_used = Some(now);
        }
        model.last_used = model.last_used.max(last_end);
        if let Some(gap) = gap_ended {
            self.gap_ended(id_of_model, gap);
        }
        if new > 0 && was_idle {
            self.shadows_serve(id_of_model);
        }
        self.touch(id);
        // Use of this replica also keeps the model's other replicas.
        let has_others = self.scalers.contains_key(&id_of_model);
        // Replicas in use move before their node ends. A load planned for that may no longer be needed.
        let moves = self.is_moving(&self.replicas[&id]);
        if moves {
            self.agenda.promises_change();
        }
        if moves || has_others || !self.models[&id_of_model].queue.is_empty() {
            self.touch_model(id_of_model);
        }
        // A replica that becomes busy is a worse victim. But a replica that has served its first requests may now be evicted, and
        // an idle one's next request is expected at another time (P3).
        let others = self.models[&id_of_model].replicas.len() > 1;
        if others && new > 0 {
            self.grows_at_model(id_of_model);
        } else if became_idle || served_first || shorter || (new > 0 && in_flight == 0) {
            self.grows_at(id);
        }
    }

    pub(crate) fn kept_alive(&mut self, id: ReplicaId, keep: KeepAlive) {
        let Some(model) = self.replicas.get(&id).map(|replica| replica.model) else {
            return;
        };
        let keep_hot = self.keep_hot(model);
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.keep_alive.note(keep, keep_hot);
            self.touch(id);
        }
    }

    pub(crate) fn gate_closed(&mut self, id: ReplicaId, in_flight: u32) {
        let now = self.now;
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.seats.taken(replica.in_flight, now);
            replica.in_flight = in_flight;
            if let Phase::Draining { closed, .. } = &mut replica.phase {
                *closed = true;
            }
            self.touch_holders(id);
        }
    }

    /// The replica was not idle after all. It stays, and the load that counted on its memory is planned again.
    pub(crate) fn gate_busy(&mut self, id: ReplicaId) {
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let Phase::Draining {
            ready_since,
            for_load,
            ..
        } = replica.phase.clone()
        else {
            return;
        };
        replica.phase = Phase::Ready { since: ready_since };
        let model = replica.model;
        for share in replica.shares.clone() {
            self.devices
                .get_mut(&share.device)
                .expect("held")
                .stays(share.bytes);
        }
        if let Some(planned) = for_load.and_then(|load| self.planned.get_mut(&load)) {
            planned.victims.remove(&id);
        }
        for order in self.orders.values_mut() {
            if order.targets.remove(&id) {
                order.affected.retain(|target| *target != id);
            }
        }
        self.touch(id);
        self.touch_model(model);
        self.agenda.promises_change();
    }

    /// Records that a request for the model has come after `gap` without use.
    pub(crate) fn gap_ended(&mut self, id: ModelId, gap: Span) {
        let model = &self.models[&id];
        if let Some(bounds) = model.spec.adaptive_keep_hot {
            let (chosen, reload) = (self.adaptive(id, bounds), model.reload());
            self.market.observe(gap, chosen, reload);
        }
    }
}
