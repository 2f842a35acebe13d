//! Numbers of tokens, written as an integer or with a unit such as `10M`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::units::ParseValueError;

/// The units, largest first.
const UNITS: [(char, u64); 4] = [
    ('T', 1_000_000_000_000),
    ('G', 1_000_000_000),
    ('M', 1_000_000),
    ('k', 1_000),
];

/// A number of tokens, 1 to 1000T.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenCount(pub u64);

impl TokenCount {
    const MAX: u64 = 1_000_000_000_000_000;

    fn new(count: u64, text: &dyn fmt::Display) -> Result<TokenCount, ParseValueError> {
        if (1..=TokenCount::MAX).contains(&count) {
            return Ok(TokenCount(count));
        }
        Err(ParseValueError(format!("is {text}; allowed: 1 to 1000T")))
    }
}

impl FromStr for TokenCount {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<TokenCount, ParseValueError> {
        let trimmed = text.trim();
        let unit = UNITS
            .iter()
            .find_map(|(letter, size)| Some((trimmed.strip_suffix(*letter)?, *size)));
        let (number, size) = unit.unwrap_or((trimmed, 1));
        let count = number.parse::<u64>().ok();
        let count = count.ok_or_else(|| {
            ParseValueError(format!(
                "`{text}` is not a number of tokens; write one like 500k, 10M or 2000000"
            ))
        })?;
        TokenCount::new(count.saturating_mul(size), &text)
    }
}

/// Uses the largest unit that divides the number.
impl fmt::Display for TokenCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, size)| self.0.is_multiple_of(*size));
        match unit {
            Some((letter, size)) if self.0 > 0 => write!(f, "{}{letter}", self.0 / size),
            _ => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for TokenCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TokenCount, D::Error> {
        struct Count;

        impl Visitor<'_> for Count {
            type Value = TokenCount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of tokens, such as 2000000 or \"10M\"")
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<TokenCount, E> {
                TokenCount::new(count, &count).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<TokenCount, E> {
                let unsigned = u64::try_from(count).unwrap_or(0);
                TokenCount::new(unsigned, &count).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TokenCount, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Count)
    }
}

impl schemars::JsonSchema for TokenCount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TokenCount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["integer", "string"], "minimum": 1, "examples": [2_000_000, "10M"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_with_and_without_a_unit_and_shown_with_the_largest() {
        for (text, count, shown) in [
            ("10M", 10_000_000, "10M"),
            ("500k", 500_000, "500k"),
            ("2000000", 2_000_000, "2M"),
            ("1500", 1_500, "1500"),
        ] {
            let parsed: TokenCount = text.parse().unwrap();
            assert_eq!((parsed.0, parsed.to_string()), (count, shown.to_owned()));
        }
        for wrong in ["-1", "", "M", "1.5M", "10m", "2000T", "0"] {
            assert!(wrong.parse::<TokenCount>().is_err(), "{wrong}");
        }
        let read =
            |text: &str| reading::yaml::<TokenCount>(text).map_err(|error| error.to_string());
        assert_eq!(read("1000"), Ok(TokenCount(1_000)));
        let error = read("-1").expect_err("negative");
        assert!(error.contains("is -1; allowed: 1 to 1000T"), "{error}");
    }
}
