//! Measures the memory of replicas (M1): stores the peaks that readings and engine processes report, and gives the pool the figures
//! for the existing models and devices. `src/pool/plan/measurement.rs` chooses among figures and fades them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::control::Control;
use crate::control::devices::kind_name;
use crate::journal::Job;
use crate::messages::{Change, FigureInputs, Message};
use catalog::Recipe;
use pool::{
    Bytes, DeviceId, Event, MeasuredPeak, ModelId, Record, RecordKind, ReplicaId, Span,
    peak_after_exit, peak_after_reading,
};
use store::{Circumstances, Measurement};

impl Control {
    pub(crate) fn known(&self) -> FigureInputs {
        FigureInputs {
            measurements: self.usage.measurements().clone(),
            kinds: self.devices.kinds.clone(),
            devices: self.devices.infos(),
            files: self.models.files_marks(),
        }
    }

    /// The known measurements of a model on the existing kinds of devices.
    pub(super) fn measured_events(&self, model: ModelId) -> Vec<Event> {
        let Some(facts) = self.models.facts.get(&model) else {
            return Vec::new();
        };
        let (entry, least) = (&facts.entry, facts.estimated);
        // A replica that fills its reservation always measures exactly that.
        if entry.memory.is_some() || entry.recipe.fills_its_reservation() {
            return Vec::new();
        }
        let arguments = facts.arguments();
        let known = self
            .usage
            .measurements()
            .iter()
            .filter(|(of, _)| of.model == entry.name && of.arguments == arguments);
        let event = |(of, measurement): (&Circumstances, &Measurement)| {
            let kind = *self.devices.kinds.get(&of.kind)?;
            // A cache that grows during use may not have been seen at its largest.
            let grows = !self.devices.provider.measures_devices()
                || matches!(entry.recipe, Recipe::Candle(_));
            let measured = MeasuredPeak {
                bytes_per_device: measurement.peak_bytes_per_device,
                may_grow: grows,
                as_configured: of.devices == entry.devices_per_replica,
                estimate: least,
            };
            Some(Event::ModelMeasured {
                model,
                devices: of.devices,
                kind,
                bytes_per_device: measured.planned_with()?,
            })
        };
        known.filter_map(event).collect()
    }

    /// The largest memory measured on any device of the replica, with the devices' kind and number. `None` for devices of several
    /// kinds, to which one figure does not apply.
    fn peak_of(&self, replica: ReplicaId) -> Option<(Bytes, String, u32)> {
        let process = self.engines.get(replica)?;
        let mut kinds: Vec<String> = process
            .devices
            .iter()
            .filter_map(|id| Some(kind_name(&self.devices.known.get(id)?.info)))
            .collect();
        let devices = u32::try_from(kinds.len()).ok()?;
        kinds.dedup();
        let [kind] = kinds.as_slice() else {
            return None;
        };
        // Host memory does not show what an engine takes on a GPU, where NVML measures it instead.
        let peak = match self.provider_of(replica) {
            provider if provider.measures_devices() => process.device_peak?,
            // The processes on other nodes do not report theirs.
            _ if !process.members.is_empty() => return None,
            _ => Bytes(process.peak?.0 / u64::from(devices)),
        };
        Some((peak, kind.clone(), devices))
    }

    /// Takes the measured memory of replicas from readings of these devices.
    pub(super) fn take_peaks(&mut self, read: &BTreeSet<DeviceId>) {
        let mut grown = Vec::new();
        for device in read.iter().filter_map(|id| self.devices.known.get(id)) {
            for (&replica, &bytes) in &device.own {
                if let Some(process) = self.engines.get_mut(replica)
                    && process.device_peak < Some(bytes)
                {
                    process.device_peak = Some(bytes);
                    // During a load, the peak is not reached yet.
                    if process.ready {
                        grown.push((replica, process.model));
                    }
                }
            }
        }
        grown.dedup();
        for (replica, model) in grown {
            self.measure(replica, model);
        }
    }

    /// Handles a load that found other weights than the model's figures describe: drops the measurements of the old weights, and
    /// computes the model's needs again (M1).
    pub(crate) fn weights_differ(&mut self, replica: ReplicaId, found: u64) {
        let Some(process) = self.engines.get_mut(replica) else {
            return;
        };
        let (model, now) = (process.model, self.clock.now());
        let facts = Arc::make_mut(&mut self.models.facts);
        let Some(facts) = facts
            .get_mut(&model)
            .filter(|known| known.weights != Some(found))
        else {
            return;
        };
        facts.weights = Some(found);
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
        let (peak, kind, devices) = self.peak_of(replica)?;
        let process = self.engines.get(replica)?;
        let of = Circumstances {
            model: self.models.facts.get(&model)?.entry.name.clone(),
            arguments: process.arguments.clone(),
            kind,
            devices,
        };
        Some((peak, of))
    }

    fn keep_measurement(&mut self, of: Circumstances, model: ModelId, peak: Bytes, reload: Span) {
        let measurement = Measurement {
            peak_bytes_per_device: peak,
            reload,
            at: self.clock.now(),
        };
        let known = self.usage.measured(of.clone(), measurement);
        let same = known
            .is_some_and(|before| (before.peak_bytes_per_device, before.reload) == (peak, reload));
        if same {
            return;
        }
        let events = self.measured_events(model);
        self.journal.write(Job::Measurement { of, measurement });
        if !events.is_empty() {
            self.turn_all(events);
        }
    }
}
