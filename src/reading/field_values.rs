//! Values and names of fields, as requests and messages write them.

use serde_json::Value;

/// Maximum number of unknown fields to name; the others are counted.
const NAMED_MAX: usize = 8;
const NAME_LETTERS_MAX: usize = 100;
/// Longest part of a wrong value repeated in messages.
const SHOWN_LETTERS_MAX: usize = 60;

/// `messages.content.id` for `messages[3].content[0].id`.
pub(crate) fn unnumbered(path: &str) -> String {
    let mut parts = path.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| {
        path + part.split_once(']').map_or(part, |(_, rest)| rest)
    })
}

/// Returns false for null, false, and empty values.
pub fn has_effect(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => fields.values().any(has_effect),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// JSON has a single number type; an integer may be written as 2.0.
pub(crate) fn integer_of(value: &Value) -> Option<i128> {
    const EXACT_MAX: f64 = 9e15;
    let from_float = |number: f64| {
        let is_integer = number.fract() == 0.0 && number.abs() <= EXACT_MAX;
        is_integer.then_some(number as i128)
    };
    value
        .as_i64()
        .map(i128::from)
        .or_else(|| value.as_u64().map(i128::from))
        .or_else(|| value.as_f64().and_then(from_float))
}

/// Lists unknown fields for a message, such as `unknown field: a, b and 3 more`.
pub fn unknown_fields(paths: &[String]) -> String {
    let named = paths.iter().take(NAMED_MAX);
    let names: Vec<String> = named
        .map(|path| path.chars().take(NAME_LETTERS_MAX).collect())
        .collect();
    let more = match paths.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("unknown field: {}{more}", names.join(", "))
}

/// The beginning of a text, for messages.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_LETTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
