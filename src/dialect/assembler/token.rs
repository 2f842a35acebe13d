//! Reads chunks that only continue one text, without building their JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// The next piece of a choice's text.
pub(super) struct Token<'a> {
    pub index: u64,
    pub text: Cow<'a, str>,
    /// The chunk is from a chat, not a completion.
    pub(crate) is_delta: bool,
    pub has_role: bool,
}

/// Any other field, and a value in a field that has to be null, disqualifies the chunk.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: [Choice<'a>; 1],
    id: Option<IgnoredAny>,
    object: Option<IgnoredAny>,
    created: Option<IgnoredAny>,
    model: Option<IgnoredAny>,
    system_fingerprint: Option<IgnoredAny>,
    service_tier: Option<IgnoredAny>,
    provider: Option<IgnoredAny>,
    #[serde(default, rename = "usage")]
    _usage: (),
    #[serde(default, rename = "error")]
    _error: (),
    #[serde(default, rename = "prompt_token_ids")]
    _prompt_token_ids: (),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(default, rename = "finish_reason")]
    _finish_reason: (),
    #[serde(default, rename = "logprobs")]
    _logprobs: (),
    #[serde(default, rename = "stop_reason")]
    _stop_reason: (),
    #[serde(default, rename = "matched_stop")]
    _matched_stop: (),
    #[serde(default, rename = "token_ids")]
    _token_ids: (),
}

/// Borrowed unless it has escapes. Serde cannot borrow an `Option<Cow>` directly.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delta<'a> {
    role: Option<IgnoredAny>,
    #[serde(borrow)]
    content: Cow<'a, str>,
    #[serde(default, rename = "reasoning_content")]
    _reasoning_content: (),
    #[serde(default, rename = "tool_calls")]
    _tool_calls: (),
}

/// Returns `None` for every other chunk, and for chunks that add a field of the response that `head` does not have yet.
pub(super) fn read<'a>(data: &'a [u8], head: &Map<String, Value>) -> Option<Token<'a>> {
    let chunk: Chunk<'a> = serde_json::from_slice(data).ok()?;
    let fields = [
        ("id", chunk.id),
        ("object", chunk.object),
        ("created", chunk.created),
        ("model", chunk.model),
        ("system_fingerprint", chunk.system_fingerprint),
        ("service_tier", chunk.service_tier),
        ("provider", chunk.provider),
    ];
    let is_known = |name: &str| match head.get(name) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Number(number)) => number.as_u64() != Some(0),
        _ => false,
    };
    let is_new = |(name, value): &(&str, Option<IgnoredAny>)| value.is_some() && !is_known(name);
    if fields.iter().any(is_new) {
        return None;
    }
    let [choice] = chunk.choices;
    let (text, is_delta, has_role) = match (choice.delta, choice.text) {
        (Some(delta), None) => (delta.content, true, delta.role.is_some()),
        (None, Some(Text(text))) => (text, false, false),
        _ => return None,
    };
    Some(Token {
        index: choice.index,
        text,
        is_delta,
        has_role,
    })
}
