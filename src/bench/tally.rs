//! The results of all requests: counts, failures by kind, and times in histograms with three digits
//! (HdrHistogram).

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::response::RequestResult;

/// Longer times are recorded as this value.
const LONGEST_NS: u64 = 6 * 3600 * 1_000_000_000;

#[derive(Debug)]
pub struct Tally {
    pub succeeded: u64,
    pub failed: BTreeMap<String, FailureCount>,
    pub bytes: u64,
    pub prompt_tokens: u64,
    pub tokens: u64,
    /// Only successful requests.
    pub latency: Times,
    pub first_token: Times,
    pub between_tokens: Times,
    /// Delays between the time a request was due and the time it was sent.
    pub late: Times,
}

#[derive(Clone, Debug, Default)]
pub struct FailureCount {
    pub count: u64,
    /// The message of the first failure.
    pub message: String,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            succeeded: 0,
            failed: BTreeMap::new(),
            bytes: 0,
            prompt_tokens: 0,
            tokens: 0,
            latency: Times::new(),
            first_token: Times::new(),
            between_tokens: Times::new(),
            late: Times::new(),
        }
    }
}

impl Tally {
    pub fn count(&mut self, response: RequestResult) {
        self.bytes += response.bytes;
        self.late.record(response.late);
        if let Some(fault) = response.fault {
            let failed = self
                .failed
                .entry(fault.label)
                .or_insert_with(|| FailureCount {
                    count: 0,
                    message: fault.message,
                });
            failed.count += 1;
            return;
        }
        self.succeeded += 1;
        self.prompt_tokens = self.prompt_tokens.saturating_add(response.prompt_tokens);
        self.tokens = self.tokens.saturating_add(response.tokens);
        self.latency.record(response.took);
        if let Some(first) = response.first_token {
            self.first_token.record(first);
        }
        for gap in response.gaps {
            self.between_tokens.record(gap);
        }
    }

    pub fn failures(&self) -> u64 {
        self.failed.values().map(|failed| failed.count).sum()
    }
}

#[derive(Debug)]
pub struct Times(Histogram<u64>);

impl Times {
    fn new() -> Times {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Times(histogram.expect("fixed bounds of three digits"))
    }

    fn record(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS);
        self.0.saturating_record(nanoseconds.max(1));
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// Returns a percentile, such as 99.9.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::RequestError;

    #[test]
    fn percentiles_match_the_recorded_times() {
        let mut times = Times::new();
        for milliseconds in 1..=1000 {
            times.record(Duration::from_millis(milliseconds));
        }
        let near = |percent: f64, expected: f64| {
            let found = times.percentile(percent).as_secs_f64() * 1000.0;
            assert!((found / expected - 1.0).abs() < 0.002, "{percent}: {found}");
        };
        near(50.0, 500.0);
        near(99.0, 990.0);
        near(99.9, 999.0);
        assert_eq!(times.count(), 1000);
    }

    #[test]
    fn a_failure_is_counted_by_its_kind_and_not_timed() {
        let mut tally = Tally::default();
        for words in ["first", "second"] {
            tally.count(RequestResult {
                fault: Some(RequestError::new("503", words)),
                ..RequestResult::default()
            });
        }
        tally.count(RequestResult {
            tokens: 3,
            took: Duration::from_secs(1),
            ..RequestResult::default()
        });
        assert_eq!((tally.succeeded, tally.failures(), tally.tokens), (1, 2, 3));
        let failed = &tally.failed["503"];
        assert_eq!((failed.count, failed.message.as_str()), (2, "first"));
        assert_eq!(tally.latency.count(), 1);
    }
}
