//! Assembles the events of an engine's stream into the complete response for a client that did not request streaming. Translations
//! into other APIs read its result. Their streams read the same events through [`crate::dialect`] and produce the same calls.
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
//! Each byte is read a bounded number of times, and memory is proportional to the bytes received. Responses list their fields in
//! OpenAI's order.

pub(crate) mod calls;
mod draft;
mod merge;
mod objects;
mod text_chunk;

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use self::draft::Draft;
use self::objects::Objects;
use self::text_chunk::TextChunk;
use crate::as_chat::AsChat;
use crate::damaged::Damaged;
use crate::events::{BodyForm, Unended, data_of, event_end_from};
use crate::repeated::Repeated;
use crate::usage::Usage;

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
    /// The chunks received so far, until one needs `objects`.
    draft: Draft,
    objects: Option<Objects>,
    /// The number of choices that were requested.
    choices_max: usize,
    repeated: Repeated,
    /// Set if texts become chat messages.
    as_chat: Option<AsChat>,
    /// An error object received in the stream.
    pub error: Option<Value>,
    pub done: bool,
    /// Merges every chunk as an object.
    #[cfg(test)]
    merges_objects: bool,
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
    #[inline]
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
        if self.unended.is_empty() {
            let (used, has_data) = self.events(bytes, 0)?;
            self.unended.with(&bytes[used..]);
            self.unended.used(0)?;
            return Ok(has_data);
        }
        let mut unended = std::mem::take(&mut self.unended);
        let (bytes, from) = unended.with(bytes);
        let (used, has_data) = self.events(bytes, from)?;
        unended.used(used)?;
        self.unended = unended;
        Ok(has_data)
    }

    /// Processes the complete events of `bytes`, of which the first ends after `from`. Returns their length, and true if one has
    /// data.
    fn events(&mut self, bytes: &[u8], mut from: usize) -> Result<(usize, bool), Damaged> {
        let (mut used, mut has_data) = (0, false);
        while let Some(length) = event_end_from(&bytes[used..], std::mem::take(&mut from)) {
            let event = &bytes[used..used + length];
            used += length;
            has_data |= match &mut self.as_chat {
                Some(chat) => {
                    let event = chat.event(event.to_vec());
                    self.event(&event)?
                }
                None => self.event(event)?,
            };
            // Ignores bytes after a complete response.
            if self.done {
                return Ok((bytes.len(), has_data));
            }
        }
        Ok((used, has_data))
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
        self.done |= match &self.objects {
            None => self.draft.is_finished(),
            Some(objects) => objects.is_finished(),
        };
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
        if let Some((nth, text)) = self.repeated.take(&data)
            && let Some(known) = self.text_mut(nth)
        {
            known.push_str(&text);
        } else {
            self.read(&data)?;
        }
        Ok(true)
    }

    fn read(&mut self, data: &[u8]) -> Result<(), Damaged> {
        // A keep-alive.
        if data.is_empty() || self.read_text(data) {
            return Ok(());
        }
        self.repeated.forget();
        let Ok(Value::Object(chunk)) = serde_json::from_slice(data) else {
            return Err(Damaged::NotJson);
        };
        if let Some(error) = error_of(&chunk) {
            self.error.get_or_insert(error);
            return Ok(());
        }
        let choices_max = self.choices_max;
        self.objects_mut().push(chunk, choices_max)
    }

    /// The text of a choice to which later chunks append.
    fn text_mut(&mut self, nth: usize) -> Option<&mut String> {
        match &mut self.objects {
            None => self.draft.text_mut(nth),
            Some(objects) => objects.text_mut(nth),
        }
    }

    fn objects_mut(&mut self) -> &mut Objects {
        let draft = &mut self.draft;
        self.objects
            .get_or_insert_with(|| std::mem::take(draft).into_objects())
    }

    /// Adds a chunk of text without building its JSON. Returns false for any other chunk.
    fn read_text(&mut self, data: &[u8]) -> bool {
        #[cfg(test)]
        if self.merges_objects {
            return false;
        }
        let Some(chunk) = TextChunk::read(data) else {
            return false;
        };
        let nth = match &mut self.objects {
            None => self.draft.push(&chunk, self.choices_max),
            Some(objects) => objects.push_text(&chunk).map(Some),
        };
        if let (Some(Some(nth)), Some(Cow::Borrowed(text))) = (nth, chunk.only_text()) {
            self.repeated.learn(data, text, nth);
        }
        nth.is_some()
    }

    #[inline]
    pub fn usage(&self) -> Option<Usage> {
        let usage = match (&self.complete, &self.objects) {
            (Some(complete), _) => complete.get("usage")?.as_object()?,
            (None, None) => self.draft.usage()?,
            (None, Some(objects)) => objects.head.as_ref()?.get("usage")?.as_object()?,
        };
        Some(Usage::from_fields(usage))
    }

    #[inline]
    pub fn has_begun(&self) -> bool {
        let objects = self.objects.as_ref();
        self.complete.is_some()
            || self.draft.has_begun()
            || objects.is_some_and(|objects| objects.head.is_some())
    }

    /// Returns the response, or `None` if nothing was received.
    pub fn finish(mut self) -> Option<Value> {
        if self.complete.is_some() {
            return self.complete;
        }
        std::mem::take(self.objects_mut()).finish()
    }

    /// Like [`Assembler::finish`], but returns the response as JSON.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        if self.draft.has_begun() {
            return Some(self.draft.into_bytes());
        }
        let response = self.finish()?;
        Some(response.to_string().into_bytes())
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

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
