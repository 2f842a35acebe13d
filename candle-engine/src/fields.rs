//! Reads a JSON object field by field. Errors name fields with a wrong type, a value out of range or an unknown name.

use crate::api_error::ApiError;
use crate::ignored_fields::IgnoredFields;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// The remaining fields of a request.
pub(crate) struct Fields {
    left: Map<String, Value>,
    /// Names that were looked up; candidates for suggestions.
    known: Vec<String>,
}

impl Fields {
    /// # Errors
    /// 400 if the body is not a JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self::from(fields)),
            Ok(_) => Err(ApiError::invalid("the body must be a JSON object")),
            Err(error) => Err(ApiError::invalid(format!(
                "the body is not valid JSON: {error}"
            ))),
        }
    }

    /// Takes a field; `null` counts as absent.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.known.push(name.to_owned());
        let value = self.left.shift_remove(name);
        value.filter(|value| !value.is_null())
    }

    /// Returns true if a field is present and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.left.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns the number in a field without taking it.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.left.get(name).and_then(Value::as_f64)
    }

    /// # Errors
    /// 400 if the field is present and not a string.
    pub fn take_string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let string = |value: &Value| value.as_str().map(str::to_owned);
        self.take_as(name, "a string", string)
    }

    /// # Errors
    /// 400 if the field is present and not a boolean.
    pub fn take_bool(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.take_as(name, "true or false", Value::as_bool)
    }

    /// # Errors
    /// 400 if the field is present and not a number within `range`.
    pub fn take_number(
        &mut self,
        name: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let wanted = format_args!("a number from {} to {}", range.start(), range.end());
        let number = |value: &Value| value.as_f64().filter(|number| range.contains(number));
        self.take_as(name, wanted, number)
    }

    /// # Errors
    /// 400 if the field is present and not an integer within `range`.
    pub fn take_integer(
        &mut self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let wanted = format_args!("a whole number from {} to {}", range.start(), range.end());
        // An integer may be written as 2.0; JSON has a single number type.
        let whole = |number: &f64| number.fract() == 0.0 && number.abs() < 9e15;
        let integer = |value: &Value| {
            let written = || value.as_f64().filter(whole).map(|number| number as i64);
            let number = value.as_i64().or_else(written);
            number.filter(|number| range.contains(number))
        };
        self.take_as(name, wanted, integer)
    }

    /// Takes a required list of token ids.
    ///
    /// # Errors
    /// 400 if the field is missing, or not such a list.
    pub fn need_token_ids(&mut self, name: &str) -> Result<Vec<u32>, ApiError> {
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let ids = |value: &Value| value.as_array()?.iter().map(id).collect();
        let taken = self.take_as(name, "a list of token ids", ids)?;
        taken.ok_or_else(|| ApiError::field(name, format!("`{name}` is required")))
    }

    fn take_as<T>(
        &mut self,
        name: &str,
        wanted: impl Display,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let taken = read(&value);
        taken
            .map(Some)
            .ok_or_else(|| expected(name, wanted, &value))
    }

    /// Reports the remaining non-empty fields as ignored, for objects whose unknown fields are dropped.
    pub fn drop_rest(self, place: &str, ignored: &mut IgnoredFields) {
        for (name, _) in self.left.iter().filter(|(_, value)| has_effect(value)) {
            ignored.add_unknown(place, name);
        }
    }

    /// # Errors
    /// 400 if a non-null field remains: it is unknown, and would silently have no effect.
    pub fn finish(mut self, place: &str) -> Result<(), ApiError> {
        const NAMED: usize = 8;
        self.left.retain(|_, value| !value.is_null());
        let shown = |name: &String| -> String { name.chars().take(100).collect() };
        let named = self.left.keys().take(NAMED);
        let names: Vec<String> = named
            .map(|name| format!("{place}{}", shown(name)))
            .collect();
        let Some(first) = names.first() else {
            return Ok(());
        };
        let more = match self.left.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let known = self.known.iter().map(String::as_str);
        let wrong = self.left.keys().next();
        let near = wrong.and_then(|name| reading::nearest(name, known));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean {place}{near}?"));
        let message = format!("unknown field: {}{more}{hint}", names.join(", "));
        Err(ApiError {
            code: Some("unknown_parameter"),
            ..ApiError::field(first, message)
        })
    }
}

impl From<Map<String, Value>> for Fields {
    fn from(fields: Map<String, Value>) -> Self {
        Self {
            left: fields,
            known: Vec::new(),
        }
    }
}

/// Returns false for null, false, and empty values.
pub(crate) fn has_effect(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => fields.values().any(has_effect),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// A 400 error for a value of the wrong kind.
pub(crate) fn expected(name: &str, wanted: impl Display, found: &Value) -> ApiError {
    const SHOWN_LETTERS: usize = 60;
    let mut shown = found.to_string();
    if let Some((cut, _)) = shown.char_indices().nth(SHOWN_LETTERS) {
        shown.truncate(cut);
        shown.push('…');
    }
    ApiError::field(name, format!("`{name}` must be {wanted}, not {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_not_a_json_object_is_refused_with_an_error_code() {
        for body in [&br#"{"max_tokens": 1e400}"#[..], b"[]"] {
            let Err(error) = Fields::parse(body) else {
                panic!("it is taken")
            };
            assert_eq!(error.code, Some("invalid_request"), "{}", error.message);
        }
    }

    #[test]
    fn wrong_types_and_ranges_name_the_field() {
        let mut fields =
            Fields::parse(br#"{"a": "x", "b": 3, "c": -1, "d": 1.5, "e": null, "f": 2.0}"#)
                .expect("an object");
        assert_eq!(
            fields
                .take_number("a", 0.0..=2.0)
                .expect_err("a string")
                .param
                .as_deref(),
            Some("a")
        );
        assert_eq!(
            fields
                .take_string("b")
                .expect_err("a number")
                .param
                .as_deref(),
            Some("b")
        );
        assert_eq!(
            fields
                .take_integer("c", 0..=5)
                .expect_err("negative")
                .param
                .as_deref(),
            Some("c")
        );
        assert_eq!(
            fields
                .take_integer("d", 0..=5)
                .expect_err("a fraction")
                .param
                .as_deref(),
            Some("d")
        );
        assert_eq!(fields.take_bool("e"), Ok(None));
        assert_eq!(fields.take_integer("f", 0..=5), Ok(Some(2)));
        assert_eq!(fields.finish(""), Ok(()));
    }

    #[test]
    fn a_long_invalid_value_is_truncated_at_a_character_boundary() {
        let error = expected("a", "short", &Value::String("é".repeat(500)));
        assert!(error.message.len() < 200, "{}", error.message);
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        let fields = Fields::parse(br#"{"temprature": 1, "b": 2}"#).expect("an object");
        let error = fields.finish("").expect_err("unknown fields");
        assert!(error.message.contains("temprature, b"), "{}", error.message);
    }

    #[test]
    fn a_misspelled_field_gets_the_nearest_known_name_suggested() {
        let message = |body: &[u8]| {
            let mut fields = Fields::parse(body).expect("an object");
            for name in ["temperature", "top_p", "messages"] {
                fields.take(name);
            }
            fields.finish("").expect_err("unknown fields").message
        };
        let message_of_near = message(br#"{"temprature": 1}"#);
        assert!(
            message_of_near.ends_with("did you mean temperature?"),
            "{message_of_near}"
        );
        assert!(!message(br#"{"colour": 1}"#).contains("did you mean"));
    }
}
