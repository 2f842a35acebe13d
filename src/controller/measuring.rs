//! Measures what replicas take (M1): keeps the peaks that readings and the engines' processes report in the store, and
//! gives the pool the figures for the models and devices that are there. Which figure counts, and how it fades, is
//! `src/pool/plan/measurement.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::catalog_change::{Change, Known};
use super::control::Control;
use super::devices::kind_name;
use super::keeper::Job;
use super::message::Message;
use catalog::Recipe;
use config::Provider;
use pool::{
    Bytes, DeviceId, Event, MeasuredPeak, ModelId, Record, RecordKind, ReplicaId, Span,
    peak_after_exit, peak_after_reading,
};
use store::{Circumstances, Measurement};

impl Control {
    pub(super) fn known(&self) -> Known {
        Known {
            measurements: self.usage.measurements.clone(),
            kinds: self.devices.kinds.clone(),
            devices: self.devices.infos(),
            files: self.models.files_marks(),
        }
    }

    /// What is known of a model on the kinds of devices that are there.
    pub(super) fn measured_events(&self, model: ModelId) -> Vec<Event> {
        let Some(facts) = self.models.facts.get(&model) else {
            return Vec::new();
        };
        let (entry, least) = (&facts.entry, facts.estimated);
        // What fills its reservation was seen to take just that.
        if entry.memory.is_some() || entry.recipe.fills_its_reservation() {
            return Vec::new();
        }
        let arguments = facts.arguments();
        let known = self
            .usage
            .measurements
            .iter()
            .filter(|(of, _)| of.model == entry.name && of.arguments == arguments);
        let event = |(of, it): (&Circumstances, &Measurement)| {
            let kind = *self.devices.kinds.get(&of.kind)?;
            // A cache that grows while it is used may not have been seen at its largest.
            let grows = self.devices.provider != Provider::Nvml
                || matches!(entry.recipe, Recipe::Candle(_));
            let measured = MeasuredPeak {
                bytes_per_device: it.peak_bytes_per_device,
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

    /// The most that the replica was seen to hold on one of its devices, and what its devices are;
    /// `None` for devices of several kinds, of which one figure says nothing.
    fn peak_of(&self, replica: ReplicaId) -> Option<(Bytes, String, u32)> {
        let process = self.engines.processes.get(&replica)?;
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
        // Host memory says nothing of what an engine takes on a GPU; that is read there.
        let peak = match self.provider_of(replica) {
            Provider::Nvml => process.device_peak?,
            _ => Bytes(process.peak?.0 / u64::from(devices)),
        };
        Some((peak, kind.clone(), devices))
    }

    /// Takes what readings say of replicas' memory on these devices.
    pub(super) fn take_peaks(&mut self, read: &BTreeSet<DeviceId>) {
        let mut grown = Vec::new();
        for device in read.iter().filter_map(|id| self.devices.known.get(id)) {
            for (&replica, &bytes) in &device.own {
                if let Some(process) = self.engines.processes.get_mut(&replica)
                    && process.device_peak < Some(bytes)
                {
                    process.device_peak = Some(bytes);
                    // While it loads, the peak is not reached yet.
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

    /// A load found other weights than the model's figures are of: what was measured was of the old
    /// ones, and what is needed is worked out anew (M1).
    pub(super) fn weights_differ(&mut self, replica: ReplicaId, found: u64) {
        let Some(process) = self.engines.processes.get_mut(&replica) else {
            return;
        };
        let (model, now) = (process.model, self.clock.now());
        let facts = Arc::make_mut(&mut self.models.facts);
        let Some(facts) = facts.get_mut(&model).filter(|it| it.weights != Some(found)) else {
            return;
        };
        facts.weights = Some(found);
        process.arguments = facts.arguments();
        let name = facts.entry.name.clone();
        let reason = "its weights are not those that were there when its memory was last worked out; it is worked out anew, and what was measured of the old ones no longer counts (M1)";
        tracing::info!(%replica, model = name, "{reason}");
        let _ = self.jobs.send(Job::Record(Record {
            at: now,
            kind: RecordKind::Set,
            model: Some(name.clone()),
            replica: Some(replica),
            order: None,
            reason: reason.to_owned(),
            priority: None,
            placement: Vec::new(),
            candidates: Vec::new(),
            memory: Vec::new(),
            took: None,
            cause: None,
            asked_by: None,
            explanation: None,
        }));
        self.models.changes.push_back(Message::Figure {
            name,
            then: Change::Figure,
        });
        self.next_change();
    }

    /// Keeps what a ready replica takes if that is more than was known, and its load time. A load that has not become
    /// ready tells neither: it may end before its engine takes all that it needs.
    pub(super) fn measure(&mut self, replica: ReplicaId, model: ModelId) {
        let process = self.engines.processes.get(&replica);
        let Some(process) = process.filter(|it| it.ready) else {
            return;
        };
        // In the store 0 ms means that the load time is unknown.
        let took = process.took.map(|it| it.max(Span(1)));
        let Some((peak, of)) = self.circumstances(replica, model) else {
            return;
        };
        let known = self.usage.measurements.get(&of).copied();
        // An adopted engine was loaded by an earlier controller, which has kept the load time if it lived long enough.
        let Some(reload) = took.or(known.map(|it| it.reload)) else {
            return;
        };
        let peak = peak_after_reading(known.map(|it| it.peak_bytes_per_device), peak);
        self.keep_measurement(of, model, peak, reload);
    }

    /// The life of the replica is over: a kept peak that it did not come near fades.
    pub(super) fn measured_to_the_end(&mut self, replica: ReplicaId, model: ModelId) {
        let ready_at = self.pool.ready_since(replica);
        let ready_for = ready_at.map(|at| self.clock.now().since(at));
        let Some((peak, of)) = self.circumstances(replica, model) else {
            return;
        };
        if let Some(known) = self.usage.measurements.get(&of).copied()
            && let Some(faded) = peak_after_exit(known.peak_bytes_per_device, peak, ready_for)
        {
            self.keep_measurement(of, model, faded, known.reload);
        }
    }

    fn circumstances(&self, replica: ReplicaId, model: ModelId) -> Option<(Bytes, Circumstances)> {
        let (peak, kind, devices) = self.peak_of(replica)?;
        let process = self.engines.processes.get(&replica)?;
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
        let known = self.usage.measurements.insert(of.clone(), measurement);
        let same = known.is_some_and(|it| (it.peak_bytes_per_device, it.reload) == (peak, reload));
        if same {
            return;
        }
        let events = self.measured_events(model);
        let _ = self.jobs.send(Job::Measurement { of, measurement });
        if !events.is_empty() {
            self.turn_all(events);
        }
    }
}
