//! Adopts engines that an earlier controller left behind, as replicas of this one (D2): the stored record of a launch, the reasons
//! to stop an engine instead, and the events that report what was found. The pool decides which replicas fit.

use std::sync::Arc;

use crate::control::{Control, watch};
use crate::gates::SeatCounts;
use crate::gates::seat_counts::guests_of;
use crate::journal::Job;
use crate::view::ProcessFacts;
use catalog::{Catalog, Entry};
use engine::{AdoptedEngine, AdoptionResult, Endpoint, Fate, ReplicaLog, UnadoptedEngine, Watch};
use inventory::{DeviceInfo, Inventory};
use pool::{Bytes, Event, ModelId, Record, RecordKind, ReplicaId, Share, Span, Time};

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
    if let Err(problem) = entry_of(&record.model, &record.arguments, catalog) {
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

/// The catalogue's entry of an engine of an earlier run, or the reason the engine no longer fits it.
pub(super) fn entry_of<'a>(
    model: &str,
    arguments: &str,
    catalog: &'a Catalog,
) -> Result<&'a Entry, String> {
    let Some(entry) = catalog.entries().get(model) else {
        return Err(match catalog.broken_model(model) {
            Some(_) => "its model file is broken".to_owned(),
            None => "the model is no longer in the catalogue".to_owned(),
        });
    };
    arguments_problem(arguments, entry).map_or(Ok(entry), Err)
}

/// Returns a problem if an engine started with `arguments` no longer matches its model's file.
pub(crate) fn arguments_problem(arguments: &str, entry: &Entry) -> Option<String> {
    // Replaced weights are accepted: the loaded ones keep serving.
    let rest = arguments.strip_prefix(&entry.arguments());
    rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with(' '))
        .then(|| "its model file specifies another engine or other arguments now".to_owned())
}

/// A replica that kept running without the controller.
pub(super) struct RunningReplica {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub placement: Vec<Share>,
    pub endpoint: Endpoint,
    /// `None` if unknown: it counts as ready from now on.
    pub ready_at: Option<Time>,
    pub last_end: Option<Time>,
}

impl Control {
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

    /// Makes a replica that kept running without the controller known, with its gate, and returns the event for the pool. `facts`
    /// completes its record.
    pub(super) fn take_running(
        &mut self,
        found: RunningReplica,
        (log, watch): (&Arc<ReplicaLog>, &Watch),
        seats: &[SeatCounts],
        facts: impl FnOnce(&mut ProcessFacts),
    ) -> Event {
        let RunningReplica {
            replica,
            model,
            placement,
            endpoint,
            ready_at,
            last_end,
        } = found;
        self.know(replica, model, &placement, log, &watch.activity);
        if let Some(known) = self.engines.get_mut(replica) {
            known.stage = None;
            known.ready = true;
            facts(known);
        }
        self.make_gate(replica, model, endpoint);
        let in_flight = guests_of(replica, seats);
        if let Some(gate) = self.engines.gate(replica) {
            gate.set_guests(in_flight);
        }
        self.offer(replica, model);
        let now = self.clock.now();
        let reported = seats.iter().find(|taken| taken.replica == replica);
        let last_end = last_end.max(reported.and_then(|seats| seats.last_end));
        Event::ReplicaAdopted {
            replica,
            model,
            placement,
            ready_for: ready_at.map_or(Span::ZERO, |at| now.since(at)),
            in_flight,
            last_end: last_end.map(|at| at.min(now)),
        }
    }

    fn take_adopted(&mut self, adopted: AdoptedEngine, seats: &[SeatCounts]) -> Option<Event> {
        let record = adopted.record.clone();
        // The catalogue is the one this record was checked against.
        let model = self.models.find(&record.model)?;
        let replica = record.replica();
        let placement = record.placement.iter().filter_map(|share| {
            let device = self.devices.find(&share.device)?;
            let bytes = Bytes(share.bytes);
            Some(Share { device, bytes })
        });
        let found = RunningReplica {
            replica,
            model,
            placement: placement.collect(),
            endpoint: adopted.endpoint(),
            ready_at: record.ready_at_ms.map(Time),
            last_end: adopted.last_end_ms.map(Time),
        };
        let log = Arc::new(ReplicaLog::adopted(record.log_file));
        let watch = watch(&self.models.get(model)?.entry, &self.config.pool);
        let event = self.take_running(found, (&log, &watch), seats, |facts| {
            // Describes the weights that are loaded, which may differ from the files on disk now.
            facts.arguments = record.arguments;
            facts.pid = Some(adopted.pid());
        });
        tracing::info!(
            "adopted {} ({replica}), process {}, which kept running without us (D2)",
            record.model,
            adopted.pid()
        );
        let (stopped, report) = self.connect(replica);
        self.background
            .spawn(engine::run_adopted(adopted, watch, log, stopped, report));
        Some(event)
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
        let record = Record::new(self.clock.now(), kind, found.model, reason);
        self.journal.write(Job::Record(Record {
            replica: found.replica,
            ..record
        }));
    }
}
