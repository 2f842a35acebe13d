//! Reads the model of a request's body and checks its depth, without building its values.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{BODY, LineError, Name, check_bytes, not_json, required, text};

const MODEL: &str = "body.model";
const STREAM: &str = "body.stream";
const MODEL_BYTES_MAX: usize = 256;

/// Returns the model of this body, which lies within the line.
pub fn model<'a>(line: &str, body: &'a RawValue) -> Result<Cow<'a, str>, LineError> {
    let json = body.get();
    if !json.starts_with('{') {
        return Err(LineError::at(BODY, "must be an object"));
    }
    let start = json.as_ptr().addr() - line.as_ptr().addr();
    let mut problem = None;
    let read = serde_json::Deserializer::from_str(json).deserialize_map(BodyVisitor {
        problem: &mut problem,
    });
    let unread = |error| LineError {
        field: Some(BODY),
        ..not_json(&error, start)
    };
    let fields = read.map_err(|error| problem.unwrap_or_else(|| unread(error)))?;
    if let Some(stream) = fields.stream
        && !matches!(stream.get(), "false" | "null")
    {
        return Err(LineError::at(STREAM, "must be false or absent"));
    }
    let model = text(required(fields.model, MODEL)?, MODEL)?;
    check_bytes(&model, MODEL, MODEL_BYTES_MAX)?;
    Ok(model)
}

#[derive(Debug, Default)]
struct BodyFields<'a> {
    model: Option<&'a RawValue>,
    stream: Option<&'a RawValue>,
}

struct BodyVisitor<'p> {
    problem: &'p mut Option<LineError>,
}

impl<'de> Visitor<'de> for BodyVisitor<'_> {
    type Value = BodyFields<'de>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<BodyFields<'de>, M::Error> {
        let mut fields = BodyFields::default();
        while let Some(Name(name)) = map.next_key()? {
            let (field, place) = match name.as_ref() {
                "model" => (MODEL, &mut fields.model),
                "stream" => (STREAM, &mut fields.stream),
                _ => {
                    map.next_value::<Skipped>()?;
                    continue;
                }
            };
            if place.is_some() {
                *self.problem = Some(LineError::at(field, "is there twice"));
                return Err(M::Error::custom("a refused field"));
            }
            *place = Some(map.next_value()?);
        }
        Ok(fields)
    }
}

/// A value that is read and dropped. `serde::de::IgnoredAny` skips values of any depth; this type has the parser's limit.
struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Skipped, D::Error> {
        json.deserialize_any(SkippedVisitor)
    }
}

struct SkippedVisitor;

impl<'de> Visitor<'de> for SkippedVisitor {
    type Value = Skipped;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Skipped, E> {
        Ok(Skipped)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Skipped, E> {
        Ok(Skipped)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Skipped, E> {
        Ok(Skipped)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Skipped, E> {
        Ok(Skipped)
    }

    fn visit_str<E>(self, _: &str) -> Result<Skipped, E> {
        Ok(Skipped)
    }

    fn visit_unit<E>(self) -> Result<Skipped, E> {
        Ok(Skipped)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut values: S) -> Result<Skipped, S::Error> {
        while values.next_element::<Skipped>()?.is_some() {}
        Ok(Skipped)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Skipped, M::Error> {
        while map.next_entry::<Skipped, Skipped>()?.is_some() {}
        Ok(Skipped)
    }
}
