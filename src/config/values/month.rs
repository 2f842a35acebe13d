//! Months by day numbers, and the time at which a month ends in a time zone.

use std::fmt;
use std::str::FromStr;

use chrono::{Datelike, Duration, Months, NaiveDate, TimeZone};
use chrono_tz::Tz;
use pool::Time;

use super::units::ParseValueError;

/// A month, as its first day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(NaiveDate);

impl Month {
    /// The month of a day since 1970.
    pub fn of_day(day: i64) -> Month {
        let date = Duration::try_days(day)
            .and_then(|days| NaiveDate::default().checked_add_signed(days))
            .unwrap_or_default();
        Month(date.with_day(1).unwrap_or(date))
    }

    /// Its first and last day since 1970.
    pub fn days(self) -> (i64, i64) {
        let number = |date: NaiveDate| date.signed_duration_since(NaiveDate::default()).num_days();
        let next = self.0.checked_add_months(Months::new(1));
        (number(self.0), next.map_or(i64::MAX, number) - 1)
    }

    /// The first day of the next month, as in `2026-12-01`.
    pub fn next_day(self) -> String {
        let next = self.0.checked_add_months(Months::new(1));
        next.unwrap_or(self.0).format("%Y-%m-%d").to_string()
    }

    /// The first moment of the next month in the zone.
    pub fn end(self, zone: Tz) -> Time {
        let next = self.0.checked_add_months(Months::new(1));
        let midnight = next.unwrap_or(self.0).and_hms_opt(0, 0, 0);
        // If clocks go forward at midnight, the day begins later.
        let next = midnight.and_then(|midnight| {
            (0..4).find_map(|hours| {
                zone.from_local_datetime(&(midnight + Duration::hours(hours)))
                    .earliest()
            })
        });
        let milliseconds = next.map_or(0, |next| next.timestamp_millis());
        Time(u64::try_from(milliseconds).unwrap_or(0))
    }
}

impl FromStr for Month {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Month, ParseValueError> {
        let digits = text.len() == 7 && text.bytes().filter(u8::is_ascii_digit).count() == 6;
        let first = NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d").ok();
        let first = first.filter(|first| digits && first.year() >= 1970);
        first.map(Month).ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            ParseValueError(format!(
                "{shown:?} is not a month; write one such as \"2026-11\""
            ))
        })
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.format("%Y-%m"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_has_its_days_and_ends_at_local_midnight() {
        let month: Month = "2026-11".parse().unwrap();
        let (first, last) = month.days();
        assert_eq!(last - first, 29);
        assert_eq!((Month::of_day(first), Month::of_day(last)), (month, month));
        assert!(Month::of_day(last + 1) > month);
        assert_eq!(
            (month.to_string(), month.next_day()),
            ("2026-11".into(), "2026-12-01".into())
        );
        // 2026-12-01 00:00 in Berlin is 23:00 UTC.
        let hour = 3_600_000;
        let end = u64::try_from(last + 1).unwrap() * 24 * hour - hour;
        assert_eq!(month.end(chrono_tz::Europe::Berlin), Time(end));
        assert_eq!(Month::of_day(i64::MAX), Month::of_day(0));
    }

    #[test]
    fn other_texts_are_not_months() {
        for wrong in [
            "2026-13",
            "2026-1",
            "2026",
            "26-01",
            "2026-11-01",
            "+026-11",
            "1969-12",
        ] {
            assert!(wrong.parse::<Month>().is_err(), "{wrong}");
        }
    }
}
