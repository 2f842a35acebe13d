//! A stream of chunks made into the one answer that a client without `stream` expects. Works on
//! OpenAI's chunks of chat and of completions; fields it does not know are kept from the first chunk.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::inference::answer::as_chat::AsChat;
use crate::inference::answer::damaged::Damaged;
use crate::inference::answer::deltas::{append, merge_delta, merge_logprobs};
use crate::inference::answer::events::{Unended, data_of, event_end_from};
use crate::inference::answer::repeated::Repeated;

/// An answer that is aggregated for a client without `stream` may be this large.
pub(crate) const ANSWER_MAX: usize = 64 << 20;

/// What has come of an answer so far.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    unended: Unended,
    head: Option<Map<String, Value>>,
    choices: Vec<Map<String, Value>>,
    /// Where the choice of each index is.
    places: BTreeMap<u64, usize>,
    /// How many choices the request has.
    choices_max: usize,
    repeated: Repeated,
    usage: Option<Value>,
    /// What the engine measured, which llama-server tells at the end.
    timings: Option<Value>,
    /// Texts are written as a chat's answer.
    as_chat: Option<AsChat>,
    /// An error object that came in the stream.
    pub error: Option<Value>,
    pub done: bool,
}

/// What one event of a stream tells the gateway, beside its text.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

/// More tokens than any context holds, for as many answers as one request may have.
const TOKENS_MAX: u64 = 1 << 32;

impl Usage {
    /// Whether an engine can have counted it.
    pub fn is_plausible(self) -> bool {
        self.prompt_tokens <= TOKENS_MAX && self.completion_tokens <= TOKENS_MAX
    }
}

pub(crate) fn usage_of(chunk: &Value) -> Option<Usage> {
    let usage = chunk.get("usage")?.as_object()?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    Some(Usage {
        prompt_tokens: count("prompt_tokens"),
        completion_tokens: count("completion_tokens"),
    })
}

/// A chunk that says nothing but the next piece of one text; any other does not fit in here.
#[derive(Deserialize)]
struct Token<'a> {
    #[serde(borrow)]
    choices: [TokenChoice<'a>; 1],
    /// Not there, or null.
    #[serde(default, rename = "usage")]
    _usage: (),
    #[serde(default, rename = "error")]
    _error: (),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenChoice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Option<TokenDelta<'a>>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(default, rename = "finish_reason")]
    _finish_reason: (),
    #[serde(default, rename = "logprobs")]
    _logprobs: (),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenDelta<'a> {
    role: Option<IgnoredAny>,
    #[serde(borrow)]
    content: Cow<'a, str>,
}

impl Aggregate {
    /// `choices_max`: how many answers were requested.
    pub fn of(as_chat: Option<AsChat>, choices_max: usize) -> Aggregate {
        Aggregate {
            as_chat,
            choices_max,
            ..Aggregate::default()
        }
    }

    /// How many bytes are read at once if these are added: none while they only continue an event.
    pub fn bytes_read_with(&self, more: &[u8]) -> usize {
        match memchr::memchr(b'\n', more) {
            Some(_) => self.unended.len() + more.len(),
            None => 0,
        }
    }

    /// More bytes of the stream. Whether an event with data came with them.
    ///
    /// # Errors
    /// An event that does not end or cannot be read, or more choices or calls than an answer has.
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, Damaged> {
        let mut spoke = false;
        let mut unended = std::mem::take(&mut self.unended);
        let (bytes, mut from) = unended.with(bytes);
        let mut used = 0;
        while let Some(length) = event_end_from(&bytes[used..], std::mem::take(&mut from)) {
            let event = &bytes[used..used + length];
            used += length;
            match &mut self.as_chat {
                Some(chat) => {
                    let event = chat.event(event.to_vec());
                    spoke |= self.event(&event)?;
                }
                None => spoke |= self.event(event)?,
            }
            // What its engine writes behind a whole answer is no part of it.
            if self.done {
                return Ok(spoke);
            }
        }
        unended.used(used)?;
        self.unended = unended;
        Ok(spoke)
    }

    /// Whether it has data.
    fn event(&mut self, event: &[u8]) -> Result<bool, Damaged> {
        match data_of(event) {
            None => Ok(false),
            Some(b"[DONE]") => {
                self.done = true;
                Ok(false)
            }
            Some(data) => {
                if !self.repeated.take(data) {
                    self.add_taken();
                    self.read(data)?;
                }
                Ok(true)
            }
        }
    }

    /// Adds the texts of repeated events to the choices that they belong to.
    fn add_taken(&mut self) {
        for (choice, more) in self.repeated.taken() {
            let merged = self.choices.get_mut(choice);
            if let Some(Value::String(text)) = merged.and_then(text_of) {
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
            // A sign that the stream lives.
            _ if data.is_empty() => Ok(()),
            _ => Err(Damaged::NotJson),
        }
    }

    /// Most chunks only add a text to a choice that has one: those are read without being built.
    fn plain_token(&mut self, data: &[u8]) -> bool {
        if self.head.is_none() {
            return false;
        }
        let Ok(token) = serde_json::from_slice::<Token<'_>>(data) else {
            return false;
        };
        let [choice] = &token.choices;
        let Some(nth) = self.places.get(&choice.index).copied() else {
            return false;
        };
        let merged = &mut self.choices[nth];
        let has_message = merged.contains_key("message");
        let (place, text) = match (&choice.delta, &choice.text) {
            (Some(delta), None) => {
                let message = merged.get_mut("message").and_then(Value::as_object_mut);
                let message = message.filter(|it| delta.role.is_none() || it.contains_key("role"));
                (message.and_then(|it| it.get_mut("content")), &delta.content)
            }
            (None, Some(text)) => (merged.get_mut("text"), text),
            _ => return false,
        };
        match place {
            Some(Value::String(known)) => {
                known.push_str(text);
                if let Cow::Borrowed(text) = text
                    && has_message == choice.delta.is_some()
                {
                    self.repeated.learn(data, text, nth);
                }
                true
            }
            _ => false,
        }
    }

    pub fn usage(&self) -> Option<Usage> {
        usage_of(&json!({ "usage": self.usage.as_ref()? }))
    }

    pub fn has_begun(&self) -> bool {
        self.head.is_some()
    }

    fn chunk(&mut self, mut chunk: Map<String, Value>) -> Result<(), Damaged> {
        if let Some(error) = chunk.remove("error").filter(|error| !error.is_null()) {
            self.error.get_or_insert(error);
            return Ok(());
        }
        if let Some(usage) = chunk.remove("usage").filter(|usage| !usage.is_null()) {
            self.usage = Some(usage);
        }
        if let Some(timings) = chunk.remove("timings").filter(Value::is_object) {
            self.timings = Some(timings);
        }
        if let Some(Value::Array(choices)) = chunk.remove("choices") {
            for choice in choices {
                if let Value::Object(choice) = choice {
                    self.choice(choice)?;
                }
            }
        }
        if self.head.is_none() {
            self.head = Some(chunk);
        }
        Ok(())
    }

    /// Where the choice of this index is, which may begin now.
    fn place_of(&mut self, index: u64) -> Result<usize, Damaged> {
        if let Some(known) = self.places.get(&index) {
            return Ok(*known);
        }
        let nth = self.choices.len();
        if nth >= self.choices_max {
            return Err(Damaged::TooManyAnswers(self.choices_max));
        }
        let begun = Map::from_iter([("index".to_owned(), json!(index))]);
        self.choices.push(begun);
        self.places.insert(index, nth);
        Ok(nth)
    }

    fn choice(&mut self, choice: Map<String, Value>) -> Result<(), Damaged> {
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
        let nth = self.place_of(index)?;
        let merged = &mut self.choices[nth];
        for (name, value) in choice {
            match (name.as_str(), value) {
                ("index", _) => {}
                ("delta", Value::Object(delta)) => {
                    let message = merged.entry("message").or_insert_with(|| json!({}));
                    if let Value::Object(message) = message {
                        merge_delta(message, delta)?;
                    }
                }
                ("text", Value::String(text)) => append(merged, "text", &text),
                ("logprobs", Value::Object(logprobs)) => merge_logprobs(merged, logprobs),
                (_, Value::Null) => {
                    merged.entry(name).or_insert(Value::Null);
                }
                (_, value) => {
                    merged.insert(name, value);
                }
            }
        }
        Ok(())
    }

    /// The answer. `None` if nothing came.
    pub fn finish(mut self) -> Option<Value> {
        self.add_taken();
        let mut answer = self.head?;
        let kind = answer
            .get("object")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Some(kind) = kind.strip_suffix(".chunk") {
            let kind = kind.to_owned();
            answer.insert("object".to_owned(), json!(kind));
        }
        let mut choices = self.choices;
        choices.sort_by_key(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0));
        // OpenAI has these in every answer, and strict clients look for them.
        for choice in &mut choices {
            choice.entry("logprobs").or_insert(Value::Null);
            if let Some(Value::Object(message)) = choice.get_mut("message") {
                message.entry("role").or_insert_with(|| json!("assistant"));
                message.entry("content").or_insert(Value::Null);
                message.entry("refusal").or_insert(Value::Null);
            }
        }
        answer.insert(
            "choices".to_owned(),
            Value::Array(choices.into_iter().map(Value::Object).collect()),
        );
        if let Some(usage) = self.usage {
            answer.insert("usage".to_owned(), usage);
        }
        if let Some(timings) = self.timings {
            answer.insert("timings".to_owned(), timings);
        }
        Some(Value::Object(answer))
    }
}

/// Where the text of a choice stands, of a chat or of a completion.
fn text_of(choice: &mut Map<String, Value>) -> Option<&mut Value> {
    match choice.contains_key("message") {
        true => choice.get_mut("message")?.get_mut("content"),
        false => choice.get_mut("text"),
    }
}

#[cfg(test)]
mod tests;
