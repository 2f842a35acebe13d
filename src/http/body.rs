//! A request's body, scanned once: its size, depth and number of keys are bounded before anything
//! parses it, the few fields that routing needs are read, and the rest stays the bytes it was.

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::Failure;

/// Deeper bodies are no OpenAI requests, and parsers recurse.
const DEPTH_MAX: u32 = 64;
/// Engines have been seen to take quadratic time in the number of keys.
const KEYS_MAX: u32 = 20_000;
const MODEL_NAME_MAX: usize = 256;

/// A body and what routing needs of it.
#[derive(Debug)]
pub(super) struct Scanned {
    pub body: Bytes,
    pub model: String,
    pub stream: bool,
    /// The client wants the usage as the last chunk of its stream.
    pub include_usage: bool,
}

#[derive(Deserialize)]
struct Routing {
    model: Option<serde_json::Value>,
    stream: Option<serde_json::Value>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StreamOptions {
    Known { include_usage: Option<bool> },
    Other(serde::de::IgnoredAny),
}

impl Scanned {
    pub fn read(body: Bytes) -> Result<Scanned, Failure> {
        bounded(&body)?;
        // A parser that skips a text does not look at its letters; whoever reads it later does.
        if let Err(error) = std::str::from_utf8(&body) {
            let message = format!(
                "the body is not the UTF-8 that JSON is written in: byte {} begins no letter",
                error.valid_up_to()
            );
            return Err(Failure::invalid(None, message));
        }
        if body.trim_ascii_start().starts_with(b"[") {
            let message = "the body is a list, and not the JSON object it should be";
            return Err(Failure::invalid(None, message));
        }
        let routing: Routing = serde_json::from_slice(&body).map_err(not_json)?;
        let model = match routing.model {
            Some(serde_json::Value::String(model)) if model.is_empty() => {
                return Err(Failure::invalid(
                    "model".to_owned(),
                    "`model` is empty; name one of GET /v1/models",
                ));
            }
            Some(serde_json::Value::String(model)) if model.len() > MODEL_NAME_MAX => {
                let message = format!("`model` is longer than {MODEL_NAME_MAX} bytes");
                return Err(Failure::invalid("model".to_owned(), message));
            }
            Some(serde_json::Value::String(model)) => model,
            Some(_) => {
                return Err(Failure::invalid(
                    "model".to_owned(),
                    "`model` must be a string",
                ));
            }
            None => {
                let message = "`model` is missing; name one of GET /v1/models";
                return Err(Failure::invalid("model".to_owned(), message));
            }
        };
        let stream = match routing.stream {
            None | Some(serde_json::Value::Null) => false,
            Some(serde_json::Value::Bool(stream)) => stream,
            Some(_) => {
                return Err(Failure::invalid(
                    "stream".to_owned(),
                    "`stream` must be true or false",
                ));
            }
        };
        let include_usage = match routing.stream_options {
            Some(StreamOptions::Known { include_usage }) => include_usage.unwrap_or(false),
            Some(StreamOptions::Other(_)) => {
                let message = "`stream_options` must be an object like {\"include_usage\": true}";
                return Err(Failure::invalid("stream_options".to_owned(), message));
            }
            None => false,
        };
        Ok(Scanned {
            body,
            model,
            stream,
            include_usage,
        })
    }
}

/// Top-level fields in their order; of a name that stands twice the last one counts.
pub(super) struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub fn read(body: &'a [u8]) -> Result<Fields<'a>, Failure> {
        serde_json::from_slice(body).map_err(not_json)
    }

    pub fn all(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| *value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Fields<'a>, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut fields: Vec<(String, &'de RawValue)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    fields.retain(|(known, _)| *known != name);
                    fields.push((name, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Visitor).map(Fields)
    }
}

pub(super) fn write_json(text: &mut Vec<u8>, string: &str) {
    // A string can always be written as JSON into memory.
    let _ = serde_json::to_writer(text, string);
}

fn not_json(error: serde_json::Error) -> Failure {
    let message = format!("the body is not the JSON object it should be: {error}");
    Failure::invalid(None, message)
}

/// One pass over the bytes, without recursion.
pub(super) fn bounded(body: &[u8]) -> Result<(), Failure> {
    let (mut depth, mut keys, mut at) = (0_u32, 0_u32, 0);
    while let Some(&byte) = body.get(at) {
        at += 1;
        match byte {
            b'"' => at = past_string(body, at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' => keys += 1,
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(Failure::invalid(
                None,
                format!("the body is nested deeper than {DEPTH_MAX} levels"),
            ));
        }
        if keys > KEYS_MAX {
            return Err(Failure::invalid(
                None,
                format!("the body has more than {KEYS_MAX} keys"),
            ));
        }
    }
    Ok(())
}

/// Where the string ends that begins at `at`, after its quote. Prompts are nearly all of a body.
fn past_string(body: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', &body[at..]) {
        at += found + 1;
        if body[at - 1] == b'"' {
            return at;
        }
        at = (at + 1).min(body.len());
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Scanned, Failure> {
        Scanned::read(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().body.error.message
    }

    #[test]
    fn only_the_fields_of_routing_are_read_and_the_rest_stays_as_it_was() {
        let scanned =
            read(r#"{"model":"a/b","messages":[{"content":"{\"x\": \u00e9}"}],"seed": 1e3}"#)
                .unwrap();
        assert_eq!((scanned.model.as_str(), scanned.stream), ("a/b", false));
        let fields = Fields::read(&scanned.body).unwrap();
        assert_eq!(
            fields.get("messages").unwrap().get(),
            r#"[{"content":"{\"x\": \u00e9}"}]"#
        );
    }

    #[test]
    fn of_a_field_that_stands_twice_the_last_one_goes_to_the_engine() {
        let scanned = read(r#"{"model":"a","n":1,"n":2}"#).unwrap();
        let fields = Fields::read(&scanned.body).unwrap();
        assert_eq!(fields.all().count(), 2);
        assert_eq!(fields.get("n").unwrap().get(), "2");
    }

    #[test]
    fn wrong_fields_are_named() {
        assert!(message("{}").contains("`model` is missing"));
        assert!(message(r#"{"model": 3}"#).contains("must be a string"));
        assert!(message(r#"{"model": "a", "stream": "yes"}"#).contains("`stream`"));
        assert!(message(r#"{"model": "a", "stream_options": 1}"#).contains("stream_options"));
        assert!(message("not json").contains("line 1"));
        assert!(message("[1]").contains("JSON object"));
    }

    #[test]
    fn letters_that_are_none_are_found_wherever_they_stand() {
        let body = b"{\"model\":\"a\",\"x\":\"\xff\"}";
        let failure = Scanned::read(Bytes::from_static(body)).unwrap_err();
        assert!(
            failure.body.error.message.contains("byte 18"),
            "{failure:?}"
        );
    }

    #[test]
    fn a_body_that_would_exhaust_a_parser_is_refused_in_one_pass() {
        assert!(message(&"[".repeat(100_000)).contains("nested deeper"));
        let keys: String = (0..30_000).map(|nth| format!("\"k{nth}\":1,")).collect();
        assert!(message(&format!("{{{keys}\"model\":\"a\"}}")).contains("more than 20000 keys"));
        assert!(
            read(r#"{"model":"a","x":"[[[[ :::: \" [[["}"#).is_ok(),
            "brackets in strings are text"
        );
    }
}
