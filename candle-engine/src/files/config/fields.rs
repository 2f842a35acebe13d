//! Reads single fields of a `config.json`, with their types, bounds and defaults.

use serde_json::{Map, Value};

/// An object of a `config.json`. Errors describe the problem without the file's name.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(&'a Value);

/// Upper bound for counts; larger values are corrupt.
const COUNT_MAX: usize = 1 << 28;

impl<'a> Fields<'a> {
    pub fn new(json: &'a Value) -> Self {
        Self(json)
    }

    /// Returns the field, or `None` if it is missing or null.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns true if the field is present, even if null: some defaults apply only to omitted fields.
    pub fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    /// A non-negative integer.
    pub fn maybe_number_of(&self, name: &str) -> Result<Option<usize>, String> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let number = value
            .as_u64()
            .and_then(|number| usize::try_from(number).ok());
        let number =
            number.ok_or_else(|| format!("{name} is {value}, which is not a whole number"))?;
        if number > COUNT_MAX {
            return Err(format!(
                "{name} is {number}, which is not between 0 and {COUNT_MAX}"
            ));
        }
        Ok(Some(number))
    }

    /// A positive integer.
    pub fn maybe_count(&self, name: &str) -> Result<Option<usize>, String> {
        match self.maybe_number_of(name)? {
            Some(0) => Err(format!(
                "{name} is 0, which is not between 1 and {COUNT_MAX}"
            )),
            number => Ok(number),
        }
    }

    pub fn count(&self, name: &str, default: usize) -> Result<usize, String> {
        Ok(self.maybe_count(name)?.unwrap_or(default))
    }

    /// A finite number.
    pub fn maybe_number(&self, name: &str) -> Result<Option<f64>, String> {
        self.value(name)
            .map(|value| {
                value
                    .as_f64()
                    .filter(|number| (*number as f32).is_finite())
                    .ok_or_else(|| format!("{name} is {value}, which is not a number"))
            })
            .transpose()
    }

    pub fn number(&self, name: &str, default: f64) -> Result<f64, String> {
        Ok(self.maybe_number(name)?.unwrap_or(default))
    }

    /// A number above 0, for values that are divisors or must not change signs.
    pub fn maybe_positive(&self, name: &str) -> Result<Option<f64>, String> {
        match self.maybe_number(name)? {
            Some(number) if number <= 0.0 => {
                Err(format!("{name} is {number}, which is not above 0"))
            }
            number => Ok(number),
        }
    }

    pub fn positive(&self, name: &str, default: f64) -> Result<f64, String> {
        Ok(self.maybe_positive(name)?.unwrap_or(default))
    }

    pub fn flag(&self, name: &str, default: bool) -> Result<bool, String> {
        self.value(name).map_or(Ok(default), |value| {
            value
                .as_bool()
                .ok_or_else(|| format!("{name} is {value}, which is neither true nor false"))
        })
    }

    pub fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        self.value(name)
            .map(|value| {
                value
                    .as_str()
                    .ok_or_else(|| format!("{name} is {value}, which is not a text"))
            })
            .transpose()
    }

    /// A non-empty object.
    pub fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, String> {
        let object = self
            .value(name)
            .map(|value| {
                value
                    .as_object()
                    .ok_or_else(|| format!("{name} is {value}, which is not an object"))
            })
            .transpose()?;
        Ok(object.filter(|object| !object.is_empty()))
    }

    /// A list of non-negative integers; `None` if it is missing.
    pub fn numbers_of(&self, name: &str) -> Result<Option<Vec<usize>>, String> {
        self.list(name, |value| {
            value
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
        })
    }

    /// A list of numbers above 0.
    pub fn positives(&self, name: &str) -> Result<Option<Vec<f32>>, String> {
        self.list(name, |value| {
            let number = value.as_f64()? as f32;
            (number.is_finite() && number > 0.0).then_some(number)
        })
    }

    pub fn texts(&self, name: &str) -> Result<Option<Vec<&'a str>>, String> {
        self.list(name, Value::as_str)
    }

    fn list<T>(
        &self,
        name: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, String> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let list = value
            .as_array()
            .ok_or_else(|| format!("{name} is {value}, which is not a list"))?;
        let read = list.iter().map(|item| {
            read(item).ok_or_else(|| format!("{name} contains {item}, which does not belong there"))
        });
        read.collect::<Result<Vec<T>, String>>().map(Some)
    }
}
