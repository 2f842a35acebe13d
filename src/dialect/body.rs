//! Scans a request's body once: limits its depth and its number of keys before anything parses it, and reads the few fields needed
//! for routing. All other bytes stay as they are.

use std::borrow::Cow;

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::shape::bounded;
use api_types::error::Failure;

const MODEL_NAME_MAX: usize = 256;
/// Up to this many fields are searched linearly; more get an index.
const FEW_FIELDS: usize = 32;

/// A body with the fields needed for routing.
#[derive(Debug)]
pub struct Scanned {
    pub body: Bytes,
    pub model: String,
    pub stream: bool,
    /// The client wants the usage as the last chunk of its stream.
    pub include_usage: bool,
}

/// The fields as raw JSON; all others are skipped.
#[derive(Deserialize)]
struct Routing<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    stream_options: Option<&'a RawValue>,
    /// OpenRouter's option to include the usage.
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// The known `stream_options`; others are reported as ignored.
pub const STREAM_OPTIONS: [&str; 3] = [
    "include_usage",
    "continuous_usage_stats",
    "include_obfuscation",
];

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    /// vLLM's option to send the usage with every chunk.
    #[serde(rename = "continuous_usage_stats")]
    _continuous: Option<bool>,
    /// Padding of the chunks; ignored.
    #[serde(rename = "include_obfuscation")]
    _padding: Option<bool>,
}

impl Scanned {
    /// Checks the limits of a body and reads its fields.
    pub fn fields(body: &[u8]) -> Result<Fields<'_>, Failure> {
        bounded(body)?;
        Fields::read(body)
    }

    pub fn read(body: Bytes) -> Result<Scanned, Failure> {
        bounded(&body)?;
        // The parser does not validate strings that it skips; code that reads them later would.
        if let Err(error) = std::str::from_utf8(&body) {
            let message = format!(
                "the body is not valid UTF-8 from byte {}",
                error.valid_up_to()
            );
            return Err(Failure::invalid(None, message));
        }
        if body.trim_ascii_start().starts_with(b"[") {
            let message = "the body must be a JSON object, not a list";
            return Err(Failure::invalid(None, message));
        }
        let routing: Routing = serde_json::from_slice(&body).map_err(not_json)?;
        let model = model_in(routing.model)?;
        let stream = match routing.stream.map(RawValue::get) {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                return Err(Failure::invalid(
                    "stream".to_owned(),
                    "`stream` must be true or false",
                ));
            }
        };
        let options = routing.stream_options.map(RawValue::get);
        let include_usage = match options {
            None => false,
            Some(options) => match serde_json::from_str::<StreamOptions>(options) {
                Ok(_) if !stream && options_are_an_object(routing.stream_options) => {
                    let message = "`stream_options` requires `stream` to be true: set it, or remove the options";
                    return Err(Failure::invalid("stream_options".to_owned(), message));
                }
                Ok(options) if options_are_an_object(routing.stream_options) => {
                    options.include_usage.unwrap_or(false)
                }
                _ => {
                    let message = "`stream_options` must be an object like {\"include_usage\": true}; it may have include_usage, continuous_usage_stats and include_obfuscation, each true or false";
                    return Err(Failure::invalid("stream_options".to_owned(), message));
                }
            },
        };
        let include_usage = include_usage || routing.usage.is_some_and(includes_usage);
        Ok(Scanned {
            body,
            model,
            stream,
            include_usage,
        })
    }
}

fn includes_usage(usage: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Usage {
        include: Option<bool>,
    }
    let usage: Option<Usage> = serde_json::from_str(usage.get()).ok();
    usage.and_then(|usage| usage.include).unwrap_or(false)
}

fn model_in(value: Option<&RawValue>) -> Result<String, Failure> {
    let wrong = |message: String| Err(Failure::invalid("model".to_owned(), message));
    let Some(value) = value else {
        return wrong("`model` is missing; choose a model from GET /v1/models".to_owned());
    };
    let text = value.get();
    // Each character may be written as an escape of six bytes.
    let too_long = || format!("`model` is longer than {MODEL_NAME_MAX} bytes");
    if text.starts_with('"') && text.len() > 6 * MODEL_NAME_MAX + 2 {
        return wrong(too_long());
    }
    let name = if text.starts_with('"') {
        serde_json::from_str::<String>(text).ok()
    } else {
        None
    };
    match name {
        None => wrong("`model` must be a string".to_owned()),
        Some(name) if name.is_empty() => {
            wrong("`model` is empty; choose a model from GET /v1/models".to_owned())
        }
        Some(name) if name.len() > MODEL_NAME_MAX => wrong(too_long()),
        Some(name) => Ok(name),
    }
}

/// Required because the deserializer would also accept a list of the fields' values.
fn options_are_an_object(value: Option<&RawValue>) -> bool {
    value.is_some_and(|value| value.get().starts_with('{'))
}

/// A field's name, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

type Field<'a> = (Cow<'a, str>, &'a RawValue);

/// Top-level fields in order. The last one wins if a name is repeated.
pub struct Fields<'a> {
    all: Vec<Field<'a>>,
    /// Positions sorted by name; empty for up to `FEW_FIELDS` fields.
    by_name: Vec<u32>,
    /// The length of the body.
    pub body_bytes: usize,
}

impl<'a> Fields<'a> {
    pub fn read(body: &'a [u8]) -> Result<Fields<'a>, Failure> {
        let mut fields: Fields<'a> = serde_json::from_slice(body).map_err(not_json)?;
        fields.body_bytes = body.len();
        Ok(fields)
    }

    pub fn all(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.all.iter().map(|(name, value)| (&**name, *value))
    }

    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = if self.by_name.is_empty() {
            self.all.iter().find(|(known, _)| known == name)
        } else {
            let named = |place: &u32| &*self.all[*place as usize].0;
            let found = self
                .by_name
                .binary_search_by(|place| named(place).cmp(name));
            found.ok().map(|at| &self.all[self.by_name[at] as usize])
        };
        found.map(|(_, value)| *value)
    }

    fn of_few(given: Vec<Field<'a>>) -> Fields<'a> {
        let mut all = given;
        let mut at = 0;
        while at < all.len() {
            let name = &all[at].0;
            if all[at + 1..].iter().any(|(later, _)| later == name) {
                drop(all.remove(at))
            } else {
                at += 1
            }
        }
        Fields {
            all,
            by_name: Vec::new(),
            body_bytes: 0,
        }
    }

    fn of_many(given: Vec<Field<'a>>) -> Fields<'a> {
        let places = |all: &[Field<'a>]| {
            // The number of keys is limited before.
            let mut places: Vec<u32> = (0..u32::try_from(all.len()).unwrap_or(u32::MAX)).collect();
            places.sort_by(|left, right| {
                let name = |place: &u32| &*all[*place as usize].0;
                name(left).cmp(name(right)).then(left.cmp(right))
            });
            places
        };
        let sorted = places(&given);
        let mut is_last = vec![true; given.len()];
        for pair in sorted.windows(2) {
            let [earlier, later] = [pair[0] as usize, pair[1] as usize];
            is_last[earlier] = given[earlier].0 != given[later].0;
        }
        let mut keeps = is_last.into_iter();
        let mut all = given;
        all.retain(|_| keeps.next().unwrap_or(true));
        let by_name = places(&all);
        Fields {
            all,
            by_name,
            body_bytes: 0,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Fields<'a>, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut given: Vec<Field<'de>> = Vec::new();
                while let Some((name, value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    given.push((name.0, value));
                }
                Ok(if given.len() <= FEW_FIELDS {
                    Fields::of_few(given)
                } else {
                    Fields::of_many(given)
                })
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

pub fn write_json(text: &mut Vec<u8>, string: &str) {
    // Writing a string as JSON into memory cannot fail.
    let _ = serde_json::to_writer(text, string);
}

fn not_json(error: serde_json::Error) -> Failure {
    let message = format!("the body is not a JSON object: {error}");
    Failure::invalid(None, message)
}

#[cfg(test)]
mod tests;
