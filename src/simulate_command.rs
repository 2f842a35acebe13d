//! `model-pool simulate`, with the devices, the memory and the evening schedule that `serve` would have here.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone, Utc};

use crate::devices;
use crate::serve::evening;
use config::Config;
use pool::{Span, Time};
use schedule::{Evening, EveningState};
use simulate::{Environment, Evenings, SimulateArgs};

/// The day on which a workload without dates begins: a Monday.
const UNDATED: (i32, u32, u32) = (2026, 1, 5);

/// # Errors
/// As [`simulate::run`].
pub fn run(args: &SimulateArgs) -> Result<(), String> {
    simulate::run(
        args,
        &Environment {
            devices: &devices::found,
            memory: inventory::machine_memory().map(|machine| machine.total),
            evenings: &evenings,
        },
    )
}

/// Cleanups and reopenings of a replay that begins at a time in milliseconds since 1970, or at midnight.
fn evenings(config: &Config, start: Option<u64>, length: Span) -> Result<Evenings, String> {
    let evening = evening::from_config(config)?;
    let dated = start.and_then(|start| DateTime::from_timestamp_millis(i64::try_from(start).ok()?));
    let start = dated.unwrap_or_else(|| undated_start(&evening));
    let length = TimeDelta::milliseconds(i64::try_from(length.0).unwrap_or(i64::MAX / 2));
    let end = start.checked_add_signed(length).unwrap_or(start);
    let state = evening.state_at(start);
    let local = start.with_timezone(&evening.zone());
    let mut reopenings = occurrences(&evening, start, end, |state| state.next_reopen);
    // The last evening has a morning after the end of the replay.
    let after = evening.state_at(end).next_reopen;
    reopenings.extend(after.map(|at| since(start, at)));
    Ok(Evenings {
        starts_closed: state.closed,
        cleanups: occurrences(&evening, start, end, |state| state.next_cleanup),
        reopenings,
        start: local.format("%a %Y-%m-%d %H:%M %Z").to_string(),
    })
}

fn undated_start(evening: &Evening) -> DateTime<Utc> {
    let (year, month, day) = UNDATED;
    let day = NaiveDate::from_ymd_opt(year, month, day).unwrap_or_default();
    let midnight = NaiveDateTime::new(day, NaiveTime::MIN);
    let local = evening.zone().from_local_datetime(&midnight).earliest();
    local.map_or_else(|| midnight.and_utc(), |local| local.to_utc())
}

/// The times after the start, up to and including the end.
fn occurrences(
    evening: &Evening,
    start: DateTime<Utc>,
    end: DateTime<Utc>,
    next: fn(EveningState) -> Option<DateTime<Utc>>,
) -> Vec<Time> {
    let mut found = Vec::new();
    let mut last = start;
    while let Some(at) = next(evening.state_at(last)).filter(|at| *at <= end) {
        found.push(since(start, at));
        last = at;
    }
    found
}

fn since(start: DateTime<Utc>, at: DateTime<Utc>) -> Time {
    Time(u64::try_from((at - start).num_milliseconds()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn with(section: &str) -> Config {
        let evening: serde_json::Value = serde_json::from_str(section).expect("JSON");
        serde_json::from_value(serde_json::json!({ "evening": evening })).expect("a configuration")
    }

    fn hours(times: &[Time]) -> Vec<u64> {
        times.iter().map(|time| time.0 / HOUR).collect()
    }

    #[test]
    fn a_workload_without_dates_begins_at_midnight_in_the_zone() {
        let config = with(r#"{"timezone": "Asia/Tokyo"}"#);
        let found = evenings(&config, None, Span(60 * HOUR)).expect("a schedule");
        assert!(found.starts_closed);
        assert_eq!(hours(&found.cleanups), [21, 45]);
        assert_eq!(hours(&found.reopenings), [7, 31, 55, 79]);
        assert!(
            found.start.starts_with("Mon 2026-01-05 00:00"),
            "{}",
            found.start
        );
    }

    #[test]
    fn a_dated_workload_keeps_its_own_times_across_a_clock_change() {
        let config = with(r#"{"timezone": "Europe/Berlin"}"#);
        // Saturday at noon; the clocks of Sunday go forward.
        let start: DateTime<Utc> = "2026-03-28T11:00:00Z".parse().expect("a time");
        let start = u64::try_from(start.timestamp_millis()).ok();
        let found = evenings(&config, start, Span(48 * HOUR)).expect("a schedule");
        assert!(!found.starts_closed);
        assert_eq!(hours(&found.cleanups), [9, 32]);
        assert_eq!(hours(&found.reopenings), [18, 42, 66]);
    }

    #[test]
    fn a_schedule_without_reopening_has_no_morning() {
        let config = with(r#"{"timezone": "UTC", "reopen": null}"#);
        let found = evenings(&config, None, Span(24 * HOUR)).expect("a schedule");
        assert!(!found.starts_closed);
        assert_eq!(hours(&found.cleanups), [21]);
        assert_eq!(found.reopenings, []);
    }
}
