//! Reads chunks that carry only text, labels and counts: borrowed from the event, without building their JSON. Any other chunk is
//! an error here and is read as an object.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A scalar field, as the text of its JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Field<'a> {
    #[default]
    Absent,
    Null,
    Value(&'a str),
}

/// A chunk with at most one choice. Fields of type `()` have to be null.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextChunk<'a> {
    #[serde(borrow, default)]
    id: Field<'a>,
    #[serde(borrow, default)]
    pub object: Field<'a>,
    #[serde(borrow, default)]
    created: Field<'a>,
    #[serde(borrow, default)]
    model: Field<'a>,
    #[serde(borrow, default)]
    system_fingerprint: Field<'a>,
    #[serde(borrow, default)]
    service_tier: Field<'a>,
    #[serde(borrow, default)]
    provider: Field<'a>,
    #[serde(borrow, default)]
    prompt_token_ids: Field<'a>,
    #[serde(borrow, default)]
    choices: Choices<'a>,
    #[serde(borrow, default)]
    pub usage: Field<'a>,
    #[serde(borrow, default)]
    pub timings: Field<'a>,
    #[serde(default, rename = "error")]
    _error: (),
}

/// Fields of a response other than its choices and counts, in the order in which responses are written.
pub(super) const HEAD: [&str; 8] = [
    "id",
    "object",
    "created",
    "model",
    "system_fingerprint",
    "service_tier",
    "provider",
    "prompt_token_ids",
];

/// The fields of a choice that describe its end, in the order in which responses are written.
pub(super) const ENDS: [&str; 4] = ["finish_reason", "stop_reason", "matched_stop", "token_ids"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextChoice<'a> {
    pub index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Object<Delta<'a>>>,
    #[serde(borrow, default, deserialize_with = "not_null")]
    pub text: Option<Text<'a>>,
    #[serde(borrow, default)]
    finish_reason: Field<'a>,
    #[serde(borrow, default)]
    stop_reason: Field<'a>,
    #[serde(borrow, default)]
    matched_stop: Field<'a>,
    #[serde(borrow, default)]
    token_ids: Field<'a>,
    #[serde(default, rename = "logprobs")]
    _logprobs: (),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub role: Field<'a>,
    #[serde(borrow)]
    pub content: Option<Text<'a>>,
    #[serde(borrow)]
    pub reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    pub reasoning: Option<Text<'a>>,
    #[serde(default, rename = "refusal")]
    _refusal: (),
    #[serde(default, rename = "tool_calls")]
    _tool_calls: (),
    #[serde(default, rename = "function_call")]
    _function_call: (),
}

/// Borrowed unless it has escapes. Serde cannot borrow an `Option<Cow>` directly.
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl<'a> TextChunk<'a> {
    pub fn read(data: &'a [u8]) -> Option<TextChunk<'a>> {
        let chunk: Object<TextChunk<'a>> = serde_json::from_slice(data).ok()?;
        Some(chunk.0)
    }

    /// The values of [`HEAD`].
    pub fn head(&self) -> [Field<'a>; HEAD.len()] {
        [
            self.id,
            self.object,
            self.created,
            self.model,
            self.system_fingerprint,
            self.service_tier,
            self.provider,
            self.prompt_token_ids,
        ]
    }

    pub fn choice(&self) -> Option<&TextChoice<'a>> {
        self.choices.0.as_ref()
    }

    /// The choice's text, if the chunk adds nothing but that. Such chunks may repeat any number of times.
    pub fn only_text(&self) -> Option<&Cow<'a, str>> {
        let choice = self.choice()?;
        let has_counts = self.usage.value().or(self.timings.value()).is_some();
        if has_counts || choice.ends().iter().any(|end| end.value().is_some()) {
            return None;
        }
        match (choice.delta(), &choice.text) {
            (Some(delta), None)
                if delta.reasoning_content.is_none() && delta.reasoning.is_none() =>
            {
                delta.content.as_ref().map(|Text(text)| text)
            }
            (None, Some(Text(text))) => Some(text),
            _ => None,
        }
    }
}

impl<'a> TextChoice<'a> {
    pub fn delta(&self) -> Option<&Delta<'a>> {
        self.delta.as_ref().map(|Object(delta)| delta)
    }

    /// The values of [`ENDS`].
    pub fn ends(&self) -> [Field<'a>; ENDS.len()] {
        [
            self.finish_reason,
            self.stop_reason,
            self.matched_stop,
            self.token_ids,
        ]
    }
}

impl<'a> Field<'a> {
    pub fn value(self) -> Option<&'a str> {
        match self {
            Field::Value(value) => Some(value),
            Field::Absent | Field::Null => None,
        }
    }
}

/// Returns true if serde_json writes this JSON value exactly as it was read: a string without escapes, an integer or a boolean.
pub(super) fn is_canonical(value: &str) -> bool {
    match value.as_bytes() {
        [b'"', text @ ..] => !text.contains(&b'\\'),
        [b'0'] => true,
        [b'1'..=b'9', digits @ ..] => digits.len() < 18 && digits.iter().all(u8::is_ascii_digit),
        _ => matches!(value, "true" | "false"),
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Field<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Field<'a>, D::Error> {
        let value: Option<&'a RawValue> = Option::deserialize(deserializer)?;
        Ok(value.map_or(Field::Null, |value| Field::Value(value.get())))
    }
}

fn not_null<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// A JSON object. Derived implementations also read lists as structs.
#[derive(Debug)]
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

#[derive(Debug, Default)]
struct Choices<'a>(Option<TextChoice<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Choices<'a>, D::Error> {
        struct AtMostOne<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for AtMostOne<'a> {
            type Value = Choices<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("at most one choice")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices<'a>, A::Error> {
                let choice: Option<Object<TextChoice<'a>>> = list.next_element()?;
                if list.next_element::<IgnoredAny>()?.is_some() {
                    return Err(A::Error::custom("more than one choice"));
                }
                Ok(Choices(choice.map(|Object(choice)| choice)))
            }
        }
        deserializer.deserialize_seq(AtMostOne(PhantomData))
    }
}
