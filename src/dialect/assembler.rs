//! Assembles the events of an engine's stream into the complete response for a client that did not request streaming. Translations
//! into other APIs read its result. Their streams read the same events through [`crate::dialect`] and produce the same calls.
//!
//! One file because the rules below and their code are read together.
//!
//! Engines write chunks in many ways. The response is assembled by these rules:
//!
//! 1. A field is unknown while it is absent, null or empty. Later chunks fill unknown fields and never erase known ones.
//! 2. Labels (`id`, `type`, `role`, `name`, and the scalars of a response) keep their first value. `finish_reason`,
//!    `stop_reason`, counts and the usage keep their last value.
//! 3. Texts are concatenated: each string of a delta except labels, and texts within its objects.
//! 4. Lists are concatenated. Parts of a delta with the same `index` and type are merged, and so are consecutive texts, even if
//!    some are plain strings. Lists of the response itself are not repeated.
//! 5. Objects are merged field by field.
//! 6. The `index` of a tool call is only a label. A new id begins a call; so does a different name, or the same name with new
//!    arguments, after arguments that have begun or are complete ([`calls`]). Calls stay in the order in which they begin.
//! 7. A `message` in place of a `delta` is a snapshot of the message so far. After deltas it only fills unknown fields.
//! 8. A choice without an index has its position in the chunk.
//! 9. The response is complete at `[DONE]`, or at a proper end of the body once each choice has its `finish_reason`.
//! 10. A body that is a single JSON object is the response itself.
//!
//! Each byte is read a bounded number of times, and memory is proportional to the bytes received.
//! One file because its functions implement these rules.

pub(crate) mod calls;
mod merge;
mod token;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::calls::{CallDelta, CallTable, arguments_text, calls_in};
use self::merge::{Level, is_unknown, merge, merge_object};
use crate::as_chat::AsChat;
use crate::damaged::Damaged;
use crate::events::{BodyForm, Unended, data_of, event_end_from};
use crate::repeated::Repeated;
use crate::usage::{Usage, usage_of};

/// Largest response that is assembled, in bytes.
pub const ANSWER_MAX: usize = 64 << 20;

/// A response in progress.
#[derive(Debug, Default)]
pub struct Assembler {
    form: Option<BodyForm>,
    unended: Unended,
    /// The bytes of a body that is a single JSON object.
    json: Vec<u8>,
    /// The parsed `json`.
    complete: Option<Value>,
    head: Option<Map<String, Value>>,
    choices: Vec<Choice>,
    /// The position of each choice index in `choices`.
    places: BTreeMap<u64, usize>,
    /// The number of choices that were requested.
    choices_max: usize,
    repeated: Repeated,
    /// Set if texts become chat messages.
    as_chat: Option<AsChat>,
    /// An error object received in the stream.
    pub error: Option<Value>,
    pub done: bool,
}

#[derive(Debug, Default)]
struct Choice {
    fields: Map<String, Value>,
    calls: CallTable,
    /// Part of a message has been received.
    has_message: bool,
}

impl Assembler {
    /// `choices_max`: the number of requested choices.
    pub fn new(as_chat: Option<AsChat>, choices_max: usize) -> Assembler {
        Assembler {
            as_chat,
            choices_max,
            ..Assembler::default()
        }
    }

    /// Returns the number of bytes that [`Assembler::push`] would process for `more`: 0 while they only continue an event.
    pub fn bytes_read_with(&self, more: &[u8]) -> usize {
        match memchr::memchr(b'\n', more) {
            Some(_) => self.unended.len() + more.len(),
            None => 0,
        }
    }

    /// Adds bytes of the body. Returns true if they completed an event with data.
    ///
    /// # Errors
    /// An event is too long or malformed, or there are too many choices or calls.
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, Damaged> {
        if self.form.is_none() {
            self.form = BodyForm::read(bytes);
        }
        if self.form == Some(BodyForm::Json) {
            self.json.extend_from_slice(bytes);
            return Ok(true);
        }
        let mut has_data = false;
        let mut unended = std::mem::take(&mut self.unended);
        let (bytes, mut from) = unended.with(bytes);
        let mut used = 0;
        while let Some(length) = event_end_from(&bytes[used..], std::mem::take(&mut from)) {
            let event = &bytes[used..used + length];
            used += length;
            match &mut self.as_chat {
                Some(chat) => {
                    let event = chat.event(event.to_vec());
                    has_data |= self.event(&event)?;
                }
                None => has_data |= self.event(event)?,
            }
            // Ignores bytes after a complete response.
            if self.done {
                return Ok(has_data);
            }
        }
        unended.used(used)?;
        self.unended = unended;
        Ok(has_data)
    }

    /// Ends the body. The response is then `done` if it is complete.
    ///
    /// # Errors
    /// The same as [`Assembler::push`].
    pub fn end(&mut self) -> Result<(), Damaged> {
        if self.done || self.error.is_some() {
            return Ok(());
        }
        if self.form == Some(BodyForm::Json) {
            return self.read_json();
        }
        if !self.unended.is_empty() {
            self.push(b"\n\n")?;
        }
        let is_finished = |choice: &Choice| {
            choice
                .fields
                .get("finish_reason")
                .is_some_and(Value::is_string)
        };
        self.done |= !self.choices.is_empty() && self.choices.iter().all(is_finished);
        Ok(())
    }

    fn read_json(&mut self) -> Result<(), Damaged> {
        let body = std::mem::take(&mut self.json);
        let Ok(Value::Object(response)) = serde_json::from_slice(&body) else {
            return Err(Damaged::NotJson);
        };
        if let Some(error) = error_of(&response) {
            self.error = Some(error);
            return Ok(());
        }
        let choices = response.get("choices").and_then(Value::as_array);
        let count = choices.ok_or(Damaged::NoChoices)?.len();
        if count > self.choices_max {
            return Err(Damaged::TooManyResponses(self.choices_max));
        }
        self.complete = Some(match self.as_chat.take() {
            Some(_) => Value::Object(AsChat::complete(response)),
            None => Value::Object(response),
        });
        self.done = true;
        Ok(())
    }

    /// Processes one event. Returns true if it has data.
    fn event(&mut self, event: &[u8]) -> Result<bool, Damaged> {
        let Some(data) = data_of(event) else {
            return Ok(false);
        };
        if *data == *b"[DONE]" {
            self.done = true;
            return Ok(false);
        }
        if !self.repeated.take(&data) {
            self.add_taken();
            self.read(&data)?;
        }
        Ok(true)
    }

    /// Adds the texts of repeated events to their choices.
    fn add_taken(&mut self) {
        for (choice, more) in self.repeated.taken() {
            let merged = self.choices.get_mut(choice);
            if let Some(Value::String(text)) = merged.and_then(|choice| text_of(&mut choice.fields))
            {
                text.push_str(&more);
            }
        }
    }

    fn read(&mut self, data: &[u8]) -> Result<(), Damaged> {
        if self.plain_token(data) {
            return Ok(());
        }
        self.repeated.forget();
        match serde_json::from_slice(data) {
            Ok(Value::Object(chunk)) => self.chunk(chunk),
            // A keep-alive.
            _ if data.is_empty() => Ok(()),
            _ => Err(Damaged::NotJson),
        }
    }

    /// Fast path for the most common chunk, which only adds text to an existing choice: reads it without building its JSON.
    fn plain_token(&mut self, data: &[u8]) -> bool {
        let Some(head) = &self.head else {
            return false;
        };
        let Some(token) = token::read(data, head) else {
            return false;
        };
        let Some(nth) = self.places.get(&token.index).copied() else {
            return false;
        };
        let fields = &mut self.choices[nth].fields;
        let has_message = fields.contains_key("message");
        if token.is_delta != has_message {
            return false;
        }
        let place = if token.is_delta {
            let message = fields.get_mut("message").and_then(Value::as_object_mut);
            let message = message.filter(|message| !token.has_role || message.contains_key("role"));
            message.and_then(|message| message.get_mut("content"))
        } else {
            fields.get_mut("text")
        };
        let Some(Value::String(known)) = place else {
            return false;
        };
        known.push_str(&token.text);
        if let std::borrow::Cow::Borrowed(text) = token.text {
            self.repeated.learn(data, text, nth);
        }
        true
    }

    pub fn usage(&self) -> Option<Usage> {
        let usage = match &self.complete {
            Some(complete) => complete.get("usage"),
            None => self.head.as_ref()?.get("usage"),
        };
        usage_of(&json!({ "usage": usage? }))
    }

    pub fn has_begun(&self) -> bool {
        self.head.is_some() || self.complete.is_some()
    }

    fn chunk(&mut self, mut chunk: Map<String, Value>) -> Result<(), Damaged> {
        if let Some(error) = error_of(&chunk) {
            self.error.get_or_insert(error);
            return Ok(());
        }
        if let Some(Value::Array(choices)) = chunk.remove("choices") {
            for (position, choice) in choices.into_iter().enumerate() {
                if let Value::Object(choice) = choice {
                    self.choice(position as u64, choice)?;
                }
            }
        }
        let head = self.head.get_or_insert_default();
        for (name, value) in chunk {
            match (name.as_str(), value) {
                // The counts so far.
                ("usage" | "timings", Value::Object(more)) => {
                    if let Value::Object(known) = head.entry(name).or_insert_with(|| json!({})) {
                        merge_object(known, more, Level::Choice);
                    }
                }
                ("usage" | "timings" | "error", _) => {}
                (_, value) => merge(head, name, value, Level::Response),
            }
        }
        Ok(())
    }

    /// The position of the choice with this index. Adds the choice if it is new.
    fn place_of(&mut self, index: u64) -> Result<usize, Damaged> {
        if let Some(known) = self.places.get(&index) {
            return Ok(*known);
        }
        let nth = self.choices.len();
        if nth >= self.choices_max {
            return Err(Damaged::TooManyResponses(self.choices_max));
        }
        let fields = Map::from_iter([("index".to_owned(), json!(index))]);
        self.choices.push(Choice {
            fields,
            ..Choice::default()
        });
        self.places.insert(index, nth);
        Ok(nth)
    }

    fn choice(&mut self, position: u64, choice: Map<String, Value>) -> Result<(), Damaged> {
        let index = choice.get("index").and_then(Value::as_u64);
        let nth = self.place_of(index.unwrap_or(position))?;
        let known = &mut self.choices[nth];
        for (name, value) in choice {
            match (name.as_str(), value) {
                ("delta", Value::Object(delta)) => known.delta(delta)?,
                ("message", Value::Object(message)) => known.message(message)?,
                ("index" | "delta" | "message", _) => {}
                ("text", Value::String(text)) => append(&mut known.fields, "text", &text),
                ("finish_reason" | "stop_reason", value) if !is_unknown(&value) => {
                    drop(known.fields.insert(name, value));
                }
                ("finish_reason", _) => {
                    known.fields.entry(name).or_insert(Value::Null);
                }
                (_, value) => merge(&mut known.fields, name, value, Level::Choice),
            }
        }
        Ok(())
    }

    /// Returns the response, or `None` if nothing was received.
    pub fn finish(mut self) -> Option<Value> {
        if self.complete.is_some() {
            return self.complete;
        }
        self.add_taken();
        let mut response = self.head?;
        let counts = ["usage", "timings"].map(|name| (name, response.shift_remove(name)));
        let kind = response.get("object").and_then(Value::as_str);
        if let Some(kind) = kind.and_then(|kind| kind.strip_suffix(".chunk")) {
            let kind = kind.to_owned();
            response.insert("object".to_owned(), json!(kind));
        }
        let mut choices: Vec<Map<String, Value>> = self
            .choices
            .into_iter()
            .map(|choice| choice.fields)
            .collect();
        choices.sort_by_key(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0));
        // OpenAI sends these fields in every response, and strict clients require them.
        for choice in &mut choices {
            choice.entry("logprobs").or_insert(Value::Null);
            if let Some(Value::Object(message)) = choice.get_mut("message") {
                message.entry("role").or_insert_with(|| json!("assistant"));
                message.entry("content").or_insert(Value::Null);
                message.entry("refusal").or_insert(Value::Null);
            }
        }
        response.insert("choices".to_owned(), json!(choices));
        for (name, counts) in counts {
            if let Some(counts) = counts {
                response.insert(name.to_owned(), counts);
            }
        }
        Some(Value::Object(response))
    }
}

impl Choice {
    fn delta(&mut self, delta: Map<String, Value>) -> Result<(), Damaged> {
        self.has_message = true;
        let message = self.fields.entry("message").or_insert_with(|| json!({}));
        let Value::Object(message) = message else {
            return Ok(());
        };
        for (name, value) in delta {
            match (name.as_str(), value) {
                ("tool_calls", calls) => merge_calls(message, &mut self.calls, &calls)?,
                ("function_call", Value::Object(function)) => {
                    let known = message.entry(name).or_insert_with(|| json!({}));
                    if let Value::Object(known) = known {
                        merge_function(known, &function, true);
                    }
                }
                (_, value) => merge(message, name, value, Level::Message),
            }
        }
        Ok(())
    }

    /// Merges a `message` sent in place of a `delta` (rule 7).
    fn message(&mut self, message: Map<String, Value>) -> Result<(), Damaged> {
        if !self.has_message {
            return self.delta(message);
        }
        let known = self
            .fields
            .get_mut("message")
            .and_then(Value::as_object_mut);
        let known = known.into_iter().flatten();
        let unknown: Vec<String> = known
            .filter(|(_, value)| is_unknown(value))
            .map(|(name, _)| name.clone())
            .collect();
        let is_new = |name: &str| {
            let known = self.fields.get("message").and_then(|known| known.get(name));
            known.is_none() || unknown.iter().any(|unknown| unknown == name)
        };
        let more: Map<String, Value> = message
            .into_iter()
            .filter(|(name, _)| is_new(name))
            .collect();
        self.delta(more)
    }
}

fn append(map: &mut Map<String, Value>, name: &str, text: &str) {
    match map.get_mut(name) {
        Some(Value::String(known)) => known.push_str(text),
        _ => drop(map.insert(name.to_owned(), json!(text))),
    }
}

fn merge_calls(
    message: &mut Map<String, Value>,
    table: &mut CallTable,
    deltas: &Value,
) -> Result<(), Damaged> {
    for (position, delta) in calls_in(deltas).iter().enumerate() {
        let Some(fields) = delta.as_object() else {
            continue;
        };
        let placed = table.place(&CallDelta::read(delta, position))?;
        let merged = message.entry("tool_calls").or_insert_with(|| json!([]));
        let Value::Array(merged) = merged else {
            return Ok(());
        };
        if placed.position == merged.len() {
            merged.push(json!({}));
        }
        let Some(Value::Object(known)) = merged.get_mut(placed.position) else {
            return Ok(());
        };
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("index", _) => {}
                ("id", id) => {
                    if placed.sets_id {
                        known.insert(name.clone(), id.clone());
                    }
                }
                ("function", Value::Object(function)) => {
                    let into = known.entry("function").or_insert_with(|| json!({}));
                    if let Value::Object(into) = into {
                        merge_function(into, function, placed.sets_name);
                    }
                }
                (_, Value::Null) => {}
                (_, value) => {
                    let more = Map::from_iter([(name.clone(), value.clone())]);
                    merge_object(known, more, Level::Message);
                }
            }
        }
    }
    Ok(())
}

/// `sets_name`: the function's name becomes the name of the call.
fn merge_function(known: &mut Map<String, Value>, function: &Map<String, Value>, sets_name: bool) {
    for (part, value) in function {
        match part.as_str() {
            "name" if !sets_name || value.is_null() => {}
            "arguments" => append(known, part, &arguments_text(Some(value))),
            _ => {
                let more = Map::from_iter([(part.clone(), value.clone())]);
                merge_object(known, more, Level::Message);
            }
        }
    }
}

/// Extracts the error of a chunk or response: OpenAI's object, a text, or vLLM's older form.
fn error_of(chunk: &Map<String, Value>) -> Option<Value> {
    match chunk.get("error") {
        None | Some(Value::Null) => {
            let is_error = chunk.get("object").is_some_and(|kind| kind == "error");
            is_error.then(|| json!(chunk))
        }
        Some(error) => Some(error.clone()),
    }
}

/// The text of a chat or completion choice.
fn text_of(choice: &mut Map<String, Value>) -> Option<&mut Value> {
    if choice.contains_key("message") {
        choice.get_mut("message")?.get_mut("content")
    } else {
        choice.get_mut("text")
    }
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
