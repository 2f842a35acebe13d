//! Translates a completion into a chat response, event by event, for models whose conversations the pool renders as a single
//! prompt. Other fields of an event are kept.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::events::data_of;

/// Translation state of one response: the choices that have begun.
#[derive(Debug, Default)]
pub struct AsChat {
    begun: BTreeSet<u64>,
}

impl AsChat {
    /// Translates an event. Comments, errors and the end of the stream are kept.
    pub fn event(&mut self, event: Vec<u8>) -> Vec<u8> {
        let chunk = data_of(&event).and_then(|data| serde_json::from_slice(&data).ok());
        match chunk {
            Some(Value::Object(chunk)) if chunk.contains_key("choices") => {
                format!("data: {}\n\n", Value::Object(self.chunk(chunk))).into_bytes()
            }
            _ => event,
        }
    }

    /// Translates a complete completion into a chat response.
    pub fn complete(mut response: Map<String, Value>) -> Map<String, Value> {
        response.insert("object".to_owned(), json!("chat.completion"));
        rename(&mut response);
        if let Some(Value::Array(choices)) = response.get_mut("choices") {
            for choice in choices.iter_mut().filter_map(Value::as_object_mut) {
                let text = choice.shift_remove("text");
                let message = json!({"role": "assistant", "content": text, "refusal": null});
                choice.entry("message").or_insert(message);
            }
        }
        response
    }

    fn chunk(&mut self, mut chunk: Map<String, Value>) -> Map<String, Value> {
        chunk.insert("object".to_owned(), json!("chat.completion.chunk"));
        rename(&mut chunk);
        if let Some(Value::Array(choices)) = chunk.get_mut("choices") {
            for choice in choices.iter_mut().filter_map(Value::as_object_mut) {
                self.choice(choice);
            }
        }
        chunk
    }

    fn choice(&mut self, choice: &mut Map<String, Value>) {
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
        let text = choice.shift_remove("text");
        let mut delta = Map::new();
        if self.begun.insert(index) {
            delta.insert("role".to_owned(), json!("assistant"));
        }
        // The first delta always has text, even if it is empty.
        if let Some(text) = text.filter(|text| *text != "" || !delta.is_empty()) {
            delta.insert("content".to_owned(), text);
        }
        choice.insert("delta".to_owned(), Value::Object(delta));
        choice.entry("finish_reason").or_insert(Value::Null);
    }
}

fn rename(chunk: &mut Map<String, Value>) {
    if let Some(Value::String(id)) = chunk.get_mut("id")
        && let Some(rest) = id.strip_prefix("cmpl-")
    {
        *id = format!("chatcmpl-{rest}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(events: &[Value]) -> Vec<Value> {
        let mut chat = AsChat::default();
        let tell = |event: &Value| {
            let event = chat.event(format!("data: {event}\n\n").into_bytes());
            serde_json::from_slice(&data_of(&event).unwrap()).unwrap()
        };
        events.iter().map(tell).collect()
    }

    #[test]
    fn each_choice_begins_with_a_role_and_text_becomes_content() {
        let event = |index: u64, text: &str, reason: Value| {
            json!({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m",
                "choices": [{"index": index, "text": text, "finish_reason": reason, "logprobs": null}]})
        };
        let shown = shown(&[
            event(0, "Hel", Value::Null),
            event(1, "", Value::Null),
            event(0, "lo", json!("stop")),
        ]);
        assert_eq!(shown[0]["object"], "chat.completion.chunk");
        assert_eq!(shown[0]["id"], "chatcmpl-1");
        assert_eq!(
            shown[0]["choices"][0]["delta"],
            json!({"role": "assistant", "content": "Hel"})
        );
        assert_eq!(
            shown[1]["choices"][0]["delta"],
            json!({"role": "assistant", "content": ""})
        );
        assert_eq!(shown[2]["choices"][0]["delta"], json!({"content": "lo"}));
        assert_eq!(shown[2]["choices"][0]["finish_reason"], "stop");
        assert_eq!(shown[2]["choices"][0].get("text"), None);
    }

    #[test]
    fn usage_errors_comments_and_the_end_mark_pass_unchanged() {
        let mut chat = AsChat::default();
        for event in [
            ": waiting\n\n",
            "data: [DONE]\n\n",
            "data: {\"error\":{\"message\":\"x\"}}\n\n",
        ] {
            assert_eq!(chat.event(event.as_bytes().to_vec()), event.as_bytes());
        }
        let usage =
            chat.event(b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3}}\n\n".to_vec());
        assert!(
            String::from_utf8(usage)
                .unwrap()
                .contains("\"prompt_tokens\":3")
        );
    }
}
