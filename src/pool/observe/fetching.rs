//! Tracks weights that are not on this machine yet, or damaged there. A model is fetched before it is placed: a download of an hour
//! then occupies no device memory and evicts nothing, and afterwards the size is certain. Damaged weights are only checked again,
//! because a load that would fail with them must not evict anything.

use alloc::borrow::ToOwned;
use alloc::string::ToString;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::RecordKind;
use crate::types::event::{FetchEnd, Remedy};
use crate::types::ids::{ModelId, Span};
use crate::types::reason::{Refusal, StopReason};

impl Pool {
    /// Ends a running fetch because of an order or a catalogue change.
    pub(crate) fn fetch_is_to_end(&mut self, id: ModelId, reason: StopReason) {
        if let Some(fetch) = self
            .models
            .get_mut(&id)
            .and_then(|model| model.fetch.as_mut())
        {
            fetch.ends.get_or_insert(reason);
        }
    }

    pub(crate) fn fetch_progressed(&mut self, id: ModelId, left: Span) {
        if let Some(fetch) = self
            .models
            .get_mut(&id)
            .and_then(|model| model.fetch.as_mut())
        {
            fetch.left = Some(left);
        }
    }

    pub(crate) fn fetch_ended(&mut self, id: ModelId, end: FetchEnd, actions: &mut Actions) {
        let now = self.now;
        let Some(fetch) = self.models.end_fetch(id) else {
            return;
        };
        let model = &self.models[&id];
        let (is_absent, damage) = (model.spec.absent, model.spec.damage.clone());
        // Its demands were held back and may be unchanged.
        self.touch_model(id);
        self.grows_everywhere();
        let took = now.since(fetch.since);
        let (kind, text) = match (&end, &fetch.ends) {
            (FetchEnd::Complete, _) if fetch.only_looks => (
                RecordKind::Fetched,
                "its weights are no longer damaged".to_owned(),
            ),
            (FetchEnd::Complete, _) => (RecordKind::Fetched, format!("fetched after {took}")),
            (FetchEnd::Cancelled, Some(reason)) => (RecordKind::FetchEnded, reason.to_string()),
            (FetchEnd::Cancelled, None) => {
                (RecordKind::FetchEnded, StopReason::Removed.to_string())
            }
            (FetchEnd::Failed { message, .. }, _) => (RecordKind::FetchFailed, message.clone()),
        };
        let mut record = self.record(kind, Some(id), text);
        record.took = Some(took);
        actions.record(record);
        match (end, fetch.ends) {
            // The model may have been changed since the fetch began.
            (FetchEnd::Complete, None) if is_absent => {
                let message = damage.unwrap_or_else(|| "its weights were fetched but are incomplete on disk; make sure that nothing else changes their folder".to_owned());
                self.load_failed(id, message, Remedy::Time, actions);
            }
            (FetchEnd::Complete, _) => {
                self.models.get_mut(&id).expect("known").fetched_at = Some(now);
            }
            (FetchEnd::Failed { message, remedy }, _) => {
                self.load_failed(id, message, remedy, actions);
            }
            // An administrator ended it. Waiting requests would start it again, so they are refused.
            (
                FetchEnd::Cancelled,
                Some(StopReason::Unload { order } | StopReason::Reset { order }),
            ) => {
                self.refuse_waiting(id, &Refusal::FetchEnded { order }, actions);
            }
            (FetchEnd::Cancelled, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Action, Bytes, DeviceId, DeviceReading, Event, KeyId, Limits, LoadOrder, ModelSpec,
        Priority, ReplicaId, Ticket, Time,
    };

    const HELD: ModelId = ModelId(0);
    const DAMAGED: ModelId = ModelId(1);
    const DAMAGE: &str = "its weights are damaged: 3 bytes are missing";

    fn spec(name: &str, priority: u32) -> ModelSpec {
        ModelSpec {
            name: name.into(),
            priority: Priority(priority),
            bytes_per_device: Bytes(700),
            ..ModelSpec::default()
        }
    }

    fn arrives(ticket: u64, model: ModelId) -> Event {
        Event::RequestArrived {
            ticket: Ticket(ticket),
            model,
            key: KeyId(0),
        }
    }

    #[test]
    fn damaged_weights_are_checked_again_before_any_eviction() {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let reading = DeviceReading {
            name: "gpu0".into(),
            total: Bytes(1_000),
            ..DeviceReading::default()
        };
        let device = DeviceId(0);
        let damaged = ModelSpec {
            absent: true,
            damage: Some(DAMAGE.into()),
            ..spec("damaged", 1)
        };
        let events = [
            Event::DeviceRead { device, reading },
            Event::ModelSet {
                model: HELD,
                spec: spec("held", 0),
            },
            Event::ModelSet {
                model: DAMAGED,
                spec: damaged,
            },
            arrives(1, HELD),
        ];
        pool.step_all(Time(1), events);
        let replica = *pool.replicas.keys().next().expect("launched");
        pool.step(Time(2), Event::ReplicaReady { replica });

        let load = LoadOrder {
            model: DAMAGED,
            replicas: None,
            devices: None,
            priority: None,
            keep_hot: None,
            lease: None,
            force: false,
            waits: true,
        };
        let plan = pool.clone().preview(Time(3), &load).expect("a plan");
        let message = DAMAGE.into();
        assert_eq!(plan.refusal, Some(Refusal::WeightsDamaged { message }));
        let response = pool.step(Time(3), arrives(2, DAMAGED));
        let only_looks =
            |action: &Action| !matches!(action, Action::Stop { .. } | Action::CloseGate { .. });
        assert!(response.actions.contains(&Action::Fetch { model: DAMAGED }));
        assert!(
            response.actions.iter().all(only_looks),
            "{:?}",
            response.actions
        );
        let end = FetchEnd::Failed {
            message: DAMAGE.into(),
            remedy: Remedy::Time,
        };
        let ended = Event::FetchEnded {
            model: DAMAGED,
            end,
        };
        let response = pool.step(Time(4), ended);
        let refused = |action: &Action| {
            matches!(
                action,
                Action::Refuse {
                    ticket: Ticket(2),
                    ..
                }
            )
        };
        assert!(
            response.actions.iter().any(refused),
            "{:?}",
            response.actions
        );
        assert!(
            response.actions.iter().all(only_looks),
            "{:?}",
            response.actions
        );
    }
}
