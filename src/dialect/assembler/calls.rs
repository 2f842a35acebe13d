//! Assigns tool call deltas to calls. The assembler and every streaming translation use one [`CallTable`] per choice, and therefore
//! produce the same calls.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::damaged::{CALLS_MAX, Damaged};

/// One delta of a tool call, as sent by the engine.
#[derive(Debug)]
pub struct CallDelta<'a> {
    /// The engine's `index`, or the position in its list. Only a label; the response may order calls differently.
    pub label: u64,
    pub id: Option<&'a str>,
    pub name: Option<&'a str>,
    pub arguments: Cow<'a, str>,
}

impl<'a> CallDelta<'a> {
    /// Reads the element at `position` of a `tool_calls` list.
    pub fn read(call: &'a Value, position: usize) -> CallDelta<'a> {
        let text = |path: &str| call.pointer(path).and_then(Value::as_str);
        let filled = |path: &str| text(path).filter(|text| !text.is_empty());
        let label = call.get("index").and_then(Value::as_u64);
        CallDelta {
            label: label.unwrap_or(position as u64),
            id: filled("/id"),
            name: filled("/function/name"),
            arguments: arguments_text(call.pointer("/function/arguments")),
        }
    }
}

/// The elements of `tool_calls`, which is a list, or a single call (TGI).
pub(crate) fn calls_in(calls: &Value) -> &[Value] {
    match calls {
        Value::Array(calls) => calls,
        Value::Object(_) => std::slice::from_ref(calls),
        _ => &[],
    }
}

/// The arguments as text. Some engines send the JSON value instead.
pub(crate) fn arguments_text(arguments: Option<&Value>) -> Cow<'_, str> {
    match arguments {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(json @ (Value::Object(_) | Value::Array(_))) => Cow::Owned(json.to_string()),
        _ => Cow::Borrowed(""),
    }
}

/// The call to which a delta belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The position of the call in the response.
    pub position: usize,
    /// The delta sets the call's id.
    pub(crate) sets_id: bool,
    /// The delta sets the call's name.
    pub(crate) sets_name: bool,
}

/// The calls of one choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallTable {
    calls: Vec<Call>,
    /// The latest call with each label.
    by_label: BTreeMap<u64, usize>,
    by_id: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, Default)]
struct Call {
    has_id: bool,
    name: Option<String>,
    arguments: JsonText,
}

impl Call {
    /// Returns false if the delta begins another call: the name differs after arguments have begun, or the name is repeated with
    /// new arguments after complete ones.
    fn continues(&self, delta: &CallDelta<'_>) -> bool {
        match (&self.name, delta.name) {
            (Some(known), Some(name)) if known != name => !self.arguments.has_begun,
            (Some(_), Some(_)) => {
                !self.arguments.is_complete() || delta.arguments.trim_ascii().is_empty()
            }
            _ => true,
        }
    }
}

impl CallTable {
    /// # Errors
    /// [`Damaged::TooManyCalls`] if the delta begins a call beyond [`CALLS_MAX`].
    pub fn place(&mut self, delta: &CallDelta<'_>) -> Result<Placed, Damaged> {
        let of_label = self.by_label.get(&delta.label).copied();
        let known = match delta.id {
            None => of_label,
            Some(id) => self.by_id.get(id).copied().or_else(|| {
                // A new id normally begins a new call. Some engines send the id late, or a different one in each delta, so the call
                // in progress continues.
                of_label.filter(|position| {
                    let call = &self.calls[*position];
                    let is_amid = call.arguments.has_begun && !call.arguments.is_complete();
                    !call.has_id || (delta.name.is_none() && is_amid)
                })
            }),
        };
        let known = known.filter(|position| self.calls[*position].continues(delta));
        let position = known.unwrap_or(self.calls.len());
        if known.is_none() {
            if position >= CALLS_MAX {
                return Err(Damaged::TooManyCalls);
            }
            self.calls.push(Call::default());
        }
        self.by_label.insert(delta.label, position);
        let call = &mut self.calls[position];
        let (sets_id, sets_name) = (
            delta.id.is_some() && !call.has_id,
            delta.name.is_some() && call.name.is_none(),
        );
        if let Some(id) = delta.id.filter(|_| sets_id) {
            call.has_id = true;
            self.by_id.insert(id.to_owned(), position);
        }
        if sets_name {
            call.name = delta.name.map(str::to_owned);
        }
        call.arguments.push(&delta.arguments);
        Ok(Placed {
            position,
            sets_id,
            sets_name,
        })
    }
}

/// Finds the end of a JSON value that arrives in pieces. Reads each byte once.
#[derive(Clone, Debug, Default)]
struct JsonText {
    has_begun: bool,
    depth: u32,
    in_string: bool,
    is_escaped: bool,
}

impl JsonText {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.is_escaped {
                self.is_escaped = false;
                continue;
            }
            match byte {
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            self.has_begun |= !byte.is_ascii_whitespace();
        }
    }

    fn is_complete(&self) -> bool {
        self.has_begun && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The assembled calls, as `name(arguments)#id`.
    fn assembled(deltas: &[Value]) -> Vec<String> {
        let mut table = CallTable::default();
        let mut calls: Vec<(String, String, String)> = Vec::new();
        for delta in deltas {
            let delta = CallDelta::read(delta, 0);
            let placed = table.place(&delta).unwrap();
            if placed.position == calls.len() {
                calls.push(Default::default());
            }
            let (name, arguments, id) = &mut calls[placed.position];
            if placed.sets_name {
                *name = delta.name.unwrap().to_owned();
            }
            if placed.sets_id {
                *id = delta.id.unwrap().to_owned();
            }
            arguments.push_str(&delta.arguments);
        }
        let shown = calls.into_iter();
        shown
            .map(|(name, arguments, id)| format!("{name}({arguments})#{id}"))
            .collect()
    }

    fn delta(index: u64, id: Value, name: Value, arguments: &str) -> Value {
        json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn a_tool_call_index_is_only_a_label_and_a_new_id_begins_a_call() {
        let null = || Value::Null;
        for (deltas, calls) in [
            (
                vec![
                    delta(1, json!("a"), json!("w"), ""),
                    delta(1, null(), null(), "{}"),
                ],
                vec!["w({})#a"],
            ),
            (
                vec![
                    delta(0, json!("a"), json!("w"), "{}"),
                    delta(0, json!("b"), json!("v"), "{"),
                    delta(0, json!(""), json!(""), "}"),
                ],
                vec!["w({})#a", "v({})#b"],
            ),
            (
                vec![
                    delta(0, json!("a"), json!("w"), "{"),
                    delta(0, json!("a"), json!("w"), "}"),
                ],
                vec!["w({})#a"],
            ),
            (
                vec![
                    delta(3, null(), json!("w"), "{\"a\": \"}\""),
                    delta(3, null(), json!("w"), "}"),
                    delta(3, null(), json!("w"), "{}"),
                    delta(3, null(), json!("v"), "{}"),
                ],
                vec!["w({\"a\": \"}\"})#", "w({})#", "v({})#"],
            ),
            (
                vec![
                    delta(0, null(), json!("w"), ""),
                    delta(0, json!("late"), null(), "{"),
                    delta(0, json!("other"), null(), "}"),
                ],
                vec!["w({})#late"],
            ),
            (
                vec![
                    delta(0, json!("x"), json!("w"), "{}"),
                    delta(1, json!("x"), json!("w"), "{}"),
                ],
                vec!["w({})#x", "w({})#x"],
            ),
        ] {
            assert_eq!(assembled(&deltas), calls, "{deltas:?}");
        }
    }

    #[test]
    fn arguments_given_as_json_are_serialized_to_text() {
        let call = json!({"id": "a", "function": {"name": "w", "arguments": {"c": 1}}});
        assert_eq!(assembled(&[call]), ["w({\"c\":1})#a"]);
    }
}
