//! Refuses requests, and records refusals in the history: the first of a kind immediately, later ones as a sum.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::plan::explaining;
use crate::types::action::{Action, Record, RecordKind};
use crate::types::decision::Plan;
use crate::types::event::Remedy;
use crate::types::ids::{KeyId, ModelId, OrderId, Ticket, Time};
use crate::types::reason::Refusal;
use crate::types::refusal_sums::{SUMMED_FOR, Sum};

impl Pool {
    /// Refuses a request and records it, unless the history has a refusal of this kind already.
    pub(crate) fn refuse_request(
        &mut self,
        ticket: Ticket,
        (model, key): (ModelId, KeyId),
        refusal: Refusal,
        actions: &mut Actions,
    ) {
        if self
            .refusals
            .is_first(self.now, (model, refusal.name()), &refusal)
        {
            let mut record = self.refusal_record(model, None, &refusal);
            record.asked_by = Some(key);
            actions.record(record);
        }
        actions.push(Action::Refuse { ticket, refusal });
    }

    /// Refuses every request that waits for the model.
    pub(crate) fn refuse_waiting(
        &mut self,
        model: ModelId,
        refusal: &Refusal,
        actions: &mut Actions,
    ) {
        let waiting: Vec<Ticket> = self.models[&model].queue.by_arrival().collect();
        for ticket in waiting {
            let key = self.queues[&ticket].key;
            self.forget_ticket(ticket, false);
            self.refuse_request(ticket, (model, key), refusal.clone(), actions);
        }
    }

    /// Records the sums whose period is over.
    pub(crate) fn record_sums(&mut self, actions: &mut Actions) {
        let over = self.refusals.take_until(self.now);
        for (model, sum) in over {
            actions.record(self.record_sum(model, &sum));
        }
    }

    /// Returns all remaining sums, at the end of the service.
    pub fn last_sums(&mut self) -> Vec<Record> {
        let all = self.refusals.take_until(Time(u64::MAX));
        let records = all.into_iter();
        records
            .map(|(model, sum)| self.record_sum(model, &sum))
            .collect()
    }

    fn record_sum(&self, model: ModelId, sum: &Sum) -> Record {
        let Sum { more, reason, name } = sum;
        let text = format!("{reason}, and {more} more within {SUMMED_FOR}");
        let mut record = self.record(RecordKind::Refuse, Some(model), text);
        record.cause = Some(name);
        record
    }

    /// Answers every waiting request of a failed load with the engine's last output (L3).
    pub(crate) fn load_failed(
        &mut self,
        id: ModelId,
        message: String,
        remedy: Remedy,
        actions: &mut Actions,
    ) {
        self.count_failure(id, message.clone(), remedy);
        let retry = self.expected_wait(id);
        let refusal = Refusal::LoadFailed { message, retry };
        for order in self.orders.values_mut() {
            if order.load().is_some_and(|load| load.model == id) {
                order.shortfall = Some(refusal.clone());
            }
        }
        if self.live(&self.models[&id]) > 0 {
            return;
        }
        self.refuse_waiting(id, &refusal, actions);
    }

    pub(super) fn refusal_record(
        &self,
        model: ModelId,
        order: Option<(OrderId, Option<&Plan>)>,
        refusal: &Refusal,
    ) -> Record {
        let mut record = self.record(RecordKind::Refuse, Some(model), refusal.to_string());
        record.cause = Some(refusal.name());
        let (name, priority) = (self.name(model), self.priority(model));
        let explanation = explaining::of_refusal(self, name, priority, refusal);
        record.explanation = explanation.map(Arc::new);
        record.order = order.map(|(id, _)| id);
        record.candidates = order
            .and_then(|(_, plan)| plan)
            .map(|plan| self.candidates(plan))
            .unwrap_or_default();
        record
    }
}
