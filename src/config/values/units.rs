//! The notation of quantities in configuration and model files: durations, sizes of memory, headroom.
//! Each type parses one text form and prints a form that parses to the same value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pool::{Bytes, Span};

/// A parse error that gives the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseValueError(pub(crate) String);

/// Implements serde and the JSON schema through `Display` and `FromStr`.
macro_rules! written_as_text {
    ($name:ident, $expecting:literal, [$($example:literal),+]) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "examples": [$($example),+] })
            }
        }
    };
}
pub(crate) use written_as_text;

/// A duration in milliseconds, written like `10m`, `90s`, `1h 30m`, `500ms` or `0s`. At most ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(pub Span);

impl Length {
    const MAX: Span = Span::from_secs(10 * 365 * 24 * 3600);
    const DAY: Span = Span::from_secs(24 * 3600);

    pub const fn from_secs(seconds: u64) -> Length {
        Length(Span::from_secs(seconds))
    }

    /// Converts it to the standard library's type.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0.0)
    }
}

impl FromStr for Length {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Length, ParseValueError> {
        if text.trim_start().starts_with('-') {
            return Err(ParseValueError(format!(
                "`{text}` is negative; write a duration like 10m, 90s, 1h 30m or 500ms, or 365days for an unlimited duration"
            )));
        }
        let duration = humantime::parse_duration(text.trim()).map_err(|error| {
            let error = error.to_string().replace(" (and few variations)", "");
            ParseValueError(format!(
                "`{text}` is not a duration ({error}); write one like 10m, 90s, 1h 30m or 500ms"
            ))
        })?;
        match u64::try_from(duration.as_millis()) {
            Ok(milliseconds) if milliseconds <= Length::MAX.0 => Ok(Length(Span(milliseconds))),
            _ => Err(ParseValueError(format!(
                "`{text}` is too long; allowed: 0s to 10 years"
            ))),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Print full days as days: humantime's months have 30.44 of them.
        match self.0.0 / Length::DAY.0 {
            days @ 1.. if self.0.0.is_multiple_of(Length::DAY.0) => {
                write!(f, "{days}day{}", if days == 1 { "" } else { "s" })
            }
            _ => humantime::format_duration(self.duration()).fmt(f),
        }
    }
}

written_as_text!(
    Length,
    "a duration with its unit, such as \"10m\" or \"90s\"",
    ["10m", "90s", "1h 30m", "500ms"]
);

/// An amount of memory in bytes, written like `24GiB`, `64MiB` or `512KB`. At most 1 EiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub Bytes);

impl Size {
    const MAX: u64 = 1 << 60;
}

impl FromStr for Size {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Size, ParseValueError> {
        // Refuse a number without a unit: a headroom of `5` hardly means five bytes.
        let has_unit = text
            .trim()
            .ends_with(|letter: char| letter.is_ascii_alphabetic());
        let bytes = text
            .trim()
            .parse::<bytesize::ByteSize>()
            .ok()
            .filter(|_| has_unit)
            .ok_or_else(|| {
                ParseValueError(format!(
                    "`{text}` is not an amount of memory with a unit; write one like 24GiB, 64MiB or 512KB"
                ))
            })?
            .as_u64();
        if bytes > Size::MAX {
            return Err(ParseValueError(format!(
                "`{text}` is too much memory; allowed: 0B to 1EiB"
            )));
        }
        Ok(Size(Bytes(bytes)))
    }
}

/// Uses the largest binary unit that divides the amount exactly, which avoids rounding.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.0;
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if bytes > 0 && bytes.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", bytes >> shift);
            }
        }
        write!(f, "{bytes}B")
    }
}

written_as_text!(
    Size,
    "an amount of memory, such as \"24GiB\" or \"64MiB\"",
    ["24GiB", "64MiB"]
);

/// A part of some memory: a share or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPart {
    /// Hundredths of a per cent, 0 to 9000.
    Share(u32),
    Fixed(Size),
}

impl MemoryPart {
    /// The part of `total`; never more than `total`.
    pub fn resolve(self, total: Bytes) -> Bytes {
        match self {
            MemoryPart::Share(hundredths) => {
                let part = u128::from(total.0) * u128::from(hundredths) / 10_000;
                Bytes(u64::try_from(part).unwrap_or(total.0))
            }
            MemoryPart::Fixed(size) => size.0.min(total),
        }
    }
}

impl FromStr for MemoryPart {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<MemoryPart, ParseValueError> {
        let Some(number) = text.trim().strip_suffix('%') else {
            return text.parse().map(MemoryPart::Fixed).map_err(|_| {
                ParseValueError(format!(
                    "`{text}` is not a part of memory; write a share from 0% to 90% or an amount of memory like 2GiB"
                ))
            });
        };
        match number.trim().parse::<f64>() {
            // Rounded to hundredths, the stored precision.
            Ok(percent) if (0.0..=90.0).contains(&percent) => {
                Ok(MemoryPart::Share((percent * 100.0).round() as u32))
            }
            _ => Err(ParseValueError(format!(
                "a share of `{text}` is outside the allowed 0% to 90%"
            ))),
        }
    }
}

impl fmt::Display for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryPart::Share(hundredths) => write!(f, "{}%", f64::from(*hundredths) / 100.0),
            MemoryPart::Fixed(size) => size.fmt(f),
        }
    }
}

written_as_text!(
    MemoryPart,
    "a share such as \"5%\" or an amount of memory such as \"2GiB\"",
    ["5%", "2GiB"]
);
