//! A response whose chunks are merged as JSON objects, by the rules in [`super`]. Reads every chunk; [`super::draft`] handles the
//! most common ones.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::calls::{CallDelta, CallTable, arguments_text, calls_in};
use super::merge::{Level, is_unknown, merge, merge_object};
use super::text_chunk::{ENDS, Field, HEAD, TextChunk, is_canonical};
use crate::damaged::Damaged;

/// The order in which the fields of a choice and its message are written. Others follow.
const CHOICE: [&str; 8] = [
    "index", "message", "text", "logprobs", ENDS[0], ENDS[1], ENDS[2], ENDS[3],
];
const MESSAGE: [&str; 5] = [
    "role",
    "content",
    "refusal",
    "reasoning_content",
    "reasoning",
];

#[derive(Debug, Default)]
pub(super) struct Objects {
    pub head: Option<Map<String, Value>>,
    choices: Vec<Choice>,
    /// The position of each choice index in `choices`.
    places: BTreeMap<u64, usize>,
}

#[derive(Debug, Default)]
pub(super) struct Choice {
    pub fields: Map<String, Value>,
    calls: CallTable,
    /// Part of a message has been received.
    pub has_message: bool,
}

impl Objects {
    /// Adds a choice. Its index must be new.
    pub fn add(&mut self, index: u64, choice: Choice) {
        self.places.insert(index, self.choices.len());
        self.choices.push(choice);
    }

    /// Returns true if there are choices, and each has its `finish_reason`.
    pub fn is_finished(&self) -> bool {
        let is_finished = |choice: &Choice| {
            let reason = choice.fields.get("finish_reason");
            reason.is_some_and(Value::is_string)
        };
        !self.choices.is_empty() && self.choices.iter().all(is_finished)
    }

    /// The text of a chat or completion choice, to which later chunks append.
    pub fn text_mut(&mut self, nth: usize) -> Option<&mut String> {
        let fields = &mut self.choices.get_mut(nth)?.fields;
        let text = if fields.contains_key("message") {
            fields.get_mut("message")?.get_mut("content")
        } else {
            fields.get_mut("text")
        };
        match text {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Adds a chunk that only continues the text of a known choice, and returns the position of the choice. `None`, without a
    /// change, for any other chunk.
    pub fn push_text(&mut self, chunk: &TextChunk<'_>) -> Option<usize> {
        let text = chunk.only_text()?;
        let choice = chunk.choice()?;
        let head = self.head.as_ref()?;
        if chunk.object == Field::Value("\"error\"") {
            return None;
        }
        let adds_to_head = HEAD
            .iter()
            .zip(chunk.head())
            .any(|(name, field)| match field {
                Field::Absent => false,
                Field::Null => !head.contains_key(*name),
                Field::Value(value) => {
                    !head.get(*name).is_some_and(is_final) || !is_canonical(value)
                }
            });
        let nth = *self.places.get(&choice.index.unwrap_or(0))?;
        let fields = &self.choices[nth].fields;
        let is_new = |(name, field): (&&str, Field<'_>)| {
            field != Field::Absent && !fields.contains_key(*name)
        };
        if adds_to_head || ENDS.iter().zip(choice.ends()).any(is_new) {
            return None;
        }
        match (choice.delta(), fields.get("message")) {
            (Some(delta), Some(message)) => {
                let has_role = message.get("role").is_some_and(is_final);
                if delta.role.value().is_some() && !has_role {
                    return None;
                }
            }
            (None, None) => {}
            _ => return None,
        }
        self.text_mut(nth)?.push_str(text);
        Some(nth)
    }

    /// # Errors
    /// There are more than `choices_max` choices, or too many calls.
    pub fn push(
        &mut self,
        mut chunk: Map<String, Value>,
        choices_max: usize,
    ) -> Result<(), Damaged> {
        if let Some(Value::Array(choices)) = chunk.shift_remove("choices") {
            for (position, choice) in choices.into_iter().enumerate() {
                let Value::Object(choice) = choice else {
                    continue;
                };
                let index = choice.get("index").and_then(Value::as_u64);
                let nth = self.place_of(index.unwrap_or(position as u64), choices_max)?;
                self.choices[nth].push(choice)?;
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
    fn place_of(&mut self, index: u64, choices_max: usize) -> Result<usize, Damaged> {
        if let Some(known) = self.places.get(&index) {
            return Ok(*known);
        }
        let nth = self.choices.len();
        if nth >= choices_max {
            return Err(Damaged::TooManyResponses(choices_max));
        }
        self.add(index, Choice::new(index));
        Ok(nth)
    }

    /// Returns the response, or `None` if nothing was received.
    pub fn finish(self) -> Option<Value> {
        let mut response = self.head?;
        let counts = ["usage", "timings"].map(|name| (name, response.shift_remove(name)));
        let kind = response.get("object").and_then(Value::as_str);
        if let Some(kind) = kind.and_then(|kind| kind.strip_suffix(".chunk")) {
            let kind = kind.to_owned();
            response.insert("object".to_owned(), json!(kind));
        }
        let mut choices = self.choices;
        choices.sort_by_key(|choice| {
            choice
                .fields
                .get("index")
                .and_then(Value::as_u64)
                .unwrap_or(0)
        });
        let choices = choices.into_iter().map(Choice::finish).collect();
        let mut response = in_order(response, &HEAD);
        response.insert("choices".to_owned(), Value::Array(choices));
        for (name, counts) in counts {
            if let Some(counts) = counts {
                response.insert(name.to_owned(), counts);
            }
        }
        Some(Value::Object(response))
    }
}

impl Choice {
    pub fn new(index: u64) -> Choice {
        Choice {
            fields: Map::from_iter([("index".to_owned(), json!(index))]),
            ..Choice::default()
        }
    }

    fn push(&mut self, choice: Map<String, Value>) -> Result<(), Damaged> {
        for (name, value) in choice {
            match (name.as_str(), value) {
                ("delta", Value::Object(delta)) => self.delta(delta)?,
                ("message", Value::Object(message)) => self.message(message)?,
                ("index" | "delta" | "message", _) => {}
                ("text", Value::String(text)) => append(&mut self.fields, "text", &text),
                ("finish_reason" | "stop_reason", value) if !is_unknown(&value) => {
                    drop(self.fields.insert(name, value));
                }
                ("finish_reason", _) => {
                    self.fields.entry(name).or_insert(Value::Null);
                }
                (_, value) => merge(&mut self.fields, name, value, Level::Choice),
            }
        }
        Ok(())
    }

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

    /// Adds the fields that OpenAI sends in every response, because strict clients require them.
    fn finish(self) -> Value {
        let mut fields = self.fields;
        fields.entry("logprobs").or_insert(Value::Null);
        if let Some(Value::Object(message)) = fields.get_mut("message") {
            message.entry("role").or_insert_with(|| json!("assistant"));
            message.entry("content").or_insert(Value::Null);
            message.entry("refusal").or_insert(Value::Null);
            *message = in_order(std::mem::take(message), &MESSAGE);
        }
        Value::Object(in_order(fields, &CHOICE))
    }
}

/// Moves these fields to the front.
fn in_order(mut fields: Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let mut ordered = Map::with_capacity(fields.len());
    ordered.extend(
        names
            .iter()
            .filter_map(|name| fields.shift_remove_entry(*name)),
    );
    ordered.extend(fields);
    ordered
}

/// Returns true if later chunks do not change this label.
fn is_final(label: &Value) -> bool {
    match label {
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_u64() != Some(0),
        _ => false,
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
