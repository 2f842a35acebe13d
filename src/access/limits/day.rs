//! Days from midnight to midnight in the service's time zone.

use chrono::{DateTime, NaiveDate, TimeZone, Utc};
use chrono_tz::Tz;

use pool::{Span, Time};

/// A day in the service's time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Day {
    /// Days since 1970.
    pub number: i64,
    /// Time until the next day begins.
    pub rest: Span,
}

impl Day {
    pub fn from_time(at: Time, timezone: Tz) -> Day {
        let moment = i64::try_from(at.0).unwrap_or(i64::MAX);
        let utc: DateTime<Utc> = Utc
            .timestamp_millis_opt(moment)
            .earliest()
            .unwrap_or_default();
        let date = utc.with_timezone(&timezone).date_naive();
        let number = date.signed_duration_since(NaiveDate::default()).num_days();
        let midnight = date.succ_opt().unwrap_or(date).and_hms_opt(0, 0, 0);
        // If clocks go forward at midnight, the day begins later.
        let next = midnight.and_then(|midnight| {
            (0..4).find_map(|hours| {
                timezone
                    .from_local_datetime(&(midnight + chrono::Duration::hours(hours)))
                    .earliest()
            })
        });
        let rest = next.map_or(0, |next| (next.to_utc() - utc).num_milliseconds());
        Day {
            number,
            rest: Span(u64::try_from(rest).unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daily_limit_resets_at_local_midnight_on_a_25_hour_day() {
        // 2026-11-01 05:30 UTC is 00:30 in Chicago, on a day of 25 hours.
        let at = Time(1_793_511_000_000);
        let day = Day::from_time(at, chrono_tz::America::Chicago);
        assert_eq!(day.rest, Span::from_secs(24 * 3600 + 1800));
        let later = Day::from_time(at + day.rest, chrono_tz::America::Chicago);
        assert_eq!(later.number, day.number + 1);
        assert_eq!(Day::from_time(Time(0), chrono_tz::UTC).number, 0);
    }
}
