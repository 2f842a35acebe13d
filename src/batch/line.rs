//! One request line of a batch: `custom_id`, `method`, `url` and `body`. The body stays as it is; the parser reads its model and
//! its depth.

mod body;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::endpoint::Endpoint;

const CUSTOM_ID_BYTES_MAX: usize = 512;
/// Longer names in messages are cut here.
const SHOWN_CHARS_MAX: usize = 64;

#[derive(Debug)]
pub struct RequestLine<'a> {
    pub custom_id: Cow<'a, str>,
    pub endpoint: Endpoint,
    pub model: Cow<'a, str>,
    /// The text of the object, without spaces around it.
    pub body: &'a RawValue,
}

/// The fault of a line; `message` names the field in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    pub message: String,
    pub field: Option<&'static str>,
}

impl LineError {
    fn at(field: &'static str, problem: impl fmt::Display) -> LineError {
        LineError {
            message: format!("`{field}` {problem}"),
            field: Some(field),
        }
    }

    fn plain(message: impl Into<String>) -> LineError {
        LineError {
            message: message.into(),
            field: None,
        }
    }
}

impl<'a> RequestLine<'a> {
    /// Reads a line without its end.
    ///
    /// # Errors
    /// The first fault of the line.
    pub fn parse(line: &'a str) -> Result<RequestLine<'a>, LineError> {
        if !line.trim_start().starts_with('{') {
            return Err(LineError::plain("the line must be a JSON object"));
        }
        let fields = Fields::read(line)?;
        let custom_id = required(fields.custom_id, CUSTOM_ID)?;
        let custom_id = text(custom_id, CUSTOM_ID)?;
        check_bytes(&custom_id, CUSTOM_ID, CUSTOM_ID_BYTES_MAX)?;
        if let Some(method) = fields.method
            && text(method, METHOD)? != "POST"
        {
            return Err(LineError::at(METHOD, "must be `POST`"));
        }
        let url = text(required(fields.url, URL)?, URL)?;
        let endpoint = Endpoint::parse(&url)
            .ok_or_else(|| LineError::at(URL, format!("must be one of {}", Endpoint::paths())))?;
        let body = required(fields.body, BODY)?;
        Ok(RequestLine {
            custom_id,
            endpoint,
            model: body::model(line, body)?,
            body,
        })
    }
}

const CUSTOM_ID: &str = "custom_id";
const METHOD: &str = "method";
const URL: &str = "url";
const BODY: &str = "body";

#[derive(Debug, Default)]
struct Fields<'a> {
    custom_id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    url: Option<&'a RawValue>,
    body: Option<&'a RawValue>,
}

impl<'a> Fields<'a> {
    fn read(line: &'a str) -> Result<Fields<'a>, LineError> {
        let mut problem = None;
        let mut json = serde_json::Deserializer::from_str(line);
        let read = json.deserialize_map(FieldsVisitor {
            problem: &mut problem,
        });
        let ended = read.and_then(|fields| json.end().map(|()| fields));
        ended.map_err(|error| problem.unwrap_or_else(|| not_json(&error, 0)))
    }

    fn place(&mut self, name: &str) -> Option<(&'static str, &mut Option<&'a RawValue>)> {
        match name {
            CUSTOM_ID => Some((CUSTOM_ID, &mut self.custom_id)),
            METHOD => Some((METHOD, &mut self.method)),
            URL => Some((URL, &mut self.url)),
            BODY => Some((BODY, &mut self.body)),
            _ => None,
        }
    }
}

/// The name of a field, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct FieldsVisitor<'p> {
    /// The fault with its field, which errors of the parser cannot carry.
    problem: &'p mut Option<LineError>,
}

impl<'de> Visitor<'de> for FieldsVisitor<'_> {
    type Value = Fields<'de>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields<'de>, M::Error> {
        let mut fields = Fields::default();
        while let Some(Name(name)) = map.next_key()? {
            let problem = match fields.place(&name) {
                None => {
                    let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
                    LineError::plain(format!("`{}` is an unknown field", shown.escape_debug()))
                }
                Some((field, Some(_))) => LineError::at(field, "is there twice"),
                Some((_, place)) => {
                    *place = Some(map.next_value()?);
                    continue;
                }
            };
            *self.problem = Some(problem);
            return Err(M::Error::custom("a refused field"));
        }
        Ok(fields)
    }
}

fn required<'a>(
    value: Option<&'a RawValue>,
    field: &'static str,
) -> Result<&'a RawValue, LineError> {
    value.ok_or_else(|| LineError::at(field, "is missing"))
}

/// Reads a string. The parser has already checked the syntax.
fn text<'a>(value: &'a RawValue, field: &'static str) -> Result<Cow<'a, str>, LineError> {
    if !value.get().starts_with('"') {
        return Err(LineError::at(field, "must be a string"));
    }
    let text: Name = serde_json::from_str(value.get())
        .map_err(|_| LineError::at(field, "has an escape that stands for half a character"))?;
    Ok(text.0)
}

fn check_bytes(text: &str, field: &'static str, bytes_max: usize) -> Result<(), LineError> {
    if text.is_empty() {
        return Err(LineError::at(field, "must not be empty"));
    }
    if text.len() > bytes_max {
        let problem = format!(
            "has {} bytes, and at most {bytes_max} are allowed",
            text.len()
        );
        return Err(LineError::at(field, problem));
    }
    Ok(())
}

/// Words a syntax error. The text that the parser read starts at the byte `start` of the line.
fn not_json(error: &serde_json::Error, start: usize) -> LineError {
    let full = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let problem = full.strip_suffix(&place).unwrap_or(&full);
    let column = start + error.column();
    LineError::plain(format!(
        "the line is not valid JSON: {problem} at column {column}"
    ))
}
