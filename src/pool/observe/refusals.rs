//! Records refusals in the history: the first of a kind immediately, later ones as a sum.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::action::{Action, Record, RecordKind};
use crate::types::ids::{KeyId, ModelId, Time};
use crate::types::reason::Refusal;
use crate::types::refusal_sums::SUMMED_FOR;
use crate::types::refusal_sums::Sum;

impl Pool {
    pub(crate) fn record_refused_request(
        &mut self,
        model: ModelId,
        key: KeyId,
        refusal: &Refusal,
        actions: &mut Vec<Action>,
    ) {
        if self
            .refusals
            .is_first(self.now, (model, refusal.name()), refusal)
        {
            self.record_refusal(model, None, refusal, actions);
            if let Some(Action::Record(record)) = actions.last_mut() {
                record.asked_by = Some(key);
            }
        }
    }

    /// Records the sums whose period is over.
    pub(crate) fn record_sums(&mut self, actions: &mut Vec<Action>) {
        let over = self.refusals.take_until(self.now);
        let records = over
            .into_iter()
            .map(|(model, sum)| self.record_sum(model, &sum));
        actions.extend(records.map(Action::Record));
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
}
