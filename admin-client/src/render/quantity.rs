//! Bytes, durations and times as text. Pure: the current time is an argument.

use chrono::{DateTime, Local, TimeDelta, Utc};
use serde_json::Value;

use crate::style::clean;
pub use terminal::bytes;
use terminal::two_units as pair;

/// Times further ahead than this show their date instead of their weekday.
const WEEKDAY_MAX: TimeDelta = TimeDelta::days(6);

/// `-` if the amount is unknown.
pub fn bytes_or_dash(amount: Option<u64>) -> String {
    amount.map_or_else(|| "-".to_owned(), bytes)
}

/// `850 ms`, `3.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`.
pub fn milliseconds(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60_000..3_600_000 => pair(seconds / 60, "min", seconds % 60, "s"),
        3_600_000..86_400_000 => pair(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// An expected time in seconds. The server may send any float.
pub fn seconds(value: f64) -> String {
    if value.is_finite() && value >= 0.0 {
        // Saturates, as float casts do.
        milliseconds((value * 1000.0).round() as u64)
    } else {
        "an unknown time".to_owned()
    }
}

/// The current time, and the time zone for output.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: DateTime<Utc>,
    pub zone: Zone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    Local,
    #[cfg(test)]
    Utc,
}

impl Clock {
    pub fn read() -> Clock {
        Clock {
            now: Utc::now(),
            zone: Zone::Local,
        }
    }

    /// `3 min 5 s ago` from an RFC 3339 time; the text itself if it is not one.
    pub fn ago(self, at: &str) -> String {
        match parse(at) {
            Some(then) => {
                let ms = (self.now - then).num_milliseconds();
                match u64::try_from(ms) {
                    Ok(ms) if ms >= 1000 => format!("{} ago", milliseconds(ms / 1000 * 1000)),
                    _ => "just now".to_owned(),
                }
            }
            None => clean(at),
        }
    }

    /// `8 min 20 s`, until an RFC 3339 time; `now` if it has passed.
    pub fn until(self, at: &str) -> String {
        match parse(at) {
            Some(then) => match u64::try_from((then - self.now).num_milliseconds()) {
                Ok(ms) if ms > 0 => milliseconds(ms),
                _ => "now".to_owned(),
            },
            None => clean(at),
        }
    }

    /// `2026-11-21 21:00:00`, in the local time zone.
    pub fn stamp(self, at: &str) -> String {
        self.formatted(at, "%Y-%m-%d %H:%M:%S")
    }

    /// `Fri 07:00`, in the local time zone; for moments within a week.
    pub fn weekday(self, at: &str) -> String {
        self.formatted(at, "%a %H:%M")
    }

    /// As a `weekday` if that names one moment, or else as a `stamp`.
    pub fn weekday_or_stamp(self, at: &str) -> String {
        match parse(at) {
            Some(then) if then - self.now > WEEKDAY_MAX => self.stamp(at),
            _ => self.weekday(at),
        }
    }

    /// `21:00:00`, in the local time zone.
    pub fn time_of_day(self, at: &str) -> String {
        self.formatted(at, "%H:%M:%S")
    }

    /// The text with each RFC 3339 time in it as a `stamp`. The pool writes them with milliseconds, in UTC.
    pub fn stamps_in(self, text: &str) -> String {
        let shown = |word: &str| {
            let at = word.trim_end_matches([':', ';', ',', '.', ')']);
            if at.len() == "2026-11-21T20:00:00.000Z".len() && parse(at).is_some() {
                self.stamp(at) + &word[at.len()..]
            } else {
                word.to_owned()
            }
        };
        let words: Vec<String> = text.split(' ').map(shown).collect();
        words.join(" ")
    }

    fn formatted(self, at: &str, format: &str) -> String {
        match (parse(at), self.zone) {
            (Some(then), Zone::Local) => then.with_timezone(&Local).format(format).to_string(),
            #[cfg(test)]
            (Some(then), Zone::Utc) => then.format(format).to_string(),
            (None, _) => clean(at),
        }
    }
}

/// The later of two RFC 3339 times. A valid time beats an invalid one.
pub fn later<'a>(a: &'a str, b: &'a str) -> &'a str {
    if parse(b) > parse(a) { b } else { a }
}

fn parse(at: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(at)
        .ok()
        .map(|time| time.with_timezone(&Utc))
}

/// An id, which may be a number or a string.
pub fn label(id: &Value) -> String {
    match id {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// `1 replica`, `2 replicas`.
pub fn count(n: usize, one: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        _ => format!("{n} {one}s"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// 2026-11-21T12:00:00Z, shown in UTC.
    pub fn noon() -> Clock {
        Clock {
            now: parse("2026-11-21T12:00:00Z").expect("a time"),
            zone: Zone::Utc,
        }
    }

    #[test]
    fn timestamps_within_text_are_converted_to_local_time() {
        let text = "since 2026-11-21T11:59:00.000Z: a (2026-11-21) and 2026-11-21T11:59:60Z  stay";
        assert_eq!(
            noon().stamps_in(text),
            "since 2026-11-21 11:59:00: a (2026-11-21) and 2026-11-21T11:59:60Z  stay"
        );
    }

    #[test]
    fn durations_use_at_most_two_units() {
        let cases = [
            (0, "0 ms"),
            (999, "999 ms"),
            (3_260, "3.2 s"),
            (60_000, "1 min"),
            (250_000, "4 min 10 s"),
            (7_500_000, "2 h 5 min"),
            (273_600_000, "3 d 4 h"),
        ];
        for (ms, text) in cases {
            assert_eq!(milliseconds(ms), text);
        }
    }

    #[test]
    fn times_with_any_utc_offset_are_shown_relative_to_now() {
        assert_eq!(noon().ago("2026-11-21T12:57:00+01:00"), "3 min ago");
        assert_eq!(noon().ago("2026-11-21T12:00:05Z"), "just now");
        assert_eq!(noon().until("2026-11-21T12:08:20.500Z"), "8 min 20 s");
        assert_eq!(noon().until("2026-11-21T11:00:00Z"), "now");
        assert_eq!(
            noon().stamp("2026-11-21T06:00:00-06:00"),
            "2026-11-21 12:00:00"
        );
        assert_eq!(noon().ago("yesterday"), "yesterday");
    }

    #[test]
    fn an_expectation_that_is_not_a_number_is_called_unknown() {
        assert_eq!(seconds(12.3), "12.3 s");
        assert_eq!(seconds(f64::NAN), "an unknown time");
        assert_eq!(seconds(-1.0), "an unknown time");
    }
}
