//! Strict parsing of administrators' requests: every field by name, with its type and range. Unknown fields are refused.

use std::error::Error;
use std::fmt::Display;
use std::ops::RangeInclusive;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use serde_json::{Map, Value};

use crate::state::App;
use api_types::error::Failure;
use config::Length;
use dialect::shape::may_be_a_tree;
use pool::{ReplicaId, Span};
use reading::{FieldErrors, UniqueEntries, shortened};

/// Accepted durations.
const LENGTHS: RangeInclusive<Span> = Span::from_secs(1)..=Span::from_secs(365 * 24 * 3600);
/// Largest body of an order or a model's document.
const ORDER_BYTES_MAX: u64 = 1 << 20;

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
            return read(Fields::from(Map::new())).map(Body);
        }
        let fields = move || Fields::parse(&bytes);
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
        read(query_fields(query.0)?).map(Params)
    }
}

/// Reads the type from the fields. Fields that it does not know are refused.
pub fn read<T: Strict>(mut fields: Fields) -> Result<T, Failure> {
    let value = T::read(&mut fields)?;
    fields.finish()?;
    Ok(value)
}

fn query_fields(entries: Vec<(String, String)>) -> Result<Fields, Failure> {
    let mut values = Map::new();
    for (name, text) in entries {
        if values.contains_key(&name) {
            return Err(invalid(&name, "is given twice"));
        }
        values.insert(name, Value::String(text));
    }
    Ok(Fields::from_query(values))
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

/// The fields of a body or query.
pub type Fields = reading::Fields<OrderErrors>;

#[derive(Debug)]
pub enum OrderErrors {}

impl FieldErrors for OrderErrors {
    type Error = Failure;
    // Null clears a value.
    const REFUSES_UNKNOWN_NULLS: bool = true;
    const STRING: &str = "a text";

    fn parse(bytes: &[u8]) -> Result<Map<String, Value>, Failure> {
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
        Ok(entries.0.into_iter().collect())
    }

    fn invalid(path: String, message: String) -> Failure {
        Failure::invalid(path, message)
    }

    fn unknown(paths: &[String], near: Option<String>, known: &[&'static str]) -> Failure {
        let known = match known {
            [] => "no fields are allowed here".to_owned(),
            known => format!("known here: {}", known.join(", ")),
        };
        let hint = match near {
            Some(near) => format!("did you mean {near}? {known}"),
            None => known,
        };
        let name = paths.first().map_or("", String::as_str);
        invalid(&shortened(name), &format!("is unknown; {hint}"))
    }

    fn wrong(path: String, wanted: &dyn Display, found: Option<&Value>) -> Failure {
        let problem = found.map_or_else(String::new, |found| {
            format!("{} is not allowed; ", shortened(&found.to_string()))
        });
        invalid(&path, &format!("{problem}allowed: {wanted}"))
    }

    fn check_text(path: &str, text: &str) -> Result<(), Failure> {
        if text.trim().is_empty() {
            return Err(invalid(path, "is empty; omit it or provide a value"));
        }
        Ok(())
    }
}

/// Types of fields that only administrators' requests have.
pub trait OrderFields {
    fn needed_text(&mut self, name: &'static str, example: &str) -> Result<String, Failure>;

    /// Takes a duration such as `10m`.
    fn length(&mut self, name: &'static str) -> Result<Option<Span>, Failure>;

    /// Takes a replica name such as `r3`.
    fn replica(&mut self, name: &'static str) -> Result<Option<ReplicaId>, Failure>;
}

impl OrderFields for Fields {
    fn needed_text(&mut self, name: &'static str, example: &str) -> Result<String, Failure> {
        let problem = format!("is missing; provide a value such as {example}");
        self.text(name)?.ok_or_else(|| invalid(name, &problem))
    }

    fn length(&mut self, name: &'static str) -> Result<Option<Span>, Failure> {
        const ALLOWED: &str = "a duration from 1s to 365d, such as \"10m\" or \"2h\"";
        let text = self.take_as(name, ALLOWED, |value| match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        })?;
        let Some(text) = text else {
            return Ok(None);
        };
        match text.parse::<Length>() {
            Ok(Length(span)) if LENGTHS.contains(&span) => Ok(Some(span)),
            Ok(_) => Err(OrderErrors::wrong(
                name.to_owned(),
                &ALLOWED,
                Some(&Value::String(text)),
            )),
            Err(error) => Err(invalid(name, &format!("{error}; allowed: 1s to 365d"))),
        }
    }

    fn replica(&mut self, name: &'static str) -> Result<Option<ReplicaId>, Failure> {
        self.take_as(name, "a replica's name such as \"r3\"", |value| {
            let digits = value.as_str().and_then(|text| text.strip_prefix('r'));
            let number = digits.and_then(|digits| digits.parse().ok());
            number.map(ReplicaId).ok_or(value)
        })
    }
}

fn invalid(name: &str, problem: &str) -> Failure {
    Failure::invalid(Some(name.to_owned()), format!("{name}: {problem}"))
}

#[cfg(test)]
mod tests;
