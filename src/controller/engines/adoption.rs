//! Adopts engines that an earlier controller left behind, as replicas of this one (D2): the stored record of a launch, the reasons
//! to stop an engine instead, and the events that report what was found. The pool decides which replicas fit.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::control::Control;

use crate::gates::SeatCounts;
use crate::gates::seat_counts::guests_of;
use crate::journal::Job;
use crate::messages::Message;
use catalog::{Catalog, Entry};
use engine::{AdoptedEngine, AdoptionResult, Fate, LaunchFacts, ReplicaLog, UnadoptedEngine};
use inventory::{DeviceInfo, Inventory};
use pool::{Bytes, Event, ModelId, Record, RecordKind, Share, Time};

/// The key under which the store and the journal know a device: its UUID, which stays when indices change, or its name.
fn key_of(info: &DeviceInfo) -> &str {
    info.uuid.as_deref().unwrap_or(&info.name)
}

/// Returns the reason an engine of an earlier run can no longer serve its model, if there is one.
pub fn refusal(
    record: &engine::Record,
    catalog: &Catalog,
    inventory: &Inventory,
) -> Option<String> {
    let Some(entry) = catalog.entries().get(&record.model) else {
        return Some(match catalog.broken_model(&record.model) {
            Some(_) => "its model file is broken".to_owned(),
            None => "the model is no longer in the catalogue".to_owned(),
        });
    };
    if let Some(problem) = arguments_problem(&record.arguments, entry) {
        return Some(problem);
    }
    let known = |device: &str| {
        inventory
            .devices()
            .iter()
            .any(|info| key_of(info) == device)
    };
    let gone = record.placement.iter().find(|share| !known(&share.device));
    gone.map(|share| format!("its device {} is not there", share.device))
}

/// Returns a problem if an engine started with `arguments` no longer matches its model's file.
pub(crate) fn arguments_problem(arguments: &str, entry: &Entry) -> Option<String> {
    // Replaced weights are accepted: the loaded ones keep serving.
    let rest = arguments.strip_prefix(&entry.arguments());
    rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with(' '))
        .then(|| "its model file specifies another engine or other arguments now".to_owned())
}

impl Control {
    /// The record of a launch that a later controller needs to adopt the engine.
    pub(super) fn kept_of(&self, model: ModelId, placement: &[Share]) -> LaunchFacts {
        let entry = self.models.facts.get(&model).map(|facts| &facts.entry);
        let grace = entry.and_then(|entry| entry.stop_grace);
        let grace = grace.unwrap_or_else(|| pool::ModelSpec::default().stop_grace);
        LaunchFacts {
            placement: placement
                .iter()
                .map(|share| (self.devices.key(share.device), share.bytes))
                .collect(),
            arguments: self.models.arguments(model),
            served_model_name: entry
                .and_then(|entry| entry.recipe.served_model_name())
                .map(str::to_owned),
            stop_grace: std::time::Duration::from_millis(grace.0),
        }
    }

    /// Turns running engines into replicas, and records in the history what happened to the others.
    pub(crate) fn take_found(&mut self, found: AdoptionResult, seats: &[SeatCounts]) -> Vec<Event> {
        for other in found.others {
            self.note(other);
        }
        let mut events: Vec<Event> = Vec::new();
        for adopted in found.adopted {
            events.extend(self.take_adopted(adopted, seats));
        }
        for application in found.applications {
            events.extend(self.take_application(application, seats));
        }
        events
    }

    fn take_adopted(&mut self, adopted: AdoptedEngine, seats: &[SeatCounts]) -> Option<Event> {
        let record = adopted.record.clone();
        // The catalogue is the one this record was checked against.
        let model = *self.models.ids.get(&record.model)?;
        let replica = record.replica();
        let placement: Vec<Share> = record
            .placement
            .iter()
            .filter_map(|share| {
                let key = |info: &DeviceInfo| key_of(info) == share.device;
                let device = self
                    .devices
                    .known
                    .values()
                    .find(|device| key(&device.info))?
                    .info
                    .id;
                let bytes = Bytes(share.bytes);
                Some(Share { device, bytes })
            })
            .collect();
        let log = Arc::new(ReplicaLog::adopted(record.log_file.clone()));
        let watch = self.watch_of(&self.models.facts.get(&model)?.entry);
        self.know(replica, model, &placement, &log, &watch.activity);
        if let Some(facts) = self.engines.get_mut(replica) {
            // Describes the weights that are loaded, which may differ from the files on disk now.
            facts.arguments = record.arguments.clone();
            facts.pid = Some(adopted.pid());
            facts.stage = None;
            facts.ready = true;
        }
        self.make_gate(replica, model, adopted.endpoint());
        let in_flight = guests_of(replica, seats);
        if let Some(gate) = self.engines.gate(replica) {
            gate.set_guests(in_flight);
        }
        self.offer(replica, model);
        let (stop, stopped) = oneshot::channel();
        self.engines.stop_with(replica, stop);
        let inbox = self.inbox.clone();
        let report = move |report| {
            let _ = inbox.send(Message::Report { replica, report });
        };
        let now = self.clock.now();
        let ready_at = record.ready_at_ms.map_or(now, Time);
        let reported = seats.iter().find(|taken| taken.replica == replica);
        let last_end = adopted
            .last_end_ms
            .map(Time)
            .max(reported.and_then(|seats| seats.last_end))
            .map(|at| at.min(now));
        tracing::info!(
            "adopted {} ({replica}), process {}, which kept running without us (D2)",
            record.model,
            adopted.pid()
        );
        self.tasks
            .spawn(engine::run_adopted(adopted, watch, log, stopped, report));
        Some(Event::ReplicaAdopted {
            replica,
            model,
            placement,
            ready_for: now.since(ready_at),
            in_flight,
            last_end,
        })
    }

    /// Records in the history an engine that was found and not adopted.
    pub(crate) fn note(&mut self, found: UnadoptedEngine) {
        let (kind, what) = match found.fate {
            Fate::Stopped => (RecordKind::Gone, "stopped after a restart"),
            Fate::Ended => (RecordKind::Crash, "found gone after a restart"),
            Fate::LeftAlone => (RecordKind::Adopt, "left alone after a restart"),
        };
        let reason = format!("{what}: {} (D2)", found.reason);
        let who = match (&found.model, found.replica) {
            (Some(model), Some(replica)) => format!("{model} ({replica})"),
            (_, Some(replica)) => format!("an engine ({replica})"),
            (_, None) => "an engine".to_owned(),
        };
        tracing::warn!("{who} was {reason}");
        self.journal.write(Job::Record(Record {
            at: self.clock.now(),
            kind,
            model: found.model,
            replica: found.replica,
            order: None,
            reason,
            priority: None,
            placement: Vec::new(),
            candidates: Vec::new(),
            memory: Vec::new(),
            took: None,
            cause: None,
            asked_by: None,
            explanation: None,
        }));
    }
}
