//! Reads the values of a mapping by key and tracks their paths, to report errors with their line.

use serde_json::{Map, Value};

use crate::notes::Problem;

/// A mapping of the file with its path.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    path: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub fn new(path: &'a str, map: &'a Map<String, Value>) -> Fields<'a> {
        Fields { path, map }
    }

    /// The mapping in this value; empty if the value is missing.
    pub fn from_path(path: &'a str, value: Option<&'a Value>) -> Result<Fields<'a>, Problem> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        match value {
            None | Some(Value::Null) => Ok(Fields::new(path, &EMPTY)),
            Some(Value::Object(map)) => Ok(Fields::new(path, map)),
            Some(_) => Err(Problem::at(path, "keys with values are expected here")),
        }
    }

    pub fn path(&self, key: &str) -> String {
        match self.path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// The value; null counts as absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub fn text(&self, key: &str) -> Result<Option<String>, Problem> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match scalar(value) {
                Some(text) => Ok(Some(text)),
                None => Err(Problem::at(
                    self.path(key),
                    "one plain value is expected here",
                )),
            },
        }
    }

    pub fn integer(&self, key: &str) -> Result<Option<i64>, Problem> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => Err(Problem::at(
                    self.path(key),
                    "a whole number is expected here",
                )),
            },
        }
    }

    pub fn flag(&self, key: &str) -> Result<bool, Problem> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(Problem::at(
                self.path(key),
                "true or false is expected here",
            )),
        }
    }

    pub fn list(&self, key: &str) -> Result<&'a [Value], Problem> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(entries)) => Ok(entries),
            Some(_) => Err(Problem::at(self.path(key), "a list is expected here")),
        }
    }

    pub fn texts(&self, key: &str) -> Result<Vec<String>, Problem> {
        let entries = self.list(key)?.iter().enumerate();
        let text = |(nth, value): (usize, &Value)| {
            scalar(value).ok_or_else(|| {
                Problem::at(
                    format!("{}[{nth}]", self.path(key)),
                    "one plain value is expected here",
                )
            })
        };
        entries.map(text).collect()
    }
}

/// The text of a scalar value.
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}
