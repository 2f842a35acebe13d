//! Parses YAML and JSON into types. Errors give the line, the problem and the probable correction; they never
//! quote the surrounding lines, which may contain secrets.

mod field_values;
mod fields;
mod ignored_fields;
mod names;
mod path_tracker;
#[cfg(feature = "record-fields")]
pub mod record;
mod salvage;
mod wording;

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Error as YamlError;

pub use field_values::{has_effect, shortened, unknown_fields};
pub use fields::{FieldErrors, Fields};
pub use ignored_fields::IgnoredFields;
pub use names::{likeness, nearest};
use path_tracker::Tracker;
pub use salvage::{Format, Salvaged, SkippedPaths, WrongValue, parse_skipping, salvage};
use wording::{number_wanted, of_parser, of_value};

const KEYS_EXPECTED: &str = "keys with values";

/// An error in a text with its position (from 1), if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    pub line: Option<u64>,
    pub column: Option<u64>,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (Some(line), Some(column)) => {
                write!(f, "line {line}, column {column}: {}", self.message)
            }
            (Some(line), None) => write!(f, "line {line}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

/// Serializes a value as a YAML document.
///
/// # Errors
/// If YAML cannot represent the value.
pub fn to_yaml(value: &impl serde::Serialize) -> Result<String, String> {
    serde_saphyr::to_string(value).map_err(|error| error.to_string())
}

/// Parses one YAML document. Unknown keys, duplicate keys and wrong values are errors.
pub fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, ParseError> {
    serde_saphyr::from_str_with_options(text, yaml_options(false)).map_err(parse_error_of)
}

/// The options of every YAML parser here.
fn yaml_options(last_wins: bool) -> serde_saphyr::Options {
    let duplicate_keys = if last_wins {
        serde_saphyr::DuplicateKeyPolicy::LastWins
    } else {
        serde_saphyr::DuplicateKeyPolicy::Error
    };
    serde_saphyr::options! { with_snippet: false, duplicate_keys: duplicate_keys }
}

/// Like `yaml`, but the last value of a duplicate key wins, as with PyYAML.
pub fn yaml_last_wins<T: DeserializeOwned>(text: &str) -> Result<T, ParseError> {
    serde_saphyr::from_str_with_options(text, yaml_options(true)).map_err(parse_error_of)
}

/// Parses a value. Errors contain the path of the wrong part, such as `scaling_config.num_workers`.
pub fn value_at<T: DeserializeOwned>(value: Value) -> Result<T, (String, String)> {
    let left_out = SkippedPaths::default();
    let tracker = Tracker::new(&left_out);
    T::deserialize(tracker.track(value)).map_err(|error| {
        let path = tracker.take_failure().filter(|path| !path.is_empty());
        (
            path.unwrap_or_else(|| ".".to_owned()),
            reworded(&without_place(&error.to_string())),
        )
    })
}

impl ParseError {
    /// Prefixes the message with the path of the wrong part.
    pub fn at(self, path: &str) -> ParseError {
        // If keys are expected and a list is found, the list itself is wrong.
        let is_list = self.message.starts_with(KEYS_EXPECTED) && path.ends_with(']');
        let path = match path.rfind('[').filter(|_| is_list) {
            Some(end) => &path[..end],
            None => path,
        };
        ParseError {
            message: format!("{path}: {}", self.message),
            ..self
        }
    }
}

fn parse_error_of(error: YamlError) -> ParseError {
    let location = error.location().filter(|location| location.line() > 0);
    ParseError {
        line: location.map(|location| location.line()),
        column: location.map(|location| location.column()),
        message: explain(&error),
    }
}

fn explain(error: &YamlError) -> String {
    match error.without_snippet() {
        YamlError::SerdeUnknownField {
            field, expected, ..
        } => unknown("key", field, expected.iter().copied()),
        YamlError::SerdeUnknownVariant {
            variant, expected, ..
        } => unknown("value", variant, expected.iter().copied()),
        YamlError::SerdeMissingField { field, .. } => format!("the key `{field}` is missing"),
        YamlError::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{key}` is given twice")
        }
        YamlError::MultipleDocuments { .. } => {
            "a second document begins here (`---`); a file may contain only one".to_owned()
        }
        YamlError::Message { msg, .. } => of_value(msg),
        YamlError::NullIntoString { .. } => "the value is missing".to_owned(),
        YamlError::InvalidScalar { ty, .. } => match number_wanted(ty) {
            Some(wanted) => format!("{wanted} is expected here"),
            None => "another kind of value is expected here".to_owned(),
        },
        YamlError::Unexpected {
            expected: "mapping start",
            ..
        } => format!("{KEYS_EXPECTED} (`key: value`) are expected here"),
        YamlError::Unexpected {
            expected: "sequence start",
            ..
        } => "a list such as [one, two] is expected here".to_owned(),
        YamlError::Unexpected {
            expected: "string scalar",
            ..
        }
        | YamlError::ExpectedStringKeyForExternallyTaggedEnum { .. }
        | YamlError::ExternallyTaggedEnumExpectedScalarOrMapping { .. }
        | YamlError::UnexpectedValueForUnitEnumVariant { .. }
        | YamlError::ExpectedMappingEndAfterEnumVariantValue { .. } => {
            "a single value is expected here; a text that begins with `{` or `[`, such as \"{{ port }}\", needs quotes".to_owned()
        }
        YamlError::InvalidBooleanStrict { .. } => "true or false is expected here".to_owned(),
        YamlError::Eof { .. } => "the text ends before a value; write one".to_owned(),
        YamlError::UnknownAnchor { .. } => of_parser("unknown anchor"),
        other => match without_place(&other.to_string()) {
            text if text.starts_with("budget breached") => {
                "the text is too large with its aliases expanded; write it without aliases"
                    .to_owned()
            }
            text => of_parser(&text),
        },
    }
}

/// Removes the position from the library's message; `ParseError` has it separately.
fn without_place(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_owned(),
        None => message.to_owned(),
    }
}

/// Decodes the text of a file.
///
/// # Errors
/// If it is not UTF-8; the error has the line.
pub fn utf8(bytes: Vec<u8>) -> Result<String, ParseError> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        ParseError {
            line: u64::try_from(lines + 1).ok(),
            column: None,
            message: "a character here is not UTF-8; save the file as UTF-8".to_owned(),
        }
    })
}

/// Parses one JSON document from a file's text.
pub fn json<T: DeserializeOwned>(text: &str) -> Result<T, ParseError> {
    serde_json::from_str(text).map_err(|error| json_error_of(&error))
}

fn json_error_of(error: &serde_json::Error) -> ParseError {
    ParseError {
        line: Some(error.line() as u64).filter(|line| *line > 0),
        column: Some(error.column() as u64).filter(|column| error.line() > 0 && *column > 0),
        message: match error.classify() {
            serde_json::error::Category::Data => reworded(&without_place(&error.to_string())),
            _ => of_parser(&without_place(&error.to_string())),
        },
    }
}

/// Parses a value from the API. Line numbers are meaningless there; errors contain the path of the wrong part.
pub fn json_value<T: DeserializeOwned>(value: &Value) -> Result<T, ParseError> {
    value_at(value.clone()).map_err(|(path, problem)| ParseError {
        line: None,
        column: None,
        message: match path.as_str() {
            "." => problem,
            path => format!("{path}: {problem}"),
        },
    })
}

/// serde_json has no structured errors, so its message for an unknown name is parsed.
fn reworded(message: &str) -> String {
    for (start, what) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let Some((name, rest)) = message
            .strip_prefix(start)
            .and_then(|rest| rest.split_once('`'))
        else {
            continue;
        };
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        return unknown(what, name, known.iter().copied());
    }
    if let Some((field, _)) = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split_once('`'))
    {
        return format!("the key `{field}` is missing");
    }
    of_value(message)
}

/// Keys are many, so only the nearest is suggested; values are few, so all are listed.
fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = nearest(name, known.clone());
    let all: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let all = all.join(", ");
    match near {
        Some(near) if what == "key" => format!("unknown key `{name}`; did you mean `{near}`?"),
        Some(near) => {
            format!("unknown {what} `{name}`; did you mean `{near}`? known here: {all}")
        }
        None => format!("unknown {what} `{name}`; known here: {all}"),
    }
}

/// A map that keeps its order and refuses duplicate keys, which JSON parsers usually accept.
#[derive(Debug)]
pub struct UniqueEntries<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueEntries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = UniqueEntries<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut seen = std::collections::BTreeSet::new();
                let mut entries = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if !seen.insert(key.clone()) {
                        return Err(serde::de::Error::custom(format!(
                            "the key `{key}` is given twice"
                        )));
                    }
                    entries.push((key, map.next_value()?));
                }
                Ok(UniqueEntries(entries))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests;
