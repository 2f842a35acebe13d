//! A JSON object whose fields are taken one at a time. Errors have the path of the field, such as `messages[0].content`.
//! Fields that remain at the end are unknown.

use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::field_values::{has_effect, integer_of, unnumbered};
use crate::ignored_fields::IgnoredFields;
use crate::names::nearest;

/// Larger numbers do not fit the integers of other languages.
const COUNT_MAX: u64 = i64::MAX as u64;

/// The errors of one API.
pub trait FieldErrors {
    type Error;
    /// Refuses unknown fields even if they are `null`, for APIs where `null` has a meaning.
    const REFUSES_UNKNOWN_NULLS: bool = false;
    /// The name of the string type in messages.
    const STRING: &str = "a string";

    /// Parses a body.
    fn parse(body: &[u8]) -> Result<Map<String, Value>, Self::Error>;

    /// The error for a field.
    fn invalid(path: String, message: String) -> Self::Error;

    /// The error for unknown fields; `near` is the path that was probably meant.
    fn unknown(paths: &[String], near: Option<String>, known: &[&'static str]) -> Self::Error;

    /// The error for a wrong value, which is `None` if the caller does not have it.
    fn wrong(path: String, wanted: &dyn Display, _found: Option<&Value>) -> Self::Error {
        let message = format!("`{path}` must be {wanted}");
        Self::invalid(path, message)
    }

    /// Checks a string.
    fn check_text(_path: &str, _text: &str) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The fields of an object and its path in the request.
#[derive(Debug)]
pub struct Fields<E> {
    at: String,
    values: Map<String, Value>,
    /// All values are strings, because they come from a query.
    is_query: bool,
    /// Names that were looked up; candidates for suggestions.
    known: Vec<&'static str>,
    errors: PhantomData<E>,
}

impl<E: FieldErrors> Fields<E> {
    pub fn parse(body: &[u8]) -> Result<Self, E::Error> {
        E::parse(body).map(Self::from)
    }

    /// Uses the parameters of a query, whose numbers and booleans are strings.
    pub fn from_query(values: Map<String, Value>) -> Self {
        Self {
            is_query: true,
            ..Self::from(values)
        }
    }

    /// Uses an object within the request.
    pub fn at(at: impl Into<String>, values: Map<String, Value>) -> Self {
        Self {
            at: at.into(),
            ..Self::from(values)
        }
    }

    pub fn new(at: impl Into<String>, value: Value) -> Result<Self, E::Error> {
        match value {
            Value::Object(values) => Ok(Self::at(at, values)),
            other => Err(E::wrong(at.into(), &"an object", Some(&other))),
        }
    }

    /// The path of a field, such as `messages[0].content`.
    pub fn path(&self, name: &str) -> String {
        match self.at.as_str() {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        }
    }

    /// Takes a field. `null` counts as absent.
    pub fn take(&mut self, name: &'static str) -> Option<Value> {
        #[cfg(feature = "record-fields")]
        crate::record::note(self.path(name));
        self.known.push(name);
        // Leaves null in its place: removal would shift all later fields.
        let value = self.values.get_mut(name).map(Value::take);
        value.filter(|value| !value.is_null())
    }

    /// Takes a field and converts it. `read` returns a wrong value unchanged.
    pub fn take_as<T>(
        &mut self,
        name: &'static str,
        wanted: impl Display,
        read: impl FnOnce(Value) -> Result<T, Value>,
    ) -> Result<Option<T>, E::Error> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let found = read(value);
        let wrong = |found| E::wrong(self.path(name), &wanted, Some(&found));
        found.map(Some).map_err(wrong)
    }

    /// Returns a field that is not `null` without taking it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }

    /// Returns true if a field is present and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn need(&mut self, name: &'static str) -> Result<Value, E::Error> {
        self.take(name).ok_or_else(|| self.missing(name))
    }

    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, E::Error> {
        let text = self.take_as(name, E::STRING, |value| match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        })?;
        if let Some(text) = &text {
            E::check_text(&self.path(name), text)?;
        }
        Ok(text)
    }

    pub fn need_text(&mut self, name: &'static str) -> Result<String, E::Error> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    /// Takes a list of strings; empty if absent.
    pub fn texts(&mut self, name: &'static str) -> Result<Vec<String>, E::Error> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let texts = self.take_as(name, "a list of texts", |value| {
            let texts = value.as_array();
            let texts = texts.and_then(|all| all.iter().map(text).collect());
            texts.ok_or(value)
        });
        texts.map(Option::unwrap_or_default)
    }

    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, E::Error> {
        let is_query = self.is_query;
        self.take_as(name, "true or false", |value| match value.as_str() {
            Some(text) if is_query => text.parse().map_err(|_| value),
            _ => value.as_bool().ok_or(value),
        })
    }

    pub fn number(&mut self, name: &'static str) -> Result<Option<Value>, E::Error> {
        self.take_as(name, "a number", |value| {
            if value.is_number() {
                Ok(value)
            } else {
                Err(value)
            }
        })
    }

    pub fn number_in(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, E::Error> {
        let wanted = format_args!("a number from {} to {}", range.start(), range.end());
        self.take_as(name, wanted, |value| {
            let number = value.as_f64().filter(|number| range.contains(number));
            number.ok_or(value)
        })
    }

    pub fn integer<T>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, E::Error>
    where
        T: Display + PartialOrd + TryFrom<i128>,
    {
        let is_query = self.is_query;
        let wanted = format_args!("a whole number from {} to {}", range.start(), range.end());
        self.take_as(name, wanted, |value| {
            let number = match value.as_str() {
                Some(text) if is_query => text.parse().ok(),
                _ => integer_of(&value),
            };
            let number = number.and_then(|number| T::try_from(number).ok());
            number.filter(|number| range.contains(number)).ok_or(value)
        })
    }

    /// Takes an integer of at least 1.
    pub fn count(&mut self, name: &'static str) -> Result<Option<u64>, E::Error> {
        self.take_as(name, "a whole number from 1", |value| {
            let count = integer_of(&value).and_then(|count| u64::try_from(count).ok());
            let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
            count.ok_or(value)
        })
    }

    pub fn list(&mut self, name: &'static str) -> Result<Option<Vec<Value>>, E::Error> {
        self.take_as(name, "a list", |value| match value {
            Value::Array(list) => Ok(list),
            other => Err(other),
        })
    }

    pub fn map(&mut self, name: &'static str) -> Result<Option<Map<String, Value>>, E::Error> {
        self.take_as(name, "an object", |value| match value {
            Value::Object(values) => Ok(values),
            other => Err(other),
        })
    }

    pub fn object(&mut self, name: &'static str) -> Result<Option<Self>, E::Error> {
        let values = self.map(name)?;
        Ok(values.map(|values| Self::at(self.path(name), values)))
    }

    /// Takes a string from a fixed set, with its meaning.
    pub fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, E::Error> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let wanted = format!("one of {}", words.join(", "));
        self.take_as(name, wanted, |value| {
            let chosen = choices.iter().find(|(word, _)| value == **word);
            chosen.map(|(_, choice)| *choice).ok_or(value)
        })
    }

    /// Takes a string that must be in `choices`.
    pub fn one_of(
        &mut self,
        name: &'static str,
        choices: &[&'static str],
    ) -> Result<Option<&'static str>, E::Error> {
        let choices: Vec<_> = choices.iter().map(|word| (*word, *word)).collect();
        self.choice(name, &choices)
    }

    /// Takes a hint. A value that is not in `choices` has no effect, and the field is reported as ignored.
    pub fn hint(
        &mut self,
        name: &'static str,
        choices: &[&'static str],
        ignored: &mut IgnoredFields,
    ) -> Result<Option<&'static str>, E::Error> {
        let Some(word) = self.text(name)? else {
            return Ok(None);
        };
        let found = choices.iter().find(|choice| word == **choice).copied();
        if found.is_none() && !word.is_empty() {
            ignored.add(unnumbered(&self.path(name)));
        }
        Ok(found)
    }

    /// Takes a field that distinguishes absent, null and a value.
    pub fn clearable<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Result<Option<T>, E::Error>,
    ) -> Result<Option<Option<T>>, E::Error> {
        let is_present = self.values.contains_key(name);
        let value = read(self, name)?;
        Ok(is_present.then_some(value))
    }

    /// Refuses a field that cannot be honoured, except with a value in `idle`.
    pub fn refuse(
        &mut self,
        name: &'static str,
        idle: &[Value],
        why: &str,
    ) -> Result<(), E::Error> {
        match self.take(name) {
            Some(value) if !idle.contains(&value) => Err(self.not_here(name, why)),
            _ => Ok(()),
        }
    }

    pub fn not_here(&self, name: &str, why: &str) -> E::Error {
        let path = self.path(name);
        let message = format!("`{path}` is not supported here: {why}");
        E::invalid(path, message)
    }

    pub fn wrong(&self, name: &str, wanted: &str) -> E::Error {
        E::wrong(self.path(name), &wanted, None)
    }

    pub fn missing(&self, name: &str) -> E::Error {
        let path = self.path(name);
        let message = format!("`{path}` is required");
        E::invalid(path, message)
    }

    /// Paths of the remaining fields that have an effect.
    pub fn left(&self) -> Vec<String> {
        let left = self.values.iter().filter(|(_, value)| has_effect(value));
        left.map(|(name, _)| self.path(name)).collect()
    }

    /// Paths of the fields that were not taken.
    pub fn unknown(&self) -> Vec<String> {
        let names = self.unknown_names();
        names.map(|name| self.path(name)).collect()
    }

    fn unknown_names(&self) -> impl Iterator<Item = &str> {
        let left = self.values.iter().filter(|(name, value)| {
            let is_known = || self.known.contains(&name.as_str());
            !value.is_null() || (E::REFUSES_UNKNOWN_NULLS && !is_known())
        });
        left.map(|(name, _)| name.as_str())
    }

    /// Reports the remaining fields with an effect as ignored. For objects within the request: clients add fields to messages,
    /// which must not end a conversation.
    pub fn drop_rest(self, ignored: &mut IgnoredFields) {
        let left = self.values.iter().filter(|(_, value)| has_effect(value));
        for (name, _) in left {
            ignored.add_unknown(&unnumbered(&self.at), name);
        }
    }

    /// Refuses the remaining fields as unknown.
    pub fn finish(self) -> Result<(), E::Error> {
        let Some(first) = self.unknown_names().next() else {
            return Ok(());
        };
        let near = nearest(first, self.known.iter().copied());
        let near = near.map(|near| self.path(near));
        Err(E::unknown(&self.unknown(), near, &self.known))
    }
}

impl<E> From<Map<String, Value>> for Fields<E> {
    fn from(values: Map<String, Value>) -> Self {
        Self {
            at: String::new(),
            values,
            is_query: false,
            known: Vec::new(),
            errors: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests;
