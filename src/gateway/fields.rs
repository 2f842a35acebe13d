//! Strict parsing of administrators' requests: every field by name, with its type and range. Unknown fields are refused.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::RangeInclusive;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use serde_json::Value;

use crate::state::App;
use api_types::error::Failure;
use config::Length;
use dialect::shape::may_be_a_tree;
use pool::{ReplicaId, Span};
use reading::{UniqueEntries, nearest};

/// Accepted durations.
const LENGTHS: RangeInclusive<Span> = Span::from_secs(1)..=Span::from_secs(365 * 24 * 3600);
/// Largest body of an order or a model's document.
const ORDER_BYTES_MAX: u64 = 1 << 20;
/// Longest part of a wrong value repeated in messages.
const SHOWN_MAX: usize = 60;

/// A request type that is read from the fields of a body or a query.
pub trait Strict: Sized {
    /// An empty body is treated as `{}`.
    const MAY_BE_EMPTY: bool = false;

    fn read(fields: &mut Fields) -> Result<Self, Failure>;
}

/// A request without fields.
#[derive(Debug)]
pub struct Nothing;

impl Strict for Nothing {
    const MAY_BE_EMPTY: bool = true;

    fn read(_: &mut Fields) -> Result<Nothing, Failure> {
        Ok(Nothing)
    }
}

/// A JSON body.
#[derive(Debug)]
pub struct Body<T>(pub T);

/// The query parameters.
#[derive(Debug)]
pub struct Params<T>(pub T);

impl<T: Strict> FromRequest<App> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Body<T>, Failure> {
        let bytes = read_body(request, app).await?;
        let length = bytes.len();
        // Clients without options may also send null.
        if T::MAY_BE_EMPTY && [&b""[..], b"null"].contains(&bytes.trim_ascii()) {
            return read(Fields::new(Vec::new(), From::Body)?).map(Body);
        }
        let fields = move || Fields::of_json(&bytes);
        read(app.reading.run(length, fields).await?).map(Body)
    }
}

impl<T: Strict> FromRequestParts<App> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Params<T>, Failure> {
        let query =
            Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(|rejection| {
                Failure::invalid(None, format!("the query cannot be read: {rejection}"))
            })?;
        let entries = query
            .0
            .into_iter()
            .map(|(name, text)| (name, Value::String(text)));
        read(Fields::new(entries.collect(), From::Query)?).map(Params)
    }
}

fn read<T: Strict>(mut fields: Fields) -> Result<T, Failure> {
    let value = T::read(&mut fields)?;
    fields.end()?;
    Ok(value)
}

/// Reads the complete body, up to the limit for administrators.
pub async fn read_body(request: Request, app: &App) -> Result<axum::body::Bytes, Failure> {
    let limit = app.config().server.body_limit.0.0.min(ORDER_BYTES_MAX);
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    axum::body::to_bytes(request.into_body(), most)
        .await
        .map_err(|error| {
            let is_long = error
                .source()
                .is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>());
            if is_long && limit < ORDER_BYTES_MAX {
                Failure::too_large(limit)
            } else if is_long {
                Failure::order_too_large(limit)
            } else {
                Failure::invalid(
                    None,
                    format!("the body could not be read completely: {error}"),
                )
            }
        })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Body,
    Query,
}

/// The fields that have not been read yet, and the names that were requested.
#[derive(Debug)]
pub struct Fields {
    values: BTreeMap<String, Value>,
    from: From,
    known: Vec<&'static str>,
}

impl Fields {
    /// Reads the fields of a JSON object.
    pub fn of_json(bytes: &[u8]) -> Result<Fields, Failure> {
        if bytes.trim_ascii().is_empty() {
            return Err(Failure::invalid(
                None,
                "the body is empty; send a JSON object",
            ));
        }
        may_be_a_tree(bytes)?;
        let entries: UniqueEntries<Value> = serde_json::from_slice(bytes).map_err(|error| {
            Failure::invalid(None, format!("the body is not a JSON object: {error}"))
        })?;
        Fields::new(entries.0, From::Body)
    }

    fn new(entries: Vec<(String, Value)>, from: From) -> Result<Fields, Failure> {
        let mut values = BTreeMap::new();
        for (name, value) in entries {
            if values.contains_key(&name) {
                return Err(invalid(&name, "is given twice"));
            }
            values.insert(name, value);
        }
        Ok(Fields {
            values,
            from,
            known: Vec::new(),
        })
    }

    /// Takes the value of a field. Null is treated as absent.
    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.values.remove(name).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
            Some(Value::String(_)) => Err(invalid(name, "is empty; omit it or provide a value")),
            Some(other) => Err(wrong(name, &other, "a text")),
        }
    }

    pub fn needed_text(&mut self, name: &'static str, example: &str) -> Result<String, Failure> {
        let missing = || {
            invalid(
                name,
                &format!("is missing; provide a value such as {example}"),
            )
        };
        self.text(name)?.ok_or_else(missing)
    }

    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Failure> {
        let from = self.from;
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(Value::String(text)) if from == From::Query && text == "true" => Ok(Some(true)),
            Some(Value::String(text)) if from == From::Query && text == "false" => Ok(Some(false)),
            Some(other) => Err(wrong(name, &other, "true or false")),
        }
    }

    /// Takes an integer in a range.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Failure> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let number = match &value {
            Value::String(text) if self.from == From::Query => text.parse().ok(),
            other => other.as_u64().or_else(|| integer_of(other)),
        };
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, &value, &allowed)),
        }
    }

    /// Takes a 32-bit integer in a range.
    pub fn count(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, Failure> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        Ok(self
            .integer(name, wide)?
            .map(|number| u32::try_from(number).unwrap_or(*range.end())))
    }

    /// Takes a duration such as `10m`.
    pub fn length(&mut self, name: &'static str) -> Result<Option<Span>, Failure> {
        const ALLOWED: &str = "a duration from 1s to 365d, such as \"10m\" or \"2h\"";
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => match text.parse::<Length>() {
                Ok(Length(span)) if LENGTHS.contains(&span) => Ok(Some(span)),
                Ok(_) => Err(wrong(name, &Value::String(text), ALLOWED)),
                Err(error) => Err(invalid(name, &format!("{error}; allowed: 1s to 365d"))),
            },
            Some(other) => Err(wrong(name, &other, ALLOWED)),
        }
    }

    /// Takes a list of texts; empty if absent.
    pub fn texts(&mut self, name: &'static str) -> Result<Vec<String>, Failure> {
        let Some(value) = self.take(name) else {
            return Ok(Vec::new());
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let texts = value.as_array().map(|all| all.iter().map(text).collect());
        let texts: Option<Option<Vec<String>>> = texts;
        texts
            .flatten()
            .ok_or_else(|| wrong(name, &value, "a list of texts"))
    }

    pub fn object(&mut self, name: &'static str) -> Result<Option<Value>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(object @ Value::Object(_)) => Ok(Some(object)),
            Some(other) => Err(wrong(name, &other, "an object")),
        }
    }

    /// Takes a value from a fixed set of words.
    pub fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, Failure> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let chosen = choices
            .iter()
            .find(|(word, _)| value.as_str() == Some(word));
        let all: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        chosen
            .map(|(_, choice)| Some(*choice))
            .ok_or_else(|| wrong(name, &value, &format!("one of {}", all.join(", "))))
    }

    /// Takes a replica name such as `r3`.
    pub fn replica(&mut self, name: &'static str) -> Result<Option<ReplicaId>, Failure> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let number = text
            .strip_prefix('r')
            .and_then(|digits| digits.parse().ok());
        let unread = || {
            wrong(
                name,
                &Value::String(text.clone()),
                "a replica's name such as \"r3\"",
            )
        };
        number
            .map(|number| Some(ReplicaId(number)))
            .ok_or_else(unread)
    }

    /// Takes a field that distinguishes absent, null and a value.
    pub fn clearable<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Fields, &'static str) -> Result<Option<T>, Failure>,
    ) -> Result<Option<Option<T>>, Failure> {
        let is_present = self.values.contains_key(name);
        let value = read(self, name)?;
        Ok(is_present.then_some(value))
    }

    /// Returns true if all fields have been read.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Refuses fields that were not read.
    pub fn end(self) -> Result<(), Failure> {
        let Some(name) = self.values.keys().next() else {
            return Ok(());
        };
        let known = match self.known.as_slice() {
            [] => "no fields are allowed here".to_owned(),
            known => format!("known here: {}", known.join(", ")),
        };
        let hint = match nearest(name, self.known.iter().copied()) {
            Some(near) => format!("did you mean {near}? {known}"),
            None => known,
        };
        Err(invalid(&shortened(name), &format!("is unknown; {hint}")))
    }
}

/// An integer may be written as 2.0, since JSON has a single number type.
fn integer_of(value: &Value) -> Option<u64> {
    const EXACT_MAX: f64 = 9e15;
    let number = value.as_f64()?;
    let is_integer = number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&number);
    is_integer.then_some(number as u64)
}

fn invalid(name: &str, problem: &str) -> Failure {
    Failure::invalid(Some(name.to_owned()), format!("{name}: {problem}"))
}

fn wrong(name: &str, value: &Value, allowed: &str) -> Failure {
    invalid(
        name,
        &format!(
            "{} is not allowed; allowed: {allowed}",
            shortened(&value.to_string())
        ),
    )
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
