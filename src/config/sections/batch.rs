//! Section `batch`: files and batches of requests. The doc comments are the descriptions in the schema.

use chrono::{DateTime, TimeDelta, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch_nodes::BatchNodesSection;
use crate::problems::Problem;
use crate::values::{BatchHours, BucketFolder, Length, Size};
use pool::{Bytes, Span};

/// Batches: files of requests that run in seats and memory that others leave free (B4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchSection {
    /// Times at which the load of a model for a batch may have an idle model of priority 0 leave: `always`, `never`, or a cron
    /// expression with seconds for the start of such a time. At other times batches use only free memory.
    pub hours: BatchHours,
    /// Duration of the time that a cron expression of `hours` starts; 1m to 7 days.
    pub hours_for: Length,
    /// If true, the load of a model for a batch may also have an idle model of priority 0 leave at other times, once the deadline
    /// requires the load.
    pub deadline_evicts: bool,
    /// Nodes that may be requested from the cluster for batches; null: none.
    pub nodes: Option<BatchNodesSection>,
    /// Largest size of an uploaded file, uncompressed; 1KiB or more.
    pub files_max: Size,
    /// Largest number of requests of a file, 1 to 10000000.
    pub requests_max: u32,
    /// Largest size of a request in a file; 1KiB to 1GiB.
    pub request_max: Size,
    /// Maximum files per key, uploads and results; 1 to 1000000.
    pub per_key: u32,
    /// Maximum disk space of a key's files; at least `files_max`.
    pub per_key_size: Size,
    /// Retention of files whose upload sets no expiry, and of the records of batches; 1h or more.
    pub keep: Length,
    /// Folder in a bucket for files and results, `s3://name/folder` or `gs://name/folder`; null: files are only below `state.dir`.
    /// Credentials come from the environment.
    pub bucket: Option<BucketFolder>,
}

impl Default for BatchSection {
    fn default() -> BatchSection {
        BatchSection {
            hours: BatchHours::Always,
            hours_for: Length::from_secs(8 * 3600),
            deadline_evicts: false,
            nodes: None,
            files_max: Size(Bytes(2 * Bytes::GIB)),
            requests_max: 1_000_000,
            request_max: Size(Bytes(20 * Bytes::MIB)),
            per_key: 10_000,
            per_key_size: Size(Bytes(16 * Bytes::GIB)),
            keep: Length::from_secs(30 * 24 * 3600),
            bucket: None,
        }
    }
}

const HOURS_FOR: (Length, Length) = (
    Length(Span::from_secs(60)),
    Length(Span::from_secs(7 * 24 * 3600)),
);
/// The days and the occurrences of `hours` that a forecast looks ahead.
const DAYS_AHEAD: i64 = 31;
const CHANGES_MAX: usize = 128;
const KEEP_MIN: Length = Length(Span::from_secs(3600));
const SIZE_MIN: Bytes = Bytes(1 << 10);
const REQUESTS_MAX: u32 = 10_000_000;
const PER_KEY_MAX: u32 = 1_000_000;

impl BatchSection {
    /// Returns true if idle models may leave for a batch at this time.
    pub fn is_within_hours(&self, now: DateTime<Utc>, zone: chrono_tz::Tz) -> bool {
        match &self.hours {
            BatchHours::Always => true,
            BatchHours::Never => false,
            BatchHours::From(cron) => {
                let long = i64::try_from(self.hours_for.0.0).unwrap_or(i64::MAX);
                let since = now - TimeDelta::milliseconds(long);
                cron.next_after(since, zone).is_some_and(|at| at <= now)
            }
        }
    }

    /// The times from which idle models may leave for a batch, or no longer: at `now`, then at each change, as far ahead as forecasts
    /// look. The number of changes is limited.
    pub fn hours_ahead(
        &self,
        now: DateTime<Utc>,
        zone: chrono_tz::Tz,
    ) -> Vec<(DateTime<Utc>, bool)> {
        let mut changes = vec![(now, self.is_within_hours(now, zone))];
        let BatchHours::From(cron) = &self.hours else {
            return changes;
        };
        let long = TimeDelta::milliseconds(i64::try_from(self.hours_for.0.0).unwrap_or(i64::MAX));
        let (mut at, end) = (now - long, now + TimeDelta::days(DAYS_AHEAD));
        for _ in 0..CHANGES_MAX {
            let Some(begins) = cron.next_after(at, zone).filter(|begins| *begins <= end) else {
                break;
            };
            at = begins;
            // Times that overlap are one.
            changes.retain(|(change, may_evict)| *may_evict || *change < begins);
            let is_within = changes.last().is_some_and(|(_, may_evict)| *may_evict);
            if begins > now && !is_within {
                changes.push((begins, true));
            }
            changes.push((begins + long, false));
        }
        changes
    }

    /// All problems of this section.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut unless = |holds: bool, key: &str, message: String| {
            if !holds {
                problems.push(Problem::new(format!("batch.{key}"), message));
            }
        };
        let (least, most) = HOURS_FOR;
        unless(
            (least..=most).contains(&self.hours_for),
            "hours_for",
            format!("is {}; allowed: {least} to {most}", self.hours_for),
        );
        unless(
            self.files_max.0 >= SIZE_MIN,
            "files_max",
            format!("is {}; allowed: 1KiB and more", self.files_max),
        );
        unless(
            (1..=REQUESTS_MAX).contains(&self.requests_max),
            "requests_max",
            format!("is {}; allowed: 1 to {REQUESTS_MAX}", self.requests_max),
        );
        unless(
            (SIZE_MIN..=Bytes(Bytes::GIB)).contains(&self.request_max.0),
            "request_max",
            format!("is {}; allowed: 1KiB to 1GiB", self.request_max),
        );
        unless(
            (1..=PER_KEY_MAX).contains(&self.per_key),
            "per_key",
            format!("is {}; allowed: 1 to {PER_KEY_MAX}", self.per_key),
        );
        unless(
            self.per_key_size >= self.files_max,
            "per_key_size",
            format!(
                "is {}, less than batch.files_max ({})",
                self.per_key_size, self.files_max
            ),
        );
        unless(
            self.keep >= KEEP_MIN,
            "keep",
            format!("is {}; allowed: 1h to 10 years", self.keep),
        );
        problems.extend(self.nodes.iter().flat_map(BatchNodesSection::problems));
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_begin_at_each_occurrence_and_last_for_their_duration() {
        let section = |hours: &str| BatchSection {
            hours: hours.parse().expect("hours"),
            ..BatchSection::default()
        };
        let at = |hour: i64| DateTime::UNIX_EPOCH + TimeDelta::hours(24 * 365 + hour);
        let zone = chrono_tz::UTC;
        let night = section("0 0 21 * * *");
        for (hour, expected) in [(20, false), (21, true), (28, true), (29, false), (45, true)] {
            assert_eq!(night.is_within_hours(at(hour), zone), expected, "{hour}");
        }
        assert!(section("always").is_within_hours(at(3), zone));
        assert!(!section("never").is_within_hours(at(3), zone));
        let ahead = |text: &str, hour| {
            let changes = section(text).hours_ahead(at(hour), zone);
            let hours = changes.into_iter().take(4);
            let hours = hours.map(|(change, may)| ((change - at(0)).num_hours(), may));
            hours.collect::<Vec<_>>()
        };
        let night = "0 0 21 * * *";
        let evenings = [(20, false), (21, true), (29, false), (45, true)];
        assert_eq!(ahead(night, 20), evenings);
        let within = [(22, true), (29, false), (45, true), (53, false)];
        assert_eq!(ahead(night, 22), within);
        assert_eq!(ahead("always", 3), [(3, true)]);
        // Each occurrence continues the one before.
        let hourly = section("0 0 * * * *").hours_ahead(at(3), zone);
        assert_eq!(hourly.len(), 2, "{hourly:?}");
        let wrong = "sometimes".parse::<BatchHours>().unwrap_err().to_string();
        assert!(wrong.contains("\"always\" or \"never\""), "{wrong}");
    }
}
