//! A response made of chunks that carry only text, labels and counts, as most are. Its fields are kept as the text of their JSON, and
//! the response is written without building an object. A chunk of another form turns the draft into [`Objects`].

use serde_json::{Map, Value, json};

use super::merge::{Level, merge_object};
use super::objects::{Choice, Objects};
use super::text_chunk::{ENDS, Field, HEAD, Text, TextChoice, TextChunk, is_canonical};

/// Number of choices that a draft may have. The search for a choice is linear.
const CHOICES_MAX: usize = 8;
/// Space for a response in addition to its texts and labels.
const ROOM_BYTES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Draft {
    has_begun: bool,
    /// The fields of the first chunk, each as `"name":value,`.
    head: String,
    /// The state of each field in `head`.
    sent: [Sent; HEAD.len()],
    choices: Vec<DraftChoice>,
    usage: Option<Map<String, Value>>,
    timings: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sent {
    #[default]
    Absent,
    /// Null, empty or zero: a later chunk replaces it.
    Unknown,
    Known,
}

#[derive(Debug, Default)]
struct DraftChoice {
    index: u64,
    /// The texts of the message. `None` for a completion.
    message: Option<DraftMessage>,
    /// The text of a completion.
    text: Option<String>,
    ends: [End; ENDS.len()],
}

#[derive(Debug, Default)]
struct DraftMessage {
    has_role: bool,
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
}

/// A field that describes the end of a choice, as the text of its JSON.
#[derive(Debug, Default)]
enum End {
    #[default]
    Absent,
    Null,
    Value(Box<str>),
}

impl Draft {
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub fn usage(&self) -> Option<&Map<String, Value>> {
        self.usage.as_ref()
    }

    /// Returns true if there are choices, and each has its `finish_reason`.
    pub fn is_finished(&self) -> bool {
        let is_finished = |choice: &DraftChoice| matches!(&choice.ends[0], End::Value(reason) if reason.starts_with('"'));
        !self.choices.is_empty() && self.choices.iter().all(is_finished)
    }

    /// The text of a choice to which later chunks append.
    pub fn text_mut(&mut self, nth: usize) -> Option<&mut String> {
        let choice = self.choices.get_mut(nth)?;
        match &mut choice.message {
            Some(message) => message.content.as_mut(),
            None => choice.text.as_mut(),
        }
    }

    /// Adds a chunk and returns the position of its choice. Returns `None`, without a change, if a draft cannot represent the
    /// response with this chunk.
    pub fn push(&mut self, chunk: &TextChunk<'_>, choices_max: usize) -> Option<Option<usize>> {
        let head = chunk.head();
        if chunk.object == Field::Value("\"error\"") || !self.takes_head(&head) {
            return None;
        }
        let usage = counts(chunk.usage)?;
        let timings = counts(chunk.timings)?;
        let nth = match chunk.choice() {
            None => None,
            Some(choice) => Some(self.place(choice, choices_max)?),
        };
        if !self.has_begun {
            self.begin(&head);
        }
        merge_counts(&mut self.usage, usage);
        merge_counts(&mut self.timings, timings);
        if let (Some(choice), Some(nth)) = (chunk.choice(), nth) {
            if nth == self.choices.len() {
                self.choices.push(DraftChoice {
                    index: choice.index.unwrap_or(0),
                    ..DraftChoice::default()
                });
            }
            self.choices[nth].push(choice);
        }
        Some(nth)
    }

    /// Returns true if these fields are the first ones, or add nothing to them.
    fn takes_head(&self, head: &[Field<'_>; HEAD.len()]) -> bool {
        let mut fields = head.iter().zip(&self.sent);
        if !self.has_begun {
            return fields.all(|(field, _)| field.value().is_none_or(is_canonical));
        }
        fields.all(|(field, sent)| match field {
            Field::Absent => true,
            Field::Null => *sent != Sent::Absent,
            Field::Value(value) => *sent == Sent::Known && is_canonical(value),
        })
    }

    fn begin(&mut self, head: &[Field<'_>; HEAD.len()]) {
        self.has_begun = true;
        self.head.reserve(ROOM_BYTES);
        for (nth, field) in head.iter().enumerate() {
            let value = match field {
                Field::Absent => continue,
                Field::Null => "null",
                Field::Value(value) => value,
            };
            self.sent[nth] = if matches!(value, "null" | "\"\"" | "0") {
                Sent::Unknown
            } else {
                Sent::Known
            };
            self.head.push('"');
            self.head.push_str(HEAD[nth]);
            self.head.push_str("\":");
            match value.strip_suffix(".chunk\"") {
                Some(kind) if HEAD[nth] == "object" => {
                    self.head.push_str(kind);
                    self.head.push('"');
                }
                _ => self.head.push_str(value),
            }
            self.head.push(',');
        }
    }

    /// The position of this choice, which may be the next one. `None` if it does not fit.
    fn place(&self, choice: &TextChoice<'_>, choices_max: usize) -> Option<usize> {
        let index = choice.index.unwrap_or(0);
        let known = self.choices.iter().position(|known| known.index == index);
        let fits = match known {
            Some(nth) => self.choices[nth].takes(choice),
            None => {
                self.choices.len() < choices_max.min(CHOICES_MAX)
                    && DraftChoice::default().takes(choice)
            }
        };
        fits.then_some(known.unwrap_or(self.choices.len()))
    }

    /// Writes the JSON of the response.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.choices.sort_by_key(|choice| choice.index);
        let lengths = self.choices.iter().map(DraftChoice::length);
        let length: usize = lengths.sum();
        let mut output = Vec::with_capacity(self.head.len() + length + ROOM_BYTES);
        output.push(b'{');
        output.extend_from_slice(self.head.as_bytes());
        output.extend_from_slice(b"\"choices\":[");
        for (nth, choice) in self.choices.iter().enumerate() {
            if nth > 0 {
                output.push(b',');
            }
            choice.write(&mut output);
        }
        output.push(b']');
        for (name, counts) in [("usage", &self.usage), ("timings", &self.timings)] {
            if let Some(counts) = counts {
                write_name(&mut output, name);
                write_json(&mut output, counts);
            }
        }
        output.push(b'}');
        output
    }

    /// Builds the objects that the same chunks build.
    pub fn into_objects(self) -> Objects {
        let mut objects = Objects::default();
        if !self.has_begun {
            return objects;
        }
        // The text was copied from JSON and needs only its last comma removed.
        let fields = format!("{{{}}}", self.head.trim_end_matches(','));
        let mut head: Map<String, Value> = serde_json::from_str(&fields).unwrap_or_default();
        for (name, counts) in [("usage", self.usage), ("timings", self.timings)] {
            if let Some(counts) = counts {
                head.insert(name.to_owned(), Value::Object(counts));
            }
        }
        objects.head = Some(head);
        for choice in self.choices {
            objects.add(choice.index, choice.into_choice());
        }
        objects
    }
}

impl DraftChoice {
    fn takes(&self, choice: &TextChoice<'_>) -> bool {
        let delta = choice.delta();
        let is_one_kind = match (delta, &choice.text) {
            (Some(_), Some(_)) => false,
            (Some(_), None) => self.text.is_none(),
            (None, Some(_)) => self.message.is_none(),
            (None, None) => true,
        };
        let role = delta.and_then(|delta| delta.role.value());
        let mut ends = choice.ends().into_iter().zip(&self.ends).zip(ENDS);
        is_one_kind
            && role.is_none_or(|role| role == "\"assistant\"")
            && ends.all(|((field, known), name)| match (field, name) {
                (Field::Absent | Field::Null, _) => true,
                (Field::Value(value), "finish_reason") => is_canonical(value),
                (Field::Value("\"\""), _) => false,
                (Field::Value(value), "stop_reason") => is_canonical(value),
                (Field::Value(value), _) => is_canonical(value) && !matches!(known, End::Value(_)),
            })
    }

    fn push(&mut self, choice: &TextChoice<'_>) {
        if let Some(delta) = choice.delta() {
            let message = self.message.get_or_insert_default();
            message.has_role |= delta.role.value().is_some();
            append(&mut message.content, delta.content.as_ref());
            append(
                &mut message.reasoning_content,
                delta.reasoning_content.as_ref(),
            );
            append(&mut message.reasoning, delta.reasoning.as_ref());
        }
        append(&mut self.text, choice.text.as_ref());
        for (known, field) in self.ends.iter_mut().zip(choice.ends()) {
            match (field, &known) {
                (Field::Null | Field::Value("\"\""), End::Absent) => *known = End::Null,
                (Field::Absent | Field::Null | Field::Value("\"\""), _) => {}
                (Field::Value(value), _) => *known = End::Value(value.into()),
            }
        }
    }

    /// The length of the texts.
    fn length(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let message = self.message.as_ref().map_or(0, |message| {
            length(&message.content)
                + length(&message.reasoning_content)
                + length(&message.reasoning)
        });
        ROOM_BYTES + message + length(&self.text)
    }

    fn write(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(b"{\"index\":");
        write_json(output, &self.index);
        if let Some(message) = &self.message {
            output.extend_from_slice(b",\"message\":{\"role\":\"assistant\",\"content\":");
            write_json(output, &message.content);
            output.extend_from_slice(b",\"refusal\":null");
            write_text(
                output,
                "reasoning_content",
                message.reasoning_content.as_ref(),
            );
            write_text(output, "reasoning", message.reasoning.as_ref());
            output.push(b'}');
        }
        write_text(output, "text", self.text.as_ref());
        output.extend_from_slice(b",\"logprobs\":null");
        for (name, end) in ENDS.iter().zip(&self.ends) {
            let value = match end {
                End::Absent => continue,
                End::Null => "null",
                End::Value(value) => value,
            };
            write_name(output, name);
            output.extend_from_slice(value.as_bytes());
        }
        output.push(b'}');
    }

    fn into_choice(self) -> Choice {
        let mut choice = Choice::new(self.index);
        if let Some(message) = self.message {
            let mut fields = Map::new();
            if message.has_role {
                fields.insert("role".to_owned(), json!("assistant"));
            }
            let texts = [
                ("content", message.content),
                ("reasoning_content", message.reasoning_content),
                ("reasoning", message.reasoning),
            ];
            let texts = texts
                .into_iter()
                .filter_map(|(name, text)| Some((name, text?)));
            fields.extend(texts.map(|(name, text)| (name.to_owned(), Value::String(text))));
            choice.has_message = true;
            choice
                .fields
                .insert("message".to_owned(), Value::Object(fields));
        }
        if let Some(text) = self.text {
            choice.fields.insert("text".to_owned(), Value::String(text));
        }
        for (name, end) in ENDS.iter().zip(self.ends) {
            let value = match end {
                End::Absent => continue,
                End::Null => Value::Null,
                End::Value(value) => serde_json::from_str(&value).unwrap_or_default(),
            };
            choice.fields.insert((*name).to_owned(), value);
        }
        choice
    }
}

/// Parses token counts: `None` if they cannot be represented, `Some(None)` if the field is not an object and has no effect.
fn counts(field: Field<'_>) -> Option<Option<Map<String, Value>>> {
    match field.value() {
        Some(value) if value.starts_with('{') => serde_json::from_str(value).ok(),
        Some(value) => is_canonical(value).then_some(None),
        None => Some(None),
    }
}

fn merge_counts(known: &mut Option<Map<String, Value>>, more: Option<Map<String, Value>>) {
    match (known, more) {
        (Some(known), Some(more)) => merge_object(known, more, Level::Choice),
        (known @ None, more) => *known = more,
        (Some(_), None) => {}
    }
}

fn append(known: &mut Option<String>, more: Option<&Text<'_>>) {
    if let Some(Text(more)) = more {
        known.get_or_insert_default().push_str(more);
    }
}

fn write_name(output: &mut Vec<u8>, name: &str) {
    output.extend_from_slice(b",\"");
    output.extend_from_slice(name.as_bytes());
    output.extend_from_slice(b"\":");
}

fn write_text(output: &mut Vec<u8>, name: &str, text: Option<&String>) {
    if let Some(text) = text {
        write_name(output, name);
        write_json(output, text);
    }
}

/// Appends a value whose serialization cannot fail.
fn write_json(output: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(output, value).expect("texts, numbers and maps with text keys are JSON");
}
