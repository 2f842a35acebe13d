//! The properties of a request that a virtual model chooses by: images, tools, and the tokens of prompt and response.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::conversation;

/// Average for English text.
const BYTES_PER_TOKEN: u64 = 4;
/// Types of message parts with an image, in the form of chats.
const IMAGE_PARTS: [&str; 3] = ["image_url", "image", "input_image"];

/// Properties of a request. Unknown parts count as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    pub has_image: bool,
    pub has_tools: bool,
    /// Estimated tokens of the prompt, and the requested limit of the response.
    pub tokens: u64,
    /// Equal for all turns of a conversation.
    pub conversation: Option<u64>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    functions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    max_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    max_completion_tokens: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

impl RequestFacts {
    /// Reads the facts of a body whose shape is bounded. Takes linear time.
    pub fn read(body: &[u8]) -> RequestFacts {
        let Ok(fields) = serde_json::from_slice::<Body<'_>>(body) else {
            return RequestFacts::default();
        };
        let mut facts = RequestFacts {
            conversation: conversation::hash(body),
            ..RequestFacts::default()
        };
        let mut bytes = 0;
        for field in [fields.prompt, fields.input] {
            bytes += field.map_or(0, |value| value.get().len());
        }
        for field in [fields.tools, fields.functions].into_iter().flatten() {
            let text = field.get();
            let list = text
                .strip_prefix('[')
                .and_then(|list| list.strip_suffix(']'));
            if list.is_some_and(|list| !list.trim().is_empty()) {
                facts.has_tools = true;
                bytes += text.len();
            }
        }
        if let Some(messages) = fields.messages {
            match serde_json::from_str::<Vec<Message<'_>>>(messages.get()) {
                Ok(messages) => {
                    let contents = messages.iter().filter_map(|message| message.content);
                    bytes += contents
                        .map(|content| facts.text_bytes(content))
                        .sum::<usize>();
                }
                Err(_) => bytes += messages.get().len(),
            }
        }
        let limit = fields.max_completion_tokens.or(fields.max_tokens);
        let response = limit.and_then(|limit| limit.get().parse().ok());
        let prompt = u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_PER_TOKEN;
        facts.tokens = prompt.saturating_add(response.unwrap_or(0));
        facts
    }

    /// The bytes of text in the content of a message. Notes its images.
    fn text_bytes(&mut self, content: &RawValue) -> usize {
        let text = content.get();
        if !text.starts_with('[') {
            return text.len();
        }
        let Ok(parts) = serde_json::from_str::<Vec<Part<'_>>>(text) else {
            return text.len();
        };
        let mut bytes = 0;
        for part in parts {
            let kind = part.kind.as_deref().unwrap_or_default();
            self.has_image |= IMAGE_PARTS.contains(&kind);
            bytes += part.text.map_or(0, |text| text.get().len());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn facts(body: &Value) -> RequestFacts {
        RequestFacts::read(body.to_string().as_bytes())
    }

    #[test]
    fn images_and_tools_are_found_where_chats_have_them() {
        let image = json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]});
        assert!(facts(&image).has_image);
        let quoted = json!({"messages": [{"role": "user", "content": "image_url"},
            {"role": "user", "content": [{"type": "text", "text": "{\"type\": \"image_url\"}"}]}]});
        assert!(!facts(&quoted).has_image);
        let messages = json!([{"role": "user", "content": "hi"}]);
        for (tools, has_tools) in [
            (
                json!([{"type": "function", "function": {"name": "f"}}]),
                true,
            ),
            (json!([]), false),
            (json!(null), false),
        ] {
            let body = json!({"messages": messages, "tools": tools});
            assert_eq!(facts(&body).has_tools, has_tools, "{tools}");
        }
        assert!(facts(&json!({"messages": messages, "functions": [{"name": "f"}]})).has_tools);
    }

    #[test]
    fn tokens_are_estimated_from_texts_and_include_the_limit_of_the_response() {
        let text = "a".repeat(4_000);
        let of = |body: Value| facts(&body).tokens;
        let near = 1_000..=1_002;
        assert!(near.contains(&of(json!({"prompt": text}))));
        assert!(near.contains(&of(json!({"input": text}))));
        let chat = json!([{"role": "user", "content": text}]);
        assert!(near.contains(&of(json!({"messages": chat}))));
        assert!((1_500..=1_502).contains(&of(json!({"messages": chat, "max_tokens": 500}))));
        let image = format!("data:image/png;base64,{}", "A".repeat(1_000_000));
        let parts = json!([{"role": "user", "content": [{"type": "text", "text": text},
            {"type": "image_url", "image_url": {"url": image}}]}]);
        assert!(
            near.contains(&of(json!({"messages": parts}))),
            "an image is not text"
        );
    }

    #[test]
    fn a_body_in_another_form_has_no_properties() {
        for body in [
            &b"no json"[..],
            b"[]",
            b"{}",
            br#"{"messages": 3, "tools": {"a": 1}}"#,
        ] {
            let facts = RequestFacts::read(body);
            assert!(
                !facts.has_image && !facts.has_tools && facts.tokens == 0,
                "{facts:?}"
            );
        }
    }
}
