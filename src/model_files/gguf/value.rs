//! The values of a GGUF header by key, read as the caller's expected type: integers, fractions, flags, texts and lists. Errors name
//! the key, but not the file.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A value of an unsigned type.
    Integer(u64),
    /// A value of a signed or floating-point type.
    Number(f64),
    Flag(bool),
    Text(String),
    List(List),
}

#[derive(Clone, Debug, PartialEq)]
pub enum List {
    /// Flags are stored as 0 and 1.
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

/// The values of a header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(BTreeMap<String, Value>);

/// Larger numbers are not exact in floating point, and exceed every figure of a model.
const INTEGER_MAX: f64 = 9e15;

/// Converts a non-negative integral number to an integer.
pub fn integer(number: f64) -> Option<u64> {
    ((0.0..INTEGER_MAX).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

impl Values {
    pub(super) fn insert(&mut self, key: String, value: Value) {
        self.0.insert(key, value);
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Reads an integer. Accepts signed types and lists of equal numbers, which some writers use.
    pub fn number(&self, key: &str) -> Result<Option<u64>, String> {
        let number = match self.0.get(key) {
            None => return Ok(None),
            Some(Value::Integer(number)) => Some(*number),
            Some(Value::Number(number)) => integer(*number),
            Some(Value::List(List::Numbers(numbers))) => {
                let first = numbers.first().copied();
                if let Some(other) = numbers.iter().find(|number| Some(**number) != first) {
                    return Err(format!(
                        "{key} is {} for one block and {other} for another, but all blocks need the same number",
                        first.unwrap_or_default()
                    ));
                }
                first.and_then(integer)
            }
            Some(_) => None,
        };
        number
            .map(Some)
            .ok_or_else(|| format!("{key} is not a whole number"))
    }

    pub fn fraction(&self, key: &str) -> Result<Option<f64>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Number(number)) if number.is_finite() => Ok(Some(*number)),
            Some(Value::Integer(number)) => Ok(Some(*number as f64)),
            Some(_) => Err(format!("{key} is not a number")),
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
            Some(_) => Err(format!("{key} is not a text")),
        }
    }

    pub fn texts(&self, key: &str) -> Result<Option<&[String]>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::List(List::Texts(texts))) => Ok(Some(texts)),
            Some(_) => Err(format!("{key} is not a list of texts")),
        }
    }

    pub fn numbers(&self, key: &str) -> Result<Option<&[f64]>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::List(List::Numbers(numbers))) => Ok(Some(numbers)),
            Some(_) => Err(format!("{key} is not a list of numbers")),
        }
    }

    /// Returns true if the value is a list, for keys that may also have a single number.
    pub fn is_list(&self, key: &str) -> bool {
        matches!(self.0.get(key), Some(Value::List(_)))
    }
}
