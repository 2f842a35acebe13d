//! Reads `keep_alive`: seconds, or a duration in Go's syntax. The caller checks permissions.

use std::time::Duration;

use serde_json::Value;

use crate::fields::RequestFields;
use api_types::error::Failure;

/// Time that a model stays loaded after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    For(Duration),
    /// A negative duration.
    Always,
}

const WANTED: &str = "seconds, or a length of time with its unit such as \"5m\", \"1h30m\" or \"300ms\"; 0 unloads, and a negative one keeps the model loaded";
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];
/// Maximum length of the text.
const TEXT_MAX: usize = 64;

pub fn read(request: &mut RequestFields) -> Result<Option<KeepAlive>, Failure> {
    let Some(value) = request.take("keep_alive") else {
        return Ok(None);
    };
    let seconds = match &value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if text.len() <= TEXT_MAX => length(text.trim()),
        _ => None,
    };
    let keep = seconds.and_then(|seconds| {
        if seconds < 0.0 {
            Some(KeepAlive::Always)
        } else if seconds > 1e9 {
            // A duration beyond the clock's range also means always.
            Some(KeepAlive::Always)
        } else {
            Duration::try_from_secs_f64(seconds)
                .ok()
                .map(KeepAlive::For)
        }
    });
    match keep {
        Some(keep) => Ok(Some(keep)),
        None => Err(request.wrong("keep_alive", WANTED)),
    }
}

/// Parses a duration in seconds. A text without a unit counts seconds, as a number does.
fn length(text: &str) -> Option<f64> {
    let is_number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if !rest.is_empty() && is_number(rest) {
        return rest.parse::<f64>().ok().map(|seconds| sign * seconds);
    }
    let mut sum = 0.0;
    loop {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|letter: char| letter.is_ascii_digit() || letter == '.');
        let (unit, more) = unit.split_at(end.unwrap_or(unit.len()));
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        sum += number.parse::<f64>().ok()? * seconds;
        if more.is_empty() {
            return Some(sign * sum);
        }
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keep(value: Value) -> Result<Option<KeepAlive>, Failure> {
        read(&mut RequestFields::new("", json!({"keep_alive": value})).unwrap())
    }

    #[test]
    fn keep_alive_durations_are_parsed_like_in_ollama() {
        let seconds = |seconds: f64| Some(KeepAlive::For(Duration::from_secs_f64(seconds)));
        for (value, read) in [
            (json!(null), None),
            (json!(0), seconds(0.0)),
            (json!("0"), seconds(0.0)),
            (json!(90), seconds(90.0)),
            (json!(1.5), seconds(1.5)),
            (json!("5m"), seconds(300.0)),
            (json!("1h30m"), seconds(5_400.0)),
            (json!("300ms"), seconds(0.3)),
            (json!(" 1.5h "), seconds(5_400.0)),
            (json!("300"), seconds(300.0)),
            (json!(-1), Some(KeepAlive::Always)),
            (json!("-1"), Some(KeepAlive::Always)),
            (json!("-1m"), Some(KeepAlive::Always)),
            (json!(1e300), Some(KeepAlive::Always)),
        ] {
            assert_eq!(keep(value.clone()).unwrap(), read, "{value}");
        }
    }

    #[test]
    fn an_invalid_keep_alive_is_refused_with_an_example() {
        let long = "1m".repeat(1 << 19);
        for value in [
            json!("abc"),
            json!(""),
            json!("m"),
            json!("5 m"),
            json!("5m3"),
            json!("1.2.3"),
            json!("5y"),
            json!("--5m"),
            json!(true),
            json!([5]),
            json!(long),
        ] {
            let failure = keep(value).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some("keep_alive"));
            assert!(failure.body.error.message.contains("1h30m"));
        }
    }
}
