//! Identifies the conversation of a request by its beginning, to route it to the replica that has that prefix in its cache. A
//! heuristic on the text alone; no text is stored.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Length of a completion's prompt that identifies it.
const BEGINNING_MAX: usize = 512;
/// Largest number of messages searched for the user's first message.
const TURNS_MAX: usize = 8;

#[derive(Deserialize)]
struct Turns<'a> {
    #[serde(borrow)]
    messages: Option<First<'a>>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Turn<'a> {
    #[serde(borrow)]
    role: Option<&'a str>,
}

/// The first messages; later ones are skipped.
struct First<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<First<'a>, D::Error> {
        struct Messages;
        impl<'de> Visitor<'de> for Messages {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut first = Vec::with_capacity(TURNS_MAX);
                while first.len() < TURNS_MAX {
                    match list.next_element()? {
                        Some(message) => first.push(message),
                        None => return Ok(first),
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first)
            }
        }
        deserializer.deserialize_seq(Messages).map(First)
    }
}

/// A hash that is equal for all turns of a conversation: it covers the messages up to the user's first. `None` without messages or
/// prompt.
pub(crate) fn hash(body: &[u8]) -> Option<u64> {
    let turns: Turns<'_> = serde_json::from_slice(body).ok()?;
    let mut hasher = DefaultHasher::new();
    let Some(messages) = turns.messages else {
        let prompt = turns.prompt?.get().as_bytes();
        prompt[..prompt.len().min(BEGINNING_MAX)].hash(&mut hasher);
        return Some(hasher.finish());
    };
    for message in messages.0 {
        message.get().hash(&mut hasher);
        let turn: Option<Turn<'_>> = serde_json::from_str(message.get()).ok();
        if turn.and_then(|turn| turn.role) == Some("user") {
            return Some(hasher.finish());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(messages: serde_json::Value) -> Option<u64> {
        hash(
            json!({"model": "m", "messages": messages})
                .to_string()
                .as_bytes(),
        )
    }

    #[test]
    fn later_turns_hash_to_the_same_conversation_and_other_prompts_do_not() {
        let system = json!({"role": "system", "content": "Be kind."});
        let user = json!({"role": "user", "content": "Hello"});
        let first = key(json!([system, user]));
        assert!(first.is_some());
        let response = json!({"role": "assistant", "content": "Hi"});
        let more = json!({"role": "user", "content": "More"});
        assert_eq!(key(json!([system, user, response, more])), first);
        assert_ne!(key(json!([system, more])), first);
        assert_ne!(key(json!([user])), first);
        assert_eq!(key(json!([system])), None);
        let text = |prompt: &str| hash(json!({"prompt": prompt}).to_string().as_bytes());
        let long = "a".repeat(1000);
        assert_eq!(text(&long), text(&format!("{long} and more")));
        assert_ne!(text("a"), text("b"));
        assert_eq!(hash(b"not json"), None);
    }
}
