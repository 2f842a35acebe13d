//! Merges the fields of chunks: precedence of values, and joining of texts, lists and objects. The rules are documented in
//! [`super`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The nesting level of a field, which determines how it is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// A field of the chunk itself.
    Response,
    /// Inside an object of the chunk.
    Details,
    /// Directly or indirectly inside a choice.
    Choice,
    /// Directly or indirectly inside a delta.
    Message,
}

/// Fields of a delta that keep their first value. All other strings are concatenated.
const LABELS: [&str; 6] = ["role", "id", "type", "name", "object", "model"];
/// Fields inside objects whose texts arrive in pieces.
const TEXTS: [&str; 12] = [
    "text",
    "content",
    "thinking",
    "reasoning",
    "reasoning_content",
    "refusal",
    "arguments",
    "transcript",
    "data",
    "summary",
    "partial_json",
    "input",
];
/// Types of parts that arrive in pieces.
const PIECES: [&str; 9] = [
    "text",
    "output_text",
    "thinking",
    "reasoning",
    "reasoning_text",
    "summary_text",
    "refusal",
    "reasoning.text",
    "reasoning.summary",
];
/// Number of recent parts searched for a part with the same `index`. Bounded to keep the time linear.
const LOOK_BACK: usize = 64;

/// Merges a field of a chunk, a choice or a delta.
pub(super) fn merge(known: &mut Map<String, Value>, name: String, more: Value, level: Level) {
    let is_text = level == Level::Message && !LABELS.contains(&name.as_str());
    match known.get_mut(&name) {
        Some(known) => join(known, more, &name, is_text, level),
        None if more.is_null() && level == Level::Message => {}
        None => drop(known.insert(name, more)),
    }
}

/// Merges a nested object.
pub(super) fn merge_object(known: &mut Map<String, Value>, more: Map<String, Value>, level: Level) {
    let level = match level {
        Level::Response => Level::Details,
        level => level,
    };
    for (name, more) in more {
        let is_text = TEXTS.contains(&name.as_str());
        match known.get_mut(&name) {
            Some(known) => join(known, more, &name, is_text, level),
            None => drop(known.insert(name, more)),
        }
    }
}

/// Returns true if a field is null or empty and may be overwritten.
pub(super) fn is_unknown(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn join(known: &mut Value, more: Value, name: &str, is_text: bool, level: Level) {
    if is_unknown(known) {
        if known.is_null() || !is_unknown(&more) {
            *known = more;
        }
        return;
    }
    match (known, more) {
        (_, more) if is_unknown(&more) => {}
        (Value::String(known), Value::String(more)) if is_text => match name {
            "data" => append_base64(known, &more),
            _ => known.push_str(&more),
        },
        (Value::Array(known), Value::Array(more)) => match level {
            Level::Response | Level::Details => join_snapshots(known, more),
            Level::Choice => known.extend(more),
            Level::Message => append_parts(known, more),
        },
        (Value::Object(known), Value::Object(more)) => merge_object(known, more, level),
        (known @ Value::String(_), Value::Array(more)) if is_text => {
            let mut parts = vec![text_part(known.take())];
            append_parts(&mut parts, more);
            *known = Value::Array(parts);
        }
        (Value::Array(known), text @ Value::String(_)) if is_text => {
            append_parts(known, vec![text_part(text)]);
        }
        (known, more)
            if is_plain(known) && is_plain(&more) && (level != Level::Response || *known == 0) =>
        {
            *known = more;
        }
        _ => {}
    }
}

fn is_plain(value: &Value) -> bool {
    value.is_number() || value.is_boolean()
}

fn text_part(text: Value) -> Value {
    json!({"type": "text", "text": text})
}

/// Merges a list of the response, such as citations. Engines repeat such a list in each chunk, complete or as far as it is known,
/// or send each element once.
fn join_snapshots(known: &mut Vec<Value>, more: Vec<Value>) {
    if more.starts_with(known) {
        *known = more;
    } else if !known.starts_with(&more) {
        known.extend(more);
    }
}

/// Merges parts with the same `index` and type, and consecutive texts.
fn append_parts(known: &mut Vec<Value>, more: Vec<Value>) {
    for part in more {
        let Value::Object(part) = part else {
            known.push(part);
            continue;
        };
        let recent = known.len().saturating_sub(LOOK_BACK);
        let place = match part.get("index").and_then(Value::as_u64) {
            Some(_) => known[recent..]
                .iter()
                .rposition(|known| is_same(known, &part))
                .map(|place| recent + place),
            None => known.len().checked_sub(1).filter(|last| {
                let kind = part.get("type").and_then(Value::as_str);
                kind.is_some_and(|kind| PIECES.contains(&kind)) && is_same(&known[*last], &part)
            }),
        };
        match place.map(|place| &mut known[place]) {
            Some(Value::Object(known)) => merge_object(known, part, Level::Message),
            _ => known.push(Value::Object(part)),
        }
    }
}

fn is_same(known: &Value, part: &Map<String, Value>) -> bool {
    known.get("index") == part.get("index") && known.get("type") == part.get("type")
}

/// Audio pieces are encoded separately; padding in the middle would end the text.
fn append_base64(known: &mut String, more: &str) {
    let whole = known.len() - known.len() % 4;
    let last = whole.saturating_sub(4);
    if known.ends_with('=')
        && let (Some(tail), Ok(more)) = (known.get(last..), STANDARD.decode(more))
        && let Ok(mut bytes) = STANDARD.decode(tail)
    {
        bytes.extend(more);
        known.truncate(last);
        STANDARD.encode_string(bytes, known);
        return;
    }
    known.push_str(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(level: Level, values: &[Value]) -> Value {
        let mut known = Map::new();
        for value in values {
            merge(&mut known, "x".to_owned(), value.clone(), level);
        }
        known.get("x").cloned().unwrap_or_default()
    }

    #[test]
    fn later_values_fill_empty_fields_and_never_erase_any() {
        for level in [Level::Response, Level::Choice, Level::Message] {
            for value in [json!("a"), json!([1]), json!({"a": 1}), json!(5)] {
                let nothing = [json!(null), json!(""), json!([]), json!({})];
                for nothing in &nothing {
                    let values = [nothing.clone(), value.clone(), nothing.clone()];
                    assert_eq!(merged(level, &values), value, "{level:?} {nothing}");
                }
            }
        }
        assert_eq!(merged(Level::Response, &[json!(0), json!(7), json!(8)]), 7);
        assert_eq!(merged(Level::Choice, &[json!(1), json!(2)]), 2);
    }

    #[test]
    fn text_fields_are_concatenated_only_at_their_level() {
        let pieces = [json!("a"), json!("b")];
        assert_eq!(merged(Level::Message, &pieces), "ab");
        assert_eq!(merged(Level::Choice, &pieces), "a");
        let audio = [
            json!({"id": "a", "transcript": "he", "data": "QQ=="}),
            json!({"id": "a", "transcript": "y", "data": "QkM="}),
            json!({"expires_at": 5}),
        ];
        assert_eq!(
            merged(Level::Message, &audio),
            json!({"id": "a", "transcript": "hey", "data": "QUJD", "expires_at": 5})
        );
    }

    #[test]
    fn content_parts_are_joined_with_texts_and_with_each_other() {
        let thinking = |text: &str| json!([{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]);
        let content = [
            json!(""),
            thinking("h"),
            thinking("m"),
            json!([{"type": "text", "text": "4"}]),
            json!("2"),
        ];
        assert_eq!(
            merged(Level::Message, &content),
            json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "42"}])
        );
        let details = [
            json!([{"type": "reasoning.text", "index": 0, "text": "a"}, {"type": "reasoning.text", "index": 1, "text": "x"}]),
            json!([{"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"}]),
        ];
        assert_eq!(
            merged(Level::Message, &details),
            json!([{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"},
                {"type": "reasoning.text", "index": 1, "text": "x"}])
        );
        let citation = || json!([{"type": "url_citation", "url": "u"}]);
        let two = merged(Level::Message, &[citation(), citation()]);
        assert_eq!(two.as_array().unwrap().len(), 2);
    }

    #[test]
    fn repeated_lists_of_a_response_are_not_duplicated() {
        let lists = [
            json!(["a"]),
            json!(["a", "b"]),
            json!(["a", "b"]),
            json!(["c"]),
        ];
        assert_eq!(merged(Level::Response, &lists), json!(["a", "b", "c"]));
        assert_eq!(
            merged(Level::Choice, &[json!([1]), json!([1])]),
            json!([1, 1])
        );
    }
}
