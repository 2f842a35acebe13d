//! What becomes of a request on its way to a model's engine: the name that the engine knows, the prompt as one
//! text where the model's file has a prompt format, values and stops that the file has and the request has
//! not. A field that the pool need not read stays the bytes it was.

use axum::body::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::inference::request::body::{Fields, write_json};
use crate::inference::request::ignored;
use crate::inference::request::request_fields::Fate;
use crate::inference::request::shape::may_be_a_tree;
use catalog::{Generation, Prompt, PromptFormat, STOPS_MAX};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";

/// A request as the engine gets it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub path: &'static str,
    pub body: Bytes,
    /// The engine completes a text, and the client wants a chat's answer.
    pub answers_chat: bool,
    /// Fields that were left out because the engine does nothing with them.
    pub ignored: Vec<String>,
}

/// Fields of a chat that a completed text has no place for.
const CHAT_ALONE: [&str; 9] = [
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "audio",
    "modalities",
    "prediction",
    "logprobs",
    "top_logprobs",
];

/// Fields of a completion that would change a text which the pool writes.
const TEXT_ALONE: [&str; 3] = ["prompt", "suffix", "echo"];

/// The body for the engine. Always as a stream with its usage, so that a client that leaves stops the work.
///
/// `fate`: what becomes of a field. `room`: what a chat without a limit may answer, where the engine's own route for texts would stop early.
pub(crate) fn outgoing(
    body: &Bytes,
    path: &'static str,
    served_name: &str,
    generation: &Generation,
    room: Option<Value>,
    fate: impl Fn(&str, &RawValue) -> Result<Fate, Failure>,
) -> Result<Outgoing, Failure> {
    let fields = Fields::read(body)?;
    let format = match &generation.prompt {
        _ if path != CHAT => None,
        Prompt::ChatTemplate => None,
        Prompt::Disabled => {
            return Err(Failure::invalid(
                None,
                "this model completes texts and takes no conversations; ask /v1/completions",
            ));
        }
        Prompt::Format(format) => Some(format.as_ref()),
    };
    let mut written = Written::new(body.len());
    let mut ignored = Vec::new();
    let is_given = |name: &str| fields.get(name).is_some_and(|value| value.get() != "null");
    let has_stops = !generation.stops.is_empty() || !generation.stop_tokens.is_empty();
    for (name, value) in fields.all() {
        let is_null = value.get() == "null";
        let is_routing = ["model", "stream", "stream_options"].contains(&name);
        match name {
            _ if is_routing => {}
            _ if fate(name, value)? == Fate::Ignored => {
                if ignored::asks(name, value) {
                    ignored.push(name.to_owned());
                }
            }
            "stop" | "stop_token_ids" if has_stops => {}
            // As if it were not there; engines take null for all kinds of things.
            _ if is_null && generation.defaults.contains_key(name) => {}
            "messages" if format.is_some() => {}
            // Texts have the older name alone; of both the newer one counts.
            "max_completion_tokens" if format.is_some() => {
                if !is_null {
                    written.raw("max_tokens", value);
                }
            }
            "max_tokens" if format.is_some() && (is_null || is_given("max_completion_tokens")) => {}
            _ if format.is_some() && (CHAT_ALONE.contains(&name) || TEXT_ALONE.contains(&name)) => {
                refuse_unless_idle(name, value)?
            }
            // Says something of tools alone, and there are none.
            "parallel_tool_calls" if format.is_some() => {}
            _ => written.raw(name, value),
        }
    }
    if let Some(format) = format {
        let prompt = prompt(format, &fields)?;
        written.value("prompt", &Value::String(prompt));
    }
    let limits = ["max_tokens", "max_completion_tokens"];
    let is_limited = limits.into_iter().any(is_given);
    for (name, value) in &generation.defaults {
        let is_said = is_given(name) || (name == "max_tokens" && is_limited);
        if !is_said {
            written.value(name, value);
        }
    }
    let has_limit = is_limited || generation.defaults.contains_key("max_tokens");
    if let Some(room) = room.filter(|_| format.is_some() && !has_limit) {
        written.value("max_tokens", &room);
    }
    let own_stops = ["stop", "stop_token_ids"].into_iter().any(is_given);
    if has_stops || own_stops {
        let joined = stops(generation, &fields)?;
        if has_stops {
            for (name, list) in joined.into_iter().filter(|(_, list)| !list.is_empty()) {
                written.value(name, &Value::Array(list));
            }
        }
    }
    Ok(Outgoing {
        path: match format {
            Some(_) => COMPLETIONS,
            None => path,
        },
        body: written.finish(served_name),
        answers_chat: format.is_some(),
        ignored,
    })
}

/// A body with the name that the engine knows, and nothing else of it changed.
pub(crate) fn renamed(
    body: &[u8],
    served_name: &str,
    fate: impl Fn(&str, &RawValue) -> Result<Fate, Failure>,
) -> Result<Bytes, Failure> {
    let fields = Fields::read(body)?;
    let mut written = Written::new(body.len());
    for (name, value) in fields.all().filter(|(name, _)| *name != "model") {
        if fate(name, value)? == Fate::Goes {
            written.raw(name, value);
        }
    }
    written.name("model");
    write_json(&mut written.0, served_name);
    written.0.push(b'}');
    Ok(written.0.into())
}

fn prompt(format: &PromptFormat, fields: &Fields<'_>) -> Result<String, Failure> {
    let wrong = |message: &str| Failure::invalid("messages".to_owned(), message);
    let messages = fields.get("messages").map(RawValue::get);
    may_be_a_tree(messages.unwrap_or_default().as_bytes())?;
    let messages: Vec<Value> = match messages.map(serde_json::from_str) {
        Some(Ok(Value::Array(messages))) if !messages.is_empty() => messages,
        None => return Err(wrong("`messages` is required")),
        _ => return Err(wrong("`messages` must be a list of at least one message")),
    };
    format
        .render(&messages)
        .map_err(|error| Failure::invalid(error.field, error.message))
}

fn refuse_unless_idle(name: &str, value: &RawValue) -> Result<(), Failure> {
    may_be_a_tree(value.get().as_bytes())?;
    let value: Value = serde_json::from_str(value.get()).unwrap_or_default();
    let idle = [
        json!(null),
        json!(false),
        json!(0),
        json!([]),
        json!("none"),
        json!("auto"),
        json!(["text"]),
    ];
    match idle.contains(&value) {
        true => Ok(()),
        false => Err(Failure::invalid(
            name.to_owned(),
            format!(
                "`{name}` is not supported by this model: its prompts are written by a prompt format"
            ),
        )),
    }
}

/// The request's own stops and the model's, each once.
fn stops(
    generation: &Generation,
    fields: &Fields<'_>,
) -> Result<[(&'static str, Vec<Value>); 2], Failure> {
    let own = |name: &str| -> Result<Vec<Value>, Failure> {
        let value = fields.get(name).map(RawValue::get).unwrap_or("null");
        may_be_a_tree(value.as_bytes())?;
        match serde_json::from_str(value) {
            Ok(Value::Null) => Ok(Vec::new()),
            Ok(Value::String(text)) => Ok(vec![Value::String(text)]),
            Ok(Value::Array(list)) => Ok(list),
            _ => Err(Failure::invalid(
                name.to_owned(),
                format!("`{name}` must be a list"),
            )),
        }
    };
    let mut texts = own("stop")?;
    let mut tokens = own("stop_token_ids")?;
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if !texts.iter().all(is_text) {
        return Err(Failure::invalid(
            "stop".to_owned(),
            "`stop` must be a string or a list of strings, none of them empty",
        ));
    }
    let add = |list: &mut Vec<Value>, value: Value| {
        if !list.contains(&value) {
            list.push(value);
        }
    };
    for stop in &generation.stops {
        add(&mut texts, Value::String(stop.clone()));
    }
    for token in &generation.stop_tokens {
        add(&mut tokens, token.clone());
    }
    if texts.len() + tokens.len() > STOPS_MAX {
        return Err(Failure::invalid(
            "stop".to_owned(),
            format!(
                "the request and the model's file have {} stops together; allowed: {STOPS_MAX}, of which the model has {}",
                texts.len() + tokens.len(),
                generation.stops.len() + generation.stop_tokens.len(),
            ),
        ));
    }
    Ok([("stop", texts), ("stop_token_ids", tokens)])
}

/// A JSON object that is being written.
struct Written(Vec<u8>);

impl Written {
    fn new(near: usize) -> Written {
        let mut text = Vec::with_capacity(near + 128);
        text.push(b'{');
        Written(text)
    }

    fn name(&mut self, name: &str) {
        write_json(&mut self.0, name);
        self.0.push(b':');
    }

    fn raw(&mut self, name: &str, value: &RawValue) {
        self.name(name);
        self.0.extend_from_slice(value.get().as_bytes());
        self.0.push(b',');
    }

    fn value(&mut self, name: &str, value: &Value) {
        self.name(name);
        self.0.extend_from_slice(value.to_string().as_bytes());
        self.0.push(b',');
    }

    fn finish(mut self, model: &str) -> Bytes {
        self.name("model");
        write_json(&mut self.0, model);
        self.0
            .extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(
        generation: &Generation,
        path: &'static str,
        body: &str,
    ) -> Result<(Value, Outgoing), Failure> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let fate = |name: &str, _: &RawValue| match ["store", "best_of"].contains(&name) {
            true => Ok(Fate::Ignored),
            false => Ok(Fate::Goes),
        };
        let outgoing = outgoing(&body, path, "served", generation, Some(json!(512)), fate)?;
        Ok((serde_json::from_slice(&outgoing.body).unwrap(), outgoing))
    }

    fn with_defaults() -> Generation {
        Generation {
            defaults: json!({"temperature": 0.4, "max_tokens": 100})
                .as_object()
                .unwrap()
                .clone(),
            stops: vec!["</s>".to_owned(), "USER:".to_owned()],
            stop_tokens: vec![json!(2)],
            ..Generation::default()
        }
    }

    #[test]
    fn only_the_fields_that_must_change_do() {
        let body = r#"{"model":"a","messages":[{"content":"{\"x\": \u00e9}"}],"seed": 1e3,"stream":false}"#;
        let body = Bytes::copy_from_slice(body.as_bytes());
        let none = Generation::default();
        let outgoing = outgoing(&body, CHAT, "served", &none, None, |_, _| Ok(Fate::Goes)).unwrap();
        assert_eq!(
            outgoing.body,
            r#"{"messages":[{"content":"{\"x\": \u00e9}"}],"seed":1e3,"model":"served","stream":true,"stream_options":{"include_usage":true}}"#
        );
        assert_eq!((outgoing.path, outgoing.answers_chat), (CHAT, false));
    }

    #[test]
    fn the_file_speaks_where_the_request_is_silent_or_null() {
        let (body, _) = sent(
            &with_defaults(),
            CHAT,
            r#"{"messages":[],"temperature":null}"#,
        )
        .unwrap();
        assert_eq!(body["temperature"], 0.4);
        assert_eq!(body["max_tokens"], 100);
        let (body, _) = sent(
            &with_defaults(),
            CHAT,
            r#"{"messages":[],"temperature":0,"max_completion_tokens":7}"#,
        )
        .unwrap();
        assert_eq!(body["temperature"], 0);
        assert_eq!(
            (&body["max_completion_tokens"], body.get("max_tokens")),
            (&json!(7), None)
        );
    }

    #[test]
    fn stops_of_both_are_joined_each_once_and_eight_at_most() {
        let generation = with_defaults();
        let (body, _) = sent(&generation, COMPLETIONS, r#"{"stop":["x","</s>"]}"#).unwrap();
        assert_eq!(body["stop"], json!(["x", "</s>", "USER:"]));
        assert_eq!(body["stop_token_ids"], json!([2]));
        let (body, _) = sent(&generation, COMPLETIONS, r#"{"stop":"one"}"#).unwrap();
        assert_eq!(body["stop"], json!(["one", "</s>", "USER:"]));
        let failure = sent(
            &generation,
            COMPLETIONS,
            r#"{"stop":["1","2","3","4","5","6"]}"#,
        )
        .unwrap_err();
        assert!(failure.body.error.message.contains("9 stops together"));
        let (again, _) = sent(&generation, COMPLETIONS, "{}").unwrap();
        assert_eq!(
            again["stop"],
            json!(["</s>", "USER:"]),
            "nobody's stops stay"
        );
    }

    #[test]
    fn what_an_engine_does_nothing_with_is_left_out_and_told_where_it_asks_for_something() {
        let none = Generation::default();
        let text = r#"{"messages":[],"store":true,"best_of":1,"seed":3}"#;
        let (body, outgoing) = sent(&none, CHAT, text).unwrap();
        assert_eq!(outgoing.ignored, ["store"]);
        assert_eq!((body.get("store"), body.get("best_of")), (None, None));
        assert_eq!(body["seed"], 3);
    }

    #[test]
    fn a_model_that_only_completes_says_so_to_a_conversation() {
        let generation = Generation {
            prompt: Prompt::Disabled,
            ..Generation::default()
        };
        let failure = sent(&generation, CHAT, r#"{"messages":[]}"#).unwrap_err();
        assert_eq!(failure.status.as_u16(), 400);
        assert!(failure.body.error.message.contains("/v1/completions"));
        assert!(sent(&generation, COMPLETIONS, r#"{"prompt":"x"}"#).is_ok());
    }
}
