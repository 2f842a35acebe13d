//! Measures the memory of replicas (M1): stores the peaks that readings and engine processes report, and gives the pool the figures
//! for the existing models and devices. `src/pool/plan/measurement.rs` chooses among figures and fades them.

use crate::control::Control;
use crate::journal::Job;
use crate::messages::{Change, FigureInputs, Message};
use pool::{
    Bytes, ModelId, Record, RecordKind, ReplicaId, Span, peak_after_exit, peak_after_reading,
};
use store::{Circumstances, Measurement};

impl Control {
    pub(crate) fn known(&self) -> FigureInputs {
        FigureInputs {
            measurements: self.usage.measurements().clone(),
            kinds: self.devices.kinds().clone(),
            devices: self.devices.infos(),
            files: self.models.files_marks(),
        }
    }

    /// Handles a load that found other weights than the model's figures describe: drops the measurements of the old weights, and
    /// computes the model's needs again (M1).
    pub(crate) fn weights_differ(&mut self, replica: ReplicaId, found: u64) {
        let Some(process) = self.engines.get_mut(replica) else {
            return;
        };
        let (model, now) = (process.model, self.clock.now());
        let Some(facts) = self.models.set_weights(model, found) else {
            return;
        };
        process.arguments = facts.arguments();
        let name = facts.entry.name.clone();
        let reason = "its weights have changed since its memory was last calculated; it is calculated again, and measurements of the old weights no longer count (M1)";
        tracing::info!(%replica, model = name, "{reason}");
        self.journal.write(Job::Record(Record {
            replica: Some(replica),
            ..Record::new(now, RecordKind::Set, Some(name.clone()), reason.to_owned())
        }));
        self.models.queue(Message::Figure {
            name,
            then: Change::Figure,
        });
        self.next_change();
    }

    /// Stores the memory of a ready replica if it is more than the known figure, and its load time. A load that did not become
    /// ready counts for neither: it may end before its engine takes all that it needs.
    pub(crate) fn measure(&mut self, replica: ReplicaId, model: ModelId) {
        let process = self.engines.get(replica);
        let Some(process) = process.filter(|process| process.ready) else {
            return;
        };
        // The store uses 0 ms for an unknown load time.
        let took = process.took.map(|span| span.max(Span(1)));
        let Some((peak, of)) = self.circumstances(replica, model) else {
            return;
        };
        let known = self.usage.measurements().get(&of).copied();
        // An adopted engine was loaded by an earlier controller, which has stored the load time if it lived long enough.
        let Some(reload) = took.or(known.map(|measurement| measurement.reload)) else {
            return;
        };
        let peak = peak_after_reading(
            known.map(|measurement| measurement.peak_bytes_per_device),
            peak,
        );
        self.keep_measurement(of, model, peak, reload);
    }

    /// Fades a stored peak that the replica did not come near in its life.
    pub(crate) fn measured_to_the_end(&mut self, replica: ReplicaId, model: ModelId) {
        let ready_at = self.pool.ready_since(replica);
        let ready_for = ready_at.map(|at| self.clock.now().since(at));
        let Some((peak, of)) = self.circumstances(replica, model) else {
            return;
        };
        if let Some(known) = self.usage.measurements().get(&of).copied()
            && let Some(faded) = peak_after_exit(known.peak_bytes_per_device, peak, ready_for)
        {
            self.keep_measurement(of, model, faded, known.reload);
        }
    }

    fn circumstances(&self, replica: ReplicaId, model: ModelId) -> Option<(Bytes, Circumstances)> {
        let name = self.models.get(model)?.entry.name.clone();
        let provider = self.provider_of(replica);
        self.engines.peak(replica, name, &self.devices, provider)
    }

    fn keep_measurement(&mut self, of: Circumstances, model: ModelId, peak: Bytes, reload: Span) {
        let measurement = Measurement {
            peak_bytes_per_device: peak,
            reload,
            at: self.clock.now(),
        };
        if !self.usage.measured(of.clone(), measurement) {
            return;
        }
        self.journal.write(Job::Measurement { of, measurement });
        let facts = self.models.get(model);
        let events = facts.map(|facts| self.usage.events(model, facts, &self.devices));
        if let Some(events) = events.filter(|events| !events.is_empty()) {
            self.turn_all(events);
        }
    }
}
