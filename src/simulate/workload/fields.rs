//! The names of columns in public traces, and the parsing of their values.

use chrono::{DateTime, NaiveDateTime};

/// A column that a replay can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Time,
    Model,
    Key,
    ServiceMilliseconds,
    ServiceSeconds,
    InputTokens,
    OutputTokens,
}

/// Names in lower case without blanks, dashes and underscores.
const NAMES: [(Field, &[&str]); 7] = [
    (
        Field::Time,
        &[
            "at",
            "time",
            "timestamp",
            "arrival",
            "arrivaltime",
            "arrivedat",
            "starttime",
            "start",
            "ts",
            "timestampms",
            "timems",
            "submittime",
            "invocationtime",
        ],
    ),
    (
        Field::Model,
        &[
            "model",
            "modelid",
            "modelname",
            "basemodel",
            "app",
            "appid",
            "application",
            "func",
            "function",
            "functionid",
            "hashfunction",
            "hashapp",
            "deployment",
        ],
    ),
    (
        Field::Key,
        &[
            "key",
            "user",
            "userid",
            "client",
            "clientid",
            "session",
            "sessionid",
            "tenant",
        ],
    ),
    (
        Field::ServiceMilliseconds,
        &["servicems", "durationms", "latencyms", "elapsedms"],
    ),
    (
        Field::ServiceSeconds,
        &[
            "service",
            "duration",
            "elapsed",
            "elapsedtime",
            "latency",
            "exectime",
            "executiontime",
        ],
    ),
    (
        Field::InputTokens,
        &[
            "inputtokens",
            "contexttokens",
            "requesttokens",
            "prompttokens",
            "inputlength",
            "promptlength",
            "inputlen",
        ],
    ),
    (
        Field::OutputTokens,
        &[
            "outputtokens",
            "generatedtokens",
            "responsetokens",
            "completiontokens",
            "outputlength",
            "outputlen",
        ],
    ),
];

pub fn field_of(name: &str) -> Option<Field> {
    let plain: String = name
        .chars()
        .filter(|character| character.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    let knows = |(_, names): &&(Field, &[&str])| names.contains(&plain.as_str());
    NAMES.iter().find(knows).map(|(field, _)| *field)
}

/// The allowed names of a time column, for errors.
pub fn time_names() -> String {
    NAMES[0].1.join(", ")
}

/// Parses a time as traces write it, in milliseconds: seconds, milliseconds (in columns with such a name, or above 10¹¹), RFC 3339,
/// or `2023-11-16 18:17:03.97`.
pub fn milliseconds(text: &str, in_milliseconds: bool) -> Result<u64, String> {
    let text = text.trim().trim_matches('"');
    if let Ok(number) = text.parse::<f64>() {
        if !number.is_finite() || number < 0.0 {
            return Err(format!("the time {text} is negative or not a number"));
        }
        let factor = if in_milliseconds || number > 1e11 {
            1.0
        } else {
            1000.0
        };
        let scaled = number * factor;
        if scaled > 9e15 {
            return Err(format!("the time {text} is too large"));
        }
        return Ok(scaled as u64);
    }
    let parsed = DateTime::parse_from_rfc3339(text)
        .map(|at| at.timestamp_millis())
        .or_else(|_| {
            let plain = text.replace('T', " ");
            NaiveDateTime::parse_from_str(&plain, "%Y-%m-%d %H:%M:%S%.f")
                .map(|at| at.and_utc().timestamp_millis())
        });
    match parsed.map(u64::try_from) {
        Ok(Ok(at)) => Ok(at),
        Ok(Err(_)) => Err(format!("the time {text} is before 1970")),
        Err(_) => Err(format!(
            "`{text}` is not a time; write seconds, milliseconds, or for example 2023-11-16 18:17:03.97"
        )),
    }
}

/// Parses a count or a duration: a non-negative number.
pub fn amount(text: &str, what: &str) -> Result<f64, String> {
    let text = text.trim().trim_matches('"');
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        Ok(_) => Err(format!("{what} {text} is negative or not a number")),
        Err(_) => Err(format!("{what} `{text}` is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_public_traces_are_recognized_by_name() {
        for (name, field) in [
            ("TIMESTAMP", Field::Time),
            ("Timestamp", Field::Time),
            ("arrival_time", Field::Time),
            ("Model", Field::Model),
            ("HashFunction", Field::Model),
            ("ContextTokens", Field::InputTokens),
            ("Response tokens", Field::OutputTokens),
            ("duration_ms", Field::ServiceMilliseconds),
            ("Elapsed time", Field::ServiceSeconds),
        ] {
            assert_eq!(field_of(name), Some(field), "{name}");
        }
        assert_eq!(field_of("hash_ids"), None);
    }

    #[test]
    fn times_parse_in_every_format() {
        assert_eq!(milliseconds("1.5", false), Ok(1500));
        assert_eq!(milliseconds("1500", true), Ok(1500));
        assert_eq!(milliseconds("1700158623979", false), Ok(1_700_158_623_979));
        let written = milliseconds("2023-11-16 18:17:03.9799600", false);
        assert_eq!(written, milliseconds("2023-11-16T18:17:03.979Z", false));
        assert!(milliseconds("-1", false).is_err());
        assert!(milliseconds("soon", false).is_err());
    }
}
