//! Parsers for values of the command line. Their errors list what is allowed.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A new value for a setting, or the removal of its override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    To(T),
    Clear,
}

/// A duration such as `10m` or `1h 30m`, sent to the server as written.
pub fn duration(text: &str) -> Result<String, String> {
    const FORMS: &str = "write a time as 30s, 10m, 2h or 7d";
    let text = text.trim();
    if text.starts_with('-') {
        return Err(format!("a time cannot be negative; {FORMS}"));
    }
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!(
            "the unit is missing: {text}s, {text}m or {text}h? {FORMS}"
        ));
    }
    match humantime::parse_duration(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(FORMS.to_owned()),
    }
}

pub fn duration_or_none(text: &str) -> Result<Change<String>, String> {
    match text {
        "none" => Ok(Change::Clear),
        _ => duration(text).map(Change::To),
    }
}

/// A text, or its removal.
pub fn text_or_none(text: &str) -> Result<Change<String>, String> {
    Ok(match text {
        "none" => Change::Clear,
        text => Change::To(text.to_owned()),
    })
}

/// `MODEL=N`: a model and its priority. Model names may contain `=`.
pub fn model_priority(text: &str) -> Result<(String, u32), String> {
    match text.rsplit_once('=') {
        Some((model, number)) if !model.is_empty() => Ok((model.to_owned(), priority(number)?)),
        _ => Err("write the model, =, and the priority, such as org/m=2".to_owned()),
    }
}

const PRIORITY_MAX: u32 = 1_000_000;
const PRIORITY: &str = "a priority is 0 or more; 0 is the default, 2 and above stays hot";

pub fn priority(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(priority) if priority <= PRIORITY_MAX => Ok(priority),
        Ok(_) => Err(format!("a priority is at most {PRIORITY_MAX}")),
        Err(_) => Err(PRIORITY.to_owned()),
    }
}

pub fn priority_or_none(text: &str) -> Result<Change<u32>, String> {
    match text {
        "none" => Ok(Change::Clear),
        _ => priority(text)
            .map(Change::To)
            .map_err(|problem| format!("{problem}; none removes the override")),
    }
}

pub fn gpus(text: &str) -> Result<u32, String> {
    counted(text, "the number of GPUs of one replica", 1..=1024)
}

pub fn replicas(text: &str) -> Result<u32, String> {
    counted(text, "the number of replicas", 1..=64)
}

pub fn context(text: &str) -> Result<u32, String> {
    counted(text, "the number of tokens", 1..=u32::MAX)
}

pub fn entries(text: &str) -> Result<u32, String> {
    counted(text, "the number of entries", 1..=1000)
}

pub fn lines(text: &str) -> Result<u32, String> {
    counted(text, "the number of lines", 0..=10_000)
}

pub fn screens(text: &str) -> Result<u32, String> {
    counted(text, "the number of screens", 1..=u32::MAX)
}

/// A limit of a key.
pub fn limit(text: &str) -> Result<u32, String> {
    counted(text, "a limit", 1..=u32::MAX)
}

/// A larger limit of a key.
pub fn large_limit(text: &str) -> Result<u64, String> {
    counted(text, "a limit", 1..=u64::MAX)
}

pub fn memory_gib(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(gib) if gib.is_finite() && gib > 0.0 => Ok(gib),
        _ => Err("the memory must be a number of GiB above 0, such as 16 or 1.5".to_owned()),
    }
}

/// Parses an integer within a range.
fn counted<T>(text: &str, what: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + fmt::Display + Bounded,
{
    match text.parse::<T>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ if *range.end() >= T::LARGEST => Err(format!(
            "{what} must be an integer of at least {}",
            range.start()
        )),
        _ => Err(format!(
            "{what} must be an integer from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

/// The largest value of a type. A range that ends there is reported without its upper bound.
trait Bounded {
    const LARGEST: Self;
}

impl Bounded for u32 {
    const LARGEST: u32 = u32::MAX;
}

impl Bounded for u64 {
    const LARGEST: u64 = u64::MAX;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_priority_is_refused_with_the_allowed_range() {
        assert_eq!(priority("0"), Ok(0));
        assert_eq!(priority("1000000"), Ok(1_000_000));
        for wrong in ["-1", "high", "1.5", "", "99999999999"] {
            assert_eq!(
                priority(wrong).expect_err(wrong),
                "a priority is 0 or more; 0 is the default, 2 and above stays hot"
            );
        }
        assert!(priority("1000001").is_err_and(|problem| problem.contains("at most 1000000")));
        assert!(priority_or_none("-1").is_err_and(|problem| problem.contains("none removes")));
    }

    #[test]
    fn a_wrong_number_is_refused_with_its_range() {
        assert_eq!(replicas("64"), Ok(64));
        for wrong in ["0", "65", "-1", "two", "1.5"] {
            assert_eq!(
                replicas(wrong).expect_err(wrong),
                "the number of replicas must be an integer from 1 to 64"
            );
        }
        assert_eq!(
            limit("0").expect_err("zero"),
            "a limit must be an integer of at least 1"
        );
        assert!(memory_gib("1.5").is_ok());
        for wrong in ["0", "-1", "NaN", "inf", "16GiB"] {
            assert!(memory_gib(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_time_is_refused_with_the_accepted_forms() {
        assert_eq!(duration("1h 30m"), Ok("1h 30m".to_owned()));
        let missing = duration("10").expect_err("no unit");
        assert!(
            missing.starts_with("the unit is missing: 10s, 10m or 10h?"),
            "{missing}"
        );
        let negative = duration("-5m").expect_err("negative");
        assert!(
            negative.starts_with("a time cannot be negative"),
            "{negative}"
        );
        for wrong in ["soon", "", "10 parsecs", "h"] {
            assert_eq!(
                duration(wrong).expect_err(wrong),
                "write a time as 30s, 10m, 2h or 7d"
            );
        }
    }
}
