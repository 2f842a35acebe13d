//! Parses tool calls from a streamed completion. Text is withheld only while it could still become a call.
//! One file because a text is read in one pass, whether it ends or is cut off.

use super::{Family, ToolCall};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A part of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Call(ToolCall),
}

/// Parses one completion.
#[derive(Debug)]
pub(crate) struct ToolReader {
    family: Family,
    /// The tools of the request. Bare JSON counts as a call only if it names a tool.
    names: BTreeSet<String>,
    most_calls: usize,
    calls: usize,
    /// Text that has not been emitted.
    held: String,
    state: ReaderState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    /// Only white space so far; JSON here may be a call.
    Beginning,
    Text,
    /// After the opening marker, or in JSON that may be a call.
    Call {
        is_opened: bool,
    },
}

impl ToolReader {
    pub fn new(family: Family, names: BTreeSet<String>, parallel: bool) -> Self {
        Self {
            family,
            names,
            most_calls: if parallel { usize::MAX } else { 1 },
            calls: 0,
            held: String::new(),
            state: ReaderState::Beginning,
        }
    }

    /// Returns true if a call was parsed.
    pub fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Adds the next piece of the completion.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        self.held.push_str(piece);
        let mut parts = Vec::new();
        while self.advance(&mut parts) {}
        parts
    }

    /// Returns the rest after the last piece. If the token limit ended the completion (`is_cut`), an incomplete call is returned
    /// with its arguments so far, as in OpenAI's API, and never as text.
    pub fn finish(&mut self, is_cut: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.state {
            ReaderState::Call { is_opened } => {
                let is_call = self.calls(calls_of(&held), is_opened, &mut parts)
                    || (is_cut && self.cut(&held, is_opened, &mut parts));
                if !is_call {
                    let opening = self.family.opening().filter(|_| is_opened);
                    text(format!("{}{held}", opening.unwrap_or_default()), &mut parts);
                }
            }
            // White space after calls is dropped.
            ReaderState::Beginning | ReaderState::Text
                if held.trim().is_empty() && self.has_calls() => {}
            ReaderState::Beginning | ReaderState::Text => {
                // Drops an incomplete opening marker if a call may begin here.
                let is_due = is_cut && (self.state == ReaderState::Beginning || self.has_calls());
                let opening = self.family.opening().filter(|_| is_due);
                let length = opening.map_or(held.len(), |opening| certain_length(&held, opening));
                text(held[..length].to_owned(), &mut parts);
            }
        }
        parts
    }

    /// Advances the parser by one step. Returns false if more text is needed.
    fn advance(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.state {
            ReaderState::Call { .. } => self.close(parts),
            ReaderState::Beginning | ReaderState::Text => self.open(parts),
        }
    }

    fn close(&mut self, parts: &mut Vec<Part>) -> bool {
        let Some(closing) = self.family.closing() else {
            return false;
        };
        let Some((call, rest)) = self.held.split_once(closing) else {
            return false;
        };
        let (call, rest) = (call.to_owned(), rest.to_owned());
        self.read(&call, parts);
        self.held = rest;
        self.state = ReaderState::Text;
        true
    }

    fn open(&mut self, parts: &mut Vec<Part>) -> bool {
        let begins_json = || self.held.trim_start().starts_with(['{', '[']);
        let opening = self.family.opening().unwrap_or("\0");
        if let Some(place) = self.held.find(opening) {
            let before: String = self.held.drain(..place + opening.len()).collect();
            // White space around calls belongs to the format, not the text.
            text(before[..place].trim_end().to_owned(), parts);
            self.state = ReaderState::Call { is_opened: true };
            return true;
        }
        if self.state == ReaderState::Beginning && self.family != Family::Hermes && begins_json() {
            // It may still be the opening marker, which also begins with a bracket.
            if !opening.starts_with(self.held.trim_start()) {
                self.state = ReaderState::Call { is_opened: false };
            }
            return false;
        }
        // Withholds trailing white space, and text that may become the opening marker.
        let certain = certain_length(&self.held, opening);
        let kept = self.held.split_off(certain);
        let released = std::mem::replace(&mut self.held, kept);
        if !released.is_empty() {
            self.state = ReaderState::Text;
        }
        text(released, parts);
        false
    }

    /// Parses the calls of a finished text. A text without calls is emitted unchanged.
    fn read(&mut self, written: &str, parts: &mut Vec<Part>) {
        if !self.calls(calls_of(written), true, parts) {
            let opening = self.family.opening().unwrap_or_default();
            let closing = self.family.closing().unwrap_or_default();
            text(format!("{opening}{written}{closing}"), parts);
        }
    }

    /// Emits calls. Returns false if `calls` is empty or not valid.
    fn calls(
        &mut self,
        calls: Option<Vec<ToolCall>>,
        is_opened: bool,
        parts: &mut Vec<Part>,
    ) -> bool {
        let is_known = |call: &ToolCall| is_opened || self.names.contains(&call.name);
        let calls = calls.filter(|calls| !calls.is_empty() && calls.iter().all(is_known));
        let Some(calls) = calls else {
            return false;
        };
        for call in calls {
            if self.calls < self.most_calls {
                self.calls += 1;
                parts.push(Part::Call(call));
            }
        }
        true
    }

    /// Emits the calls of a truncated text. Returns false if it might not be a call.
    fn cut(&mut self, written: &str, is_opened: bool, parts: &mut Vec<Part>) -> bool {
        // Only calls follow an opening marker, even if the name is incomplete.
        self.calls(Some(cut_calls(written)), is_opened, parts) || is_opened
    }
}

fn text(text: String, parts: &mut Vec<Part>) {
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
}

/// Length of `held` without trailing white space and without a trailing prefix of `opening`, in bytes.
fn certain_length(held: &str, opening: &str) -> usize {
    let partial = held
        .char_indices()
        .map(|(place, _)| place)
        .find(|place| opening.starts_with(&held[*place..]));
    held[..partial.unwrap_or(held.len())].trim_end().len()
}

/// Parses a text that consists only of calls: objects or lists of objects, separated by white space, commas or semicolons, or names
/// followed by their arguments. Returns `None` otherwise.
fn calls_of(written: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = written.trim();
    while !rest.is_empty() {
        let named = !rest.starts_with(['{', '[']);
        let name = if named {
            let end = rest.find(['{', '['])?;
            let name = rest[..end].trim().to_owned();
            rest = rest[end..].strip_prefix("[ARGS]").unwrap_or(&rest[end..]);
            Some(name)
        } else {
            None
        };
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        rest = &rest[values.byte_offset()..];
        rest = rest.trim_start_matches([' ', '\n', '\r', '\t', ',', ';']);
        match (name, value) {
            (Some(name), Value::Object(arguments)) if !name.is_empty() => calls.push(ToolCall {
                name,
                arguments: Value::Object(arguments).to_string(),
            }),
            (None, Value::Object(call)) => calls.push(call_of(&call)?),
            (None, Value::Array(list)) => {
                for call in list {
                    calls.push(call_of(call.as_object()?)?);
                }
            }
            _ => return None,
        }
    }
    Some(calls)
}

/// Parses the calls of a truncated text: the complete ones, and the last one with its arguments so far if its name is complete.
fn cut_calls(written: &str) -> Vec<ToolCall> {
    let mut calls = Vec::new();
    let mut rest = written;
    loop {
        rest = rest.trim_start_matches([' ', '\n', '\r', '\t', ',', ';', '[']);
        let mut name = None;
        if !rest.starts_with('{') {
            let Some(end) = rest.find(['{', '[']) else {
                return calls;
            };
            name = Some(rest[..end].trim().to_owned());
            let behind = &rest[end..];
            rest = match behind.strip_prefix("[ARGS]") {
                Some(arguments) => arguments,
                None if "[ARGS]".starts_with(behind) => "",
                None => behind,
            };
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match (values.next(), name) {
            (Some(Ok(Value::Object(arguments))), Some(name)) if !name.is_empty() => {
                let arguments = Value::Object(arguments).to_string();
                calls.push(ToolCall { name, arguments });
            }
            (Some(Ok(Value::Object(call))), None) => match call_of(&call) {
                Some(call) => calls.push(call),
                None => return calls,
            },
            (Some(Ok(_)), _) => return calls,
            (_, Some(name)) if !name.is_empty() => {
                let arguments = rest.to_owned();
                calls.push(ToolCall { name, arguments });
                return calls;
            }
            _ => {
                calls.extend(cut_call(rest));
                return calls;
            }
        }
        rest = &rest[values.byte_offset()..];
    }
}

/// `{"name": "f", "arguments": {"a…`.
fn cut_call(written: &str) -> Option<ToolCall> {
    let after = |rest: &str, part: &str| rest.trim_start().strip_prefix(part).map(str::len);
    let skip = |mut rest, parts: &[&str]| {
        for part in parts {
            let length = after(rest, part)?;
            rest = &rest[rest.len() - length..];
        }
        Some(rest)
    };
    let rest = skip(written, &["{", "\"name\"", ":"])?;
    let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let name = names.next()?.ok()?;
    let rest = &rest[names.byte_offset()..];
    let arguments = ["\"arguments\"", "\"parameters\""]
        .into_iter()
        .find_map(|key| skip(rest, &[",", key, ":"]));
    let arguments = arguments.unwrap_or_default().trim().to_owned();
    Some(ToolCall { name, arguments })
}

fn call_of(object: &Map<String, Value>) -> Option<ToolCall> {
    if let Some(Value::Object(function)) = object.get("function") {
        return call_of(function);
    }
    let name = object.get("name")?.as_str()?.to_owned();
    let arguments = object.get("arguments").or_else(|| object.get("parameters"));
    let arguments = match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(written)) => {
            serde_json::from_str::<Map<String, Value>>(written).ok()?;
            written.clone()
        }
        Some(arguments @ Value::Object(_)) => arguments.to_string(),
        Some(_) => return None,
    };
    Some(ToolCall { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> Part {
        Part::Call(ToolCall {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        })
    }

    fn text_part(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    /// Parses the text in pieces of several sizes, which must all give the same parts; adjacent texts are joined.
    fn read(family: Family, parallel: bool, written: &str) -> Vec<Part> {
        let names = || BTreeSet::from(["weather".to_owned(), "time".to_owned()]);
        let mut all = Vec::new();
        for size in [1, 3, usize::MAX] {
            let mut reader = ToolReader::new(family, names(), parallel);
            let mut parts: Vec<Part> = Vec::new();
            let letters: Vec<char> = written.chars().collect();
            for piece in letters.chunks(size.min(letters.len().max(1))) {
                parts.extend(reader.push(&piece.iter().collect::<String>()));
            }
            parts.extend(reader.finish(false));
            let mut joined: Vec<Part> = Vec::new();
            for part in parts {
                match (joined.last_mut(), part) {
                    (Some(Part::Text(known)), Part::Text(more)) => known.push_str(&more),
                    (_, part) => joined.push(part),
                }
            }
            all.push(joined);
        }
        assert!(all.iter().all(|parts| *parts == all[0]), "{all:?}");
        all.remove(0)
    }

    #[test]
    fn calls_of_each_family_are_read() {
        let paris = call("weather", r#"{"city":"Paris"}"#);
        let now = call("time", "{}");
        let hermes = "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n\
                      <tool_call>{\"name\": \"time\"}</tool_call>\n";
        assert_eq!(
            read(Family::Hermes, true, hermes),
            [text_part("Let me see."), paris.clone(), now.clone()]
        );
        assert_eq!(
            read(Family::Hermes, false, hermes),
            [text_part("Let me see."), paris.clone()]
        );
        let llama = r#"{"name": "weather", "parameters": {"city": "Paris"}}"#;
        for written in [
            llama.to_owned(),
            format!("<|python_tag|>{llama}"),
            format!("\n{llama}"),
        ] {
            assert_eq!(
                read(Family::Llama, true, &written),
                std::slice::from_ref(&paris)
            );
        }
        let two = format!("{llama}; {{\"name\": \"time\", \"parameters\": {{}}}}");
        assert_eq!(
            read(Family::Llama, true, &two),
            [paris.clone(), now.clone()]
        );
        let list = r#"[{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "time", "arguments": {}}]"#;
        for written in [list.to_owned(), format!("[TOOL_CALLS] {list}")] {
            assert_eq!(
                read(Family::Mistral, true, &written),
                [paris.clone(), now.clone()]
            );
        }
        let newer = r#"[TOOL_CALLS]weather[ARGS]{"city": "Paris"}"#;
        assert_eq!(
            read(Family::Mistral, true, newer),
            std::slice::from_ref(&paris)
        );
        let nested = r#"{"type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}"#;
        assert_eq!(read(Family::Json, true, nested), [paris]);
    }

    #[test]
    fn what_is_no_call_is_text() {
        for family in [Family::Hermes, Family::Llama, Family::Mistral, Family::Json] {
            for written in [
                "",
                "hello world",
                "  two spaces  ",
                "{\"answer\": 42}",
                "[1, 2, 3]",
                "a < b and [TOOL",
                "{\"name\": \"somebody\", \"arguments\": {}}",
                "{\"name\": \"weather\", \"arguments\": {",
                "{\"name\": \"weather\", \"arguments\": 5}",
            ] {
                let wanted = match written {
                    "" => Vec::new(),
                    text => vec![text_part(text)],
                };
                assert_eq!(read(family, true, written), wanted, "{family:?}");
            }
        }
        let broken = "<tool_call>{\"name\": }</tool_call>";
        assert_eq!(read(Family::Hermes, true, broken), [text_part(broken)]);
        let mentioned = "<tool_call> is a tag";
        assert_eq!(
            read(Family::Hermes, true, mentioned),
            [text_part(mentioned)]
        );
        let open = "<tool_call>{\"name\": \"weather\"}";
        assert_eq!(read(Family::Hermes, true, open), [call("weather", "{}")]);
    }

    /// Truncates a call of each family after every character: markers never become text, and the arguments only grow.
    #[test]
    fn a_call_that_is_cut_is_no_text_and_has_the_arguments_that_came() {
        for (family, opening, call, closing) in [
            (
                Family::Hermes,
                "<tool_call>",
                r#"{"name": "weather", "arguments": {"city": "Rome"}}"#,
                "\n</tool_call>",
            ),
            (
                Family::Mistral,
                "[TOOL_CALLS]",
                r#" [{"name": "weather", "arguments": {"city": "Rome"}}"#,
                "]",
            ),
            (
                Family::Mistral,
                "[TOOL_CALLS]",
                r#"weather[ARGS]{"city": "Rome"}"#,
                "",
            ),
            (
                Family::Llama,
                "<|python_tag|>",
                r#"{"name": "weather", "parameters": {"city": "Rome"}}"#,
                "",
            ),
        ] {
            let written = format!("{opening}{call}{closing}");
            let mut arguments = String::new();
            for end in 1..=written.len() {
                let names = BTreeSet::from(["weather".to_owned()]);
                let mut reader = ToolReader::new(family, names, true);
                let mut parts = reader.push(&written[..end]);
                parts.extend(reader.finish(true));
                let cut = &written[..end];
                match parts.as_slice() {
                    [] => assert_eq!(arguments, "", "{cut}"),
                    [Part::Call(call)] => {
                        let is_more =
                            call.arguments.len() >= arguments.len() || arguments.contains("Rome\"");
                        assert!(call.name == "weather" && is_more, "{cut}");
                        arguments.clone_from(&call.arguments);
                    }
                    other => panic!("{cut}: {other:?}"),
                }
            }
            assert_eq!(arguments, r#"{"city":"Rome"}"#, "{written}");
        }
        let written = r#"{"name": "weather", "parameters": {"ci"#;
        let mut reader =
            ToolReader::new(Family::Llama, BTreeSet::from(["weather".to_owned()]), true);
        assert_eq!(reader.push(written), []);
        assert_eq!(reader.finish(true), [call("weather", r#"{"ci"#)]);
    }

    #[test]
    fn text_is_not_held_longer_than_needed() {
        let mut reader = ToolReader::new(Family::Hermes, BTreeSet::new(), true);
        assert_eq!(reader.push("hello "), [text_part("hello")]);
        assert_eq!(reader.push("w<b"), [text_part(" w<b")]);
        assert_eq!(reader.push("<tool"), []);
        assert_eq!(reader.push("s"), [text_part("<tools")]);
    }
}
