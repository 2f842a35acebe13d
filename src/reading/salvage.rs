//! Parses as much of a text as possible: leaves out wrong values and reports all of them.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::path_tracker::Tracker;
use super::{ParseError, json_error_of, parse_error_of, yaml_options};

/// Later errors are mostly consequences of earlier ones.
const ERRORS_MAX: usize = 20;

/// The result of parsing a text that may contain wrong values.
#[derive(Debug)]
pub struct Salvaged<T> {
    /// The value without its wrong parts; `None` if too much is wrong.
    pub value: Option<T>,
    /// Wrong values in the order of the text.
    pub wrong: Vec<WrongValue>,
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongValue {
    /// A path such as `inventory.devices[0].memory`; empty for the complete document.
    pub path: String,
    /// The error; its message includes the path.
    pub error: ParseError,
}

/// The format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    /// YAML in which the last value of a duplicate key wins, as with PyYAML.
    YamlLastWins,
    Json,
}

/// The paths of values that a parser skips.
#[derive(Clone, Debug, Default)]
pub struct SkippedPaths {
    paths: BTreeSet<String>,
}

impl SkippedPaths {
    pub fn contains(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Returns true if the value at this path, or a part of it, is skipped.
    pub fn touches(&self, path: &str) -> bool {
        let is_at_or_below = |left_out: &String| {
            let rest = left_out.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.paths.iter().any(is_at_or_below)
    }

    /// Adds the path, or its nearest parent that is not in the set yet. Returns false at the root.
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

    /// Returns true if an error only exists because a value below its path is skipped.
    pub fn explains(&self, path: &str, message: &str) -> bool {
        let is_about_absence =
            message.contains("is missing") || message.contains("entries are given");
        let is_below = |left_out: &String| {
            let rest = left_out.strip_prefix(path);
            rest.is_some_and(|rest| path.is_empty() || rest.starts_with(['.', '[']))
        };
        is_about_absence && self.paths.iter().any(is_below)
    }
}

/// Parses one document and reports every wrong value. Parses the text once per wrong value.
pub fn salvage<T: DeserializeOwned>(text: &str, format: Format) -> Salvaged<T> {
    let mut left_out = SkippedPaths::default();
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
        // Leaving the value out does not help against a syntax error: the same error occurs again.
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
    left_out: &SkippedPaths,
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
    /// The unknown key, if that is the error.
    pub fn unknown_key(&self) -> Option<&str> {
        let (_, rest) = self.error.message.split_once(UNKNOWN_KEY)?;
        rest.split('`').next()
    }

    /// The error for an unknown key that is a key of `section`.
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

/// The beginning of messages from `unknown`.
const UNKNOWN_KEY: &str = "unknown key `";

/// Like `parse_skipping`, but error messages do not include the path.
fn attempt<T: DeserializeOwned>(
    text: &str,
    format: Format,
    left_out: &SkippedPaths,
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
