//! Figures of models that are counted and remembered between two writes to the store.

use std::collections::BTreeMap;

use pool::{ModelId, ModelView, Time};
use store::{Circumstances, Measurement, Measurements, Seconds, UsageMinute};

const MINUTE_MS: u64 = 60_000;

/// The minute of the Unix clock that is being counted. It is stored when it ends, which assigns waiting requests to the minute in
/// which their load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Minute(u64);

impl Minute {
    pub fn from_time(at: Time) -> Minute {
        Minute(at.0 / MINUTE_MS)
    }

    /// Minutes since 1970.
    pub fn number(self) -> u64 {
        self.0
    }

    pub fn end(self) -> Time {
        Time((self.0 + 1).saturating_mul(MINUTE_MS))
    }

    /// Returns the minute that has ended and starts counting the next one, or `None` within a minute.
    pub fn ended(&mut self, now: Time) -> Option<Minute> {
        (now >= self.end()).then(|| std::mem::replace(self, Minute::from_time(now)))
    }
}

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

    /// Sets a measurement. Returns the former one.
    pub fn measured(&mut self, of: Circumstances, measurement: Measurement) -> Option<Measurement> {
        self.measurements.insert(of, measurement)
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

    /// Adds seat-milliseconds.
    pub fn add_busy(&mut self, model: ModelId, seat_ms: u64) {
        *self.busy_ms.entry(model).or_default() += seat_ms;
    }

    /// The use of a model since the last call, under this minute. `None` if it was not used.
    pub fn take(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_recorded_under_the_wall_clock_minute_that_ends() {
        let at = |minute: u64, second: u64| Time(minute * MINUTE_MS + second * 1_000);
        // The controller started in the middle of a minute, and a load ends soon after.
        let mut minute = Minute::from_time(at(7, 40));
        assert_eq!(minute.ended(at(7, 50)), None);
        assert_eq!(minute.end(), at(8, 0));
        let ended = minute.ended(Time(at(8, 0).0 + 3));
        assert_eq!(ended.map(Minute::number), Some(7));
        assert_eq!(minute.ended(at(8, 59)), None);
        assert_eq!(minute.end(), at(9, 0));
        // The machine was suspended in the meantime.
        let ended = minute.ended(at(20, 5));
        assert_eq!(ended.map(Minute::number), Some(8));
        assert_eq!(minute.end(), at(21, 0));
    }
}
