//! Owns the metadata of a GGUF file: values by their keys, and the reading of them as what they should be. Never knows a key.

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Whole(u64),
    Number(f64),
    Flag(bool),
    Text(String),
    List(List),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum List {
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

/// Values by their keys. Errors are problems of the file, without its name.
#[derive(Debug, Default)]
pub(super) struct Metadata(BTreeMap<String, Value>);

impl Metadata {
    pub fn insert(&mut self, key: String, value: Value) {
        self.0.insert(key, value);
    }

    /// A whole number. Writers choose signed types and lists of equal numbers for some.
    pub fn number(&self, key: &str) -> Result<Option<u64>, String> {
        let whole = |number: f64| {
            ((0.0..9e15).contains(&number) && number.fract() == 0.0).then_some(number as u64)
        };
        let read = match self.0.get(key) {
            None => return Ok(None),
            Some(Value::Whole(number)) => Some(*number),
            Some(Value::Number(number)) => whole(*number),
            Some(Value::List(List::Numbers(numbers))) => {
                let first = numbers.first().copied();
                if let Some(other) = numbers.iter().find(|number| Some(**number) != first) {
                    return Err(format!(
                        "{key} is {} for one block and {other} for another, which this engine does not compute",
                        first.unwrap_or_default()
                    ));
                }
                first.and_then(whole)
            }
            Some(_) => None,
        };
        read.map(Some)
            .ok_or_else(|| format!("{key} is no whole number"))
    }

    pub fn fraction(&self, key: &str) -> Result<Option<f64>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Number(number)) if number.is_finite() => Ok(Some(*number)),
            Some(Value::Whole(number)) => Ok(Some(*number as f64)),
            Some(_) => Err(format!("{key} is no number")),
        }
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(_) => Err(format!("{key} is neither true nor false")),
        }
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{key} is no text")),
        }
    }

    pub fn texts(&self, key: &str) -> Result<Option<&[String]>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::List(List::Texts(texts))) => Ok(Some(texts)),
            Some(_) => Err(format!("{key} is no list of texts")),
        }
    }

    pub fn numbers(&self, key: &str) -> Result<Option<&[f64]>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::List(List::Numbers(numbers))) => Ok(Some(numbers)),
            Some(_) => Err(format!("{key} is no list of numbers")),
        }
    }

    /// Whether the value is a list, where it may be a single one.
    pub fn is_list(&self, key: &str) -> bool {
        matches!(self.0.get(key), Some(Value::List(_)))
    }
}
