//! The speeds at which the models run batch requests.

use std::collections::BTreeMap;

use pool::Time;

/// The shortest time of a measurement, in milliseconds.
const MEASURED_MS: u64 = 5_000;

/// The speed at which a model's requests end while batches run on it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Speed {
    since: Option<Time>,
    ended: u64,
    /// Requests per 1,000 seconds; 0 if unknown.
    rate: u64,
}

/// The speeds of models, by name.
#[derive(Debug, Default)]
pub(super) struct Speeds(BTreeMap<String, Speed>);

impl Speeds {
    /// The speed of a model.
    pub fn of_model(&mut self, name: &str) -> &mut Speed {
        self.0.entry(name.to_owned()).or_default()
    }
}

impl Speed {
    /// Requests per 1,000 seconds, once it was measured.
    pub fn rate(&self) -> Option<u64> {
        (self.rate > 0).then_some(self.rate)
    }

    /// Begins with the speed that an earlier process has measured.
    pub fn begin_with(&mut self, rate: u64) {
        if self.rate == 0 {
            self.rate = rate;
        }
    }

    /// A request has ended.
    pub fn ended(&mut self) {
        self.ended += 1;
    }

    /// Measures while requests run.
    pub fn tick(&mut self, now: Time, in_flight: u64) {
        let since = *self.since.get_or_insert(now);
        let passed = now.since(since).0;
        if in_flight == 0 && self.ended == 0 {
            self.since = Some(now);
        } else if passed >= MEASURED_MS && self.ended > 0 {
            let rate = self.ended * 1_000_000 / passed;
            self.rate = if self.rate == 0 {
                rate.max(1)
            } else {
                ((self.rate * 3 + rate) / 4).max(1)
            };
            (self.since, self.ended) = (Some(now), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_measured_only_while_requests_run() {
        let mut speed = Speed::default();
        speed.tick(Time(0), 0);
        speed.tick(Time(100_000), 0);
        speed.ended += 10;
        speed.tick(Time(105_000), 4);
        assert_eq!(speed.rate, 2_000, "two a second");
        speed.tick(Time(200_000), 0);
        assert_eq!(speed.rate, 2_000);
    }
}
