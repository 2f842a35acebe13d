//! Cron expressions. The error for an invalid expression names the wrong field and its range. Expressions that never occur are
//! refused, too.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use super::units::{ParseValueError, written_as_text};

/// The name and allowed values of each field.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31"),
    ("month", "1 to 12, or JAN to DEC"),
    ("weekday", "0 (Sunday) to 7, or SUN to SAT"),
];
const ADVICE: &str = "write six fields `second minute hour day month weekday`, such as \"0 0 21 * * *\" for every day at 21:00, or null to switch it off";
/// Number of occurrences to compare between two expressions.
const COMPARED: usize = 100;

/// A recurring time with six fields, starting with the second. Interpreted in `evening.timezone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronExpression(String);

impl CronExpression {
    /// Every day at this hour, 0 to 23.
    pub(crate) fn daily(hour: u8) -> CronExpression {
        CronExpression(format!("0 0 {hour} * * *"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first occurrence after `now` in this zone.
    pub fn next_after(&self, now: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        let cron = parsed(&self.0).ok()?;
        let next = cron.find_next_occurrence(&now.with_timezone(&zone), false);
        next.ok().map(|next| next.with_timezone(&Utc))
    }

    /// Returns true if both expressions have the same occurrences, however they are written.
    pub(crate) fn is_the_same_as(&self, other: &CronExpression) -> bool {
        let (Ok(one), Ok(other)) = (parsed(&self.0), parsed(&other.0)) else {
            return self == other;
        };
        let some = |cron: &Cron| cron.iter_after(a_day()).take(COMPARED).collect::<Vec<_>>();
        some(&one) == some(&other)
    }
}

/// An arbitrary fixed day.
fn a_day() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(365 * 56)
}

fn parsed(text: &str) -> Result<Cron, croner::errors::CronError> {
    CronParser::builder()
        .seconds(Seconds::Required)
        .year(Year::Disallowed)
        .build()
        .parse(text)
}

/// The first field that is invalid on its own, with its zero-based index.
fn wrong_field<'a>(fields: &[&'a str]) -> Option<(usize, &'a str)> {
    (0..fields.len())
        .find(|&nth| {
            let mut alone = ["*"; FIELDS.len()];
            alone[nth] = fields[nth];
            parsed(&alone.join(" ")).is_err()
        })
        .map(|nth| (nth, fields[nth]))
}

impl FromStr for CronExpression {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<CronExpression, ParseValueError> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(ParseValueError(format!(
                "cron expression `{text}` has {} fields; {ADVICE}",
                fields.len()
            )));
        }
        let cron = parsed(text).map_err(|error| {
            ParseValueError(match wrong_field(&fields) {
                Some((nth, field)) => {
                    let (name, range) = FIELDS[nth];
                    format!(
                        "`{text}` is not a cron expression: the {name} (field {}) is `{field}`; allowed: {range}; {ADVICE}",
                        nth + 1
                    )
                }
                None => format!("`{text}` is not a cron expression ({error}); {ADVICE}"),
            })
        })?;
        if cron.find_next_occurrence(&a_day(), true).is_err() {
            return Err(ParseValueError(format!(
                "`{text}` never occurs, because no such day exists; {ADVICE}"
            )));
        }
        Ok(CronExpression(text.to_owned()))
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

written_as_text!(
    CronExpression,
    "a cron expression of six fields such as \"0 0 21 * * *\", or null",
    ["0 0 21 * * *", "0 30 6 * * MON-FRI"]
);

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(text: &str) -> CronExpression {
        text.parse().unwrap()
    }

    fn refusal(text: &str) -> String {
        text.parse::<CronExpression>().unwrap_err().to_string()
    }

    #[test]
    fn the_invalid_cron_field_is_named_with_its_allowed_values() {
        for (text, words) in [
            (
                "0 0 25 * * *",
                "the hour (field 3) is `25`; allowed: 0 to 23",
            ),
            (
                "60 0 21 * * *",
                "the second (field 1) is `60`; allowed: 0 to 59",
            ),
            ("0 99 21 * * *", "the minute (field 2) is `99`"),
            ("0 0 21 0 * *", "the day of the month (field 4) is `0`"),
            ("0 0 21 * 13 *", "the month (field 5) is `13`"),
            ("0 0 21 * * 9", "the weekday (field 6) is `9`"),
            ("0 0 nine * * *", "the hour (field 3) is `nine`"),
            ("0 0 21 * *", "has 5 fields"),
            ("", "has 0 fields"),
        ] {
            let shown = refusal(text);
            assert!(
                shown.contains(words) && shown.contains("\"0 0 21 * * *\""),
                "{shown}"
            );
        }
    }

    #[test]
    fn an_impossible_day_is_refused_and_a_rare_one_is_accepted() {
        for text in ["0 0 21 31 2 *", "0 0 21 30 FEB *", "0 0 21 31 4,6,9,11 *"] {
            assert!(refusal(text).contains("never occurs"), "{text}");
        }
        for text in ["0 0 21 29 2 *", "0 0 21 31 * *", "0 0 21 L * *"] {
            cron(text);
        }
    }

    #[test]
    fn equivalent_cron_expressions_are_equal() {
        assert!(cron("0 0 21 * * *").is_the_same_as(&cron("0  0 21 * * SUN-SAT")));
        assert!(cron("0 0 7 * * MON").is_the_same_as(&cron("0 0 7 * * 1")));
        assert!(!cron("0 0 21 * * *").is_the_same_as(&cron("0 0 21 * * MON-FRI")));
    }
}
