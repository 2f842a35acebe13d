//! Weights that are not on this machine yet. A model is fetched before it is placed: during a download of an hour
//! it takes no device's memory and evicts nothing, and afterwards its size is certain. This file decides when a
//! fetch begins and ends, not where it reads from.

use alloc::borrow::ToOwned;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::action::{Action, RecordKind};
use crate::types::event::{FetchEnd, Remedy};
use crate::types::fetch::Fetch;
use crate::types::ids::{ModelId, Span, Ticket};
use crate::types::reason::{LoadReason, Refusal, StopReason};

/// Used until the time of the fetch is known.
const EXPECTED_AT_FIRST: Span = Span::from_secs(60);

impl Pool {
    pub(crate) fn fetch(&mut self, model: ModelId, why: &LoadReason, actions: &mut Vec<Action>) {
        self.models.get_mut(&model).expect("wanted").fetch = Some(Fetch {
            since: self.now,
            left: None,
            ends: None,
            cancel_sent: false,
        });
        self.fetching.insert(model);
        self.touch_model(model);
        let text = format!("its weights are not on this machine: {why}");
        let record = self.record(RecordKind::Fetch, Some(model), text);
        actions.push(Action::Record(record));
        actions.push(Action::Fetch { model });
    }

    pub(crate) fn end_fetch(&mut self, id: ModelId, actions: &mut Vec<Action>) {
        let fetch = self.models.get_mut(&id).and_then(|it| it.fetch.as_mut());
        fetch.expect("running").cancel_sent = true;
        actions.push(Action::EndFetch { model: id });
    }

    /// An order or a change of the catalogue ends the fetch, if it runs.
    pub(crate) fn fetch_is_to_end(&mut self, id: ModelId, reason: StopReason) {
        if let Some(fetch) = self.models.get_mut(&id).and_then(|it| it.fetch.as_mut()) {
            fetch.ends.get_or_insert(reason);
        }
    }

    pub(crate) fn fetch_progressed(&mut self, id: ModelId, left: Span) {
        if let Some(fetch) = self.models.get_mut(&id).and_then(|it| it.fetch.as_mut()) {
            fetch.left = Some(left);
        }
    }

    pub(crate) fn fetch_ended(&mut self, id: ModelId, end: FetchEnd, actions: &mut Vec<Action>) {
        let now = self.now;
        let Some(model) = self.models.get_mut(&id) else {
            return;
        };
        let Some(fetch) = model.fetch.take() else {
            return;
        };
        let is_absent = model.spec.absent;
        self.fetching.remove(&id);
        // Its demands were held back, and may be the same as before.
        self.touch_model(id);
        self.grows_everywhere();
        let took = now.since(fetch.since);
        let (kind, text) = match (&end, &fetch.ends) {
            (FetchEnd::Complete, _) => (RecordKind::Fetched, format!("fetched after {took}")),
            (FetchEnd::Cancelled, Some(reason)) => (RecordKind::FetchEnded, reason.to_string()),
            (FetchEnd::Cancelled, None) => {
                (RecordKind::FetchEnded, StopReason::Removed.to_string())
            }
            (FetchEnd::Failed { message, .. }, _) => (RecordKind::FetchFailed, message.clone()),
        };
        let mut record = self.record(kind, Some(id), text);
        record.took = Some(took);
        actions.push(Action::Record(record));
        match (end, fetch.ends) {
            // The model may have been changed since the fetch began.
            (FetchEnd::Complete, None) if is_absent => {
                let message = "its weights were fetched but are incomplete on disk; make sure that nothing else changes their folder".to_owned();
                self.load_failed(id, message, Remedy::Time, actions);
            }
            (FetchEnd::Complete, _) => {
                self.models.get_mut(&id).expect("known").fetched_at = Some(now);
            }
            (FetchEnd::Failed { message, remedy }, _) => {
                self.load_failed(id, message, remedy, actions);
            }
            // An administrator ended it; waiting requests would start it again, so they are refused.
            (
                FetchEnd::Cancelled,
                Some(StopReason::Unload { order } | StopReason::Reset { order }),
            ) => {
                let waiting: Vec<Ticket> = self.models[&id].queue.iter().collect();
                for ticket in waiting {
                    let refusal = Refusal::FetchEnded { order };
                    let key = self.tickets[&ticket].key;
                    self.forget_ticket(ticket, false);
                    self.record_refused_request(id, key, &refusal, actions);
                    actions.push(Action::Refuse { ticket, refusal });
                }
            }
            (FetchEnd::Cancelled, _) => {}
        }
    }

    /// How long the rest of a fetch is expected to take; zero if nothing has to be fetched.
    pub(crate) fn fetched_in(&self, id: ModelId) -> Span {
        let model = &self.models[&id];
        match &model.fetch {
            _ if !model.spec.absent => Span::ZERO,
            Some(fetch) => fetch.left.unwrap_or(EXPECTED_AT_FIRST),
            None => EXPECTED_AT_FIRST,
        }
    }
}
