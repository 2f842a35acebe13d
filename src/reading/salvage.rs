//! Parses a text as far as it can be parsed: wrong values are left out, and all of them are reported.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::tracked::Tracker;
use super::{ParseError, json_error_of, parse_error_of, yaml_options};

/// Later errors are mostly consequences of earlier ones.
const ERRORS_MAX: usize = 20;

/// The result of parsing a text that may have wrong values.
#[derive(Debug)]
pub struct Salvaged<T> {
    /// The value without its wrong parts; `None` if too much is wrong.
    pub value: Option<T>,
    /// In the order of the text.
    pub wrong: Vec<WrongValue>,
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongValue {
    /// Such as `inventory.devices[0].memory`; empty for the document.
    pub path: String,
    /// Its message has the path.
    pub error: ParseError,
}

/// The notation of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    /// The last value of a duplicate key counts, as with PyYAML.
    YamlLastWins,
    Json,
}

/// The paths of values that a parser passes over.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    paths: BTreeSet<String>,
}

impl LeftOut {
    pub fn contains(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Returns true if the value at this path, or a part of it, is passed over.
    pub fn touches(&self, path: &str) -> bool {
        let is_at_or_below = |left_out: &String| {
            let rest = left_out.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.paths.iter().any(is_at_or_below)
    }

    /// Adds the path, or the nearest one above it that is new. Returns false at the root.
    pub fn add(&mut self, path: &str) -> bool {
        let mut path = path;
        while path.is_empty() || self.contains(path) {
            let Some(end) = path.rfind(['.', '[']) else {
                return false;
            };
            path = &path[..end];
        }
        self.paths.insert(path.to_owned())
    }

    /// Returns true if an error is only there because a value below its path is passed over.
    pub fn explains(&self, path: &str, message: &str) -> bool {
        let is_about_absence =
            message.contains("is missing") || message.contains("entries stand here");
        let is_below = |left_out: &String| {
            let rest = left_out.strip_prefix(path);
            rest.is_some_and(|rest| path.is_empty() || rest.starts_with(['.', '[']))
        };
        is_about_absence && self.paths.iter().any(is_below)
    }
}

/// Parses one document and reports every wrong value. The time is that of parsing it once for each wrong value.
pub fn salvage<T: DeserializeOwned>(text: &str, format: Format) -> Salvaged<T> {
    let mut left_out = LeftOut::default();
    let mut failures: Vec<WrongValue> = Vec::new();
    let mut value = None;
    while failures.len() < ERRORS_MAX {
        let failure = match attempt(text, format, &left_out) {
            Ok(salvaged) => {
                value = Some(salvaged);
                break;
            }
            Err(failure) => failure,
        };
        let path = failure.path.clone();
        // Leaving the value out does not help against wrong syntax: the same error follows.
        let is_new = !failures.iter().any(|known| known.error == failure.error);
        if is_new && !left_out.explains(&path, &failure.error.message) {
            failures.push(failure);
        }
        if !left_out.add(&path) {
            break;
        }
    }
    let wrong = failures.into_iter().map(WrongValue::with_path).collect();
    Salvaged { value, wrong }
}

/// Parses one document without the values at these paths.
pub fn parse_skipping<T: DeserializeOwned>(
    text: &str,
    format: Format,
    left_out: &LeftOut,
) -> Result<T, WrongValue> {
    attempt(text, format, left_out).map_err(WrongValue::with_path)
}

impl WrongValue {
    fn with_path(self) -> WrongValue {
        let error = match self.path.as_str() {
            "" => self.error,
            path => self.error.at(path),
        };
        WrongValue { error, ..self }
    }
}

impl WrongValue {
    /// The unknown key that the error is about.
    pub fn unknown_key(&self) -> Option<&str> {
        let (_, rest) = self.error.message.split_once(UNKNOWN_KEY)?;
        rest.split('`').next()
    }

    /// The same about an unknown key that is a key of `section`.
    pub fn belonging_to(&self, section: &str) -> WrongValue {
        let mut moved = self.clone();
        if let Some(key) = self.unknown_key() {
            let message = format!("{UNKNOWN_KEY}{key}`; it belongs to the section `{section}`");
            moved.error.message = match self.path.as_str() {
                "" => message,
                path => format!("{path}: {message}"),
            };
        }
        moved
    }
}

/// The beginning of a message of `unknown`.
const UNKNOWN_KEY: &str = "unknown key `";

/// The same; the message of an error has no path.
fn attempt<T: DeserializeOwned>(
    text: &str,
    format: Format,
    left_out: &LeftOut,
) -> Result<T, WrongValue> {
    let tracker = Tracker::new(left_out);
    let parsed = match format {
        Format::Json => {
            let mut parser = serde_json::Deserializer::from_str(text);
            T::deserialize(tracker.track(&mut parser))
                .and_then(|value| parser.end().map(|()| value))
                .map_err(|error| json_error_of(&error))
        }
        Format::Yaml | Format::YamlLastWins => {
            let options = yaml_options(format == Format::YamlLastWins);
            serde_saphyr::with_deserializer_from_str_with_options(text, options, |parser| {
                T::deserialize(tracker.track(parser))
            })
            .map_err(parse_error_of)
        }
    };
    parsed.map_err(|error| WrongValue {
        path: tracker.take_failure().unwrap_or_default(),
        error,
    })
}
