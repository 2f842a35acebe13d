//! Figures of models that are measured, counted and remembered between two writes to the store.

use std::collections::BTreeMap;

use super::devices::Devices;
use super::engines::Engines;
use super::publication::Publishing;
use crate::gates::Minute;
use crate::view::ModelFacts;
use catalog::Recipe;
use pool::{Event, MeasuredPeak, ModelId, ModelView, Span};
use store::{Circumstances, Measurement, Measurements, Seconds, UsageMinute};

#[derive(Default)]
pub(crate) struct Usage {
    measurements: Measurements,
    /// Remembered demand, as stored.
    remembered: BTreeMap<ModelId, Vec<u64>>,
    /// Seat-milliseconds since the last write.
    busy_ms: BTreeMap<ModelId, u64>,
    /// Requests that had been seated at the last write.
    seated: BTreeMap<ModelId, u64>,
    /// Requests that had waited at the last write, and their total wait in milliseconds.
    waited: BTreeMap<ModelId, (u64, u64)>,
    /// Requests with a target at the last write: in time, and late.
    first_tokens: BTreeMap<ModelId, (u64, u64)>,
}

impl Usage {
    pub fn new(measurements: Measurements) -> Usage {
        Usage {
            measurements,
            ..Usage::default()
        }
    }

    pub fn measurements(&self) -> &Measurements {
        &self.measurements
    }

    /// Sets a measurement. Returns true if its figures have changed.
    pub fn measured(&mut self, of: Circumstances, measurement: Measurement) -> bool {
        let figures =
            |measurement: &Measurement| (measurement.peak_bytes_per_device, measurement.reload);
        let before = self.measurements.insert(of, measurement);
        before.as_ref().map(figures) != Some(figures(&measurement))
    }

    /// The known measurements of a model on the existing kinds of devices (M1).
    pub fn events(&self, model: ModelId, facts: &ModelFacts, devices: &Devices) -> Vec<Event> {
        let (entry, least) = (&facts.entry, facts.estimated);
        // A replica that fills its reservation always measures exactly that.
        if entry.memory.is_some() || entry.recipe.fills_its_reservation() {
            return Vec::new();
        }
        let arguments = facts.arguments();
        let known = self
            .measurements
            .iter()
            .filter(|(of, _)| of.model == entry.name && of.arguments == arguments);
        let event = |(of, measurement): (&Circumstances, &Measurement)| {
            let kind = *devices.kinds().get(&of.kind)?;
            // A cache that grows during use may not have been seen at its largest.
            let grows =
                !devices.provider().measures_devices() || matches!(entry.recipe, Recipe::Candle(_));
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

    /// Returns true if the remembered demand of the model has changed, and takes the new one.
    pub fn remember(&mut self, model: ModelId, numbers: &[u64]) -> bool {
        let known = self.remembered.get(&model);
        if known.is_some_and(|known| known == numbers) {
            return false;
        }
        self.remembered.insert(model, numbers.to_vec());
        true
    }

    /// Adds up the seats taken since the last turn.
    pub fn count_seats(&mut self, engines: &Engines, elapsed: Span) {
        for (replica, in_flight) in engines.busy() {
            if let Some(facts) = engines.get(replica) {
                let seat_ms = u64::from(in_flight) * elapsed.0;
                *self.busy_ms.entry(facts.model).or_default() += seat_ms;
            }
        }
    }

    /// The use since the last call, under this minute. Counts only what has been published.
    pub fn take_minutes(&mut self, publishing: &Publishing, minute: Minute) -> Vec<UsageMinute> {
        let mut minutes = Vec::new();
        for model in &publishing.snapshot.load().pool.models {
            let route = publishing.route(model.model);
            let seconds = route.as_ref().map(|route| route.arrivals.take(minute));
            let first_tokens = route.as_ref().map(|route| route.first_tokens.counts());
            let first_tokens = first_tokens.unwrap_or_default();
            minutes.extend(self.take(model, minute, seconds, first_tokens));
        }
        minutes
    }

    /// The use of a model since the last call, under this minute. `None` if it was not used.
    fn take(
        &mut self,
        model: &ModelView,
        minute: Minute,
        seconds: Option<Seconds>,
        first_tokens: (u64, u64),
    ) -> Option<UsageMinute> {
        let saved = self.seated.insert(model.model, model.seated);
        let requests = model.seated.saturating_sub(saved.unwrap_or(0));
        let waits = (model.waits, model.waits_took.0);
        let before = self.waited.insert(model.model, waits).unwrap_or_default();
        let busy_ms = self.busy_ms.remove(&model.model).unwrap_or(0);
        let known = self.first_tokens.insert(model.model, first_tokens);
        let known = known.unwrap_or_default();
        let in_time = first_tokens.0.saturating_sub(known.0);
        let late = first_tokens.1.saturating_sub(known.1);
        (requests + busy_ms + in_time + late > 0).then(|| UsageMinute {
            minute: minute.number(),
            model: model.name.clone(),
            requests,
            busy_ms,
            waited: waits.0.saturating_sub(before.0),
            waited_ms: waits.1.saturating_sub(before.1),
            in_time,
            late,
            // Some may have come at the end of the previous minute.
            seconds: seconds.filter(|seconds| requests == 0 || !seconds.is_empty()),
        })
    }
}
