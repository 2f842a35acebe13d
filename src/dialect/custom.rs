//! Represents tools with plain text input (`custom`) as functions with a single string parameter, and decodes their calls into that
//! text, also while it streams. Independent of any API's response form.

use serde_json::{Map, Value, json};

use super::grammar::{GrammarError, checked};
use crate::fields::RequestFields;
use api_types::error::Failure;

/// The function's only parameter.
const INPUT: &str = "input";
/// Maximum number of custom tools in a request; each costs many times the bytes of its name. OpenAI allows 128 tools.
const TOOLS_MAX: usize = 512;
/// Maximum total length of the regular expressions of a request. Bounds the time to check them.
const PATTERN_BYTES_MAX: usize = 128 << 10;
/// Maximum white space before the input of a call. A call with more has another form.
const BEFORE_INPUT_MAX: usize = 64;

/// The function that represents a custom tool.
#[derive(Debug)]
pub(super) struct CustomFunction {
    pub function: Value,
    /// True if the grammar is only described to the model, and not enforced.
    pub is_unheld: bool,
}

/// The custom tools of one request.
#[derive(Debug, Default)]
pub(super) struct CustomTools {
    count: usize,
    /// Total length of the patterns.
    pattern_bytes: usize,
}

impl CustomTools {
    /// Checks a regular expression and counts it toward [`PATTERN_BYTES_MAX`].
    fn pattern(&mut self, expression: &str) -> Result<String, GrammarError> {
        self.pattern_bytes += expression.len();
        if self.pattern_bytes > PATTERN_BYTES_MAX {
            return Err(GrammarError::Unsupported);
        }
        checked(expression)
    }
}

/// Reads a tool's `description` and `format`, and writes the tool as a function named `name`.
pub(super) fn function(
    tool: &mut RequestFields,
    name: &str,
    tools: &mut CustomTools,
) -> Result<CustomFunction, Failure> {
    tools.count += 1;
    if tools.count > TOOLS_MAX {
        let message = format!("at most {TOOLS_MAX} tools of type custom are allowed; remove some");
        return Err(Failure::invalid("tools".to_owned(), message));
    }
    let description = tool.text("description")?;
    let mut input =
        json!({"type": "string", "description": "the input of this tool, as plain text"});
    let mut about = vec![format!(
        "Call it with one argument, `{INPUT}`: the text itself."
    )];
    let mut is_unheld = false;
    if let Some((syntax, definition, place)) = format_of(tool)? {
        about.push(format!(
            "The text follows this grammar ({syntax}):\n{definition}"
        ));
        // A Lark grammar describes more than a pattern can.
        let pattern = if syntax == "regex" {
            tools.pattern(&definition)
        } else {
            Err(GrammarError::Unsupported)
        };
        match pattern {
            Ok(text) => input["pattern"] = json!(format!("^({text})$")),
            Err(GrammarError::Unsupported) => is_unheld = true,
            Err(GrammarError::Invalid(why)) => {
                let message = format!("`{place}` is not a valid regular expression: {why}");
                return Err(Failure::invalid(place, message));
            }
        }
    }
    let about = description.into_iter().chain(about);
    let parameters = json!({"type": "object", "properties": {INPUT: input}, "required": [INPUT],
        "additionalProperties": false});
    Ok(CustomFunction {
        function: json!({"name": name, "description": about.collect::<Vec<_>>().join("\n\n"),
            "parameters": parameters, "strict": !is_unheld}),
        is_unheld,
    })
}

/// Reads a tool's format: `None` for `text`, or a grammar's syntax, definition and path.
fn format_of(tool: &mut RequestFields) -> Result<Option<(&'static str, String, String)>, Failure> {
    let Some(mut format) = tool.object("format")? else {
        return Ok(None);
    };
    let kind = format.one_of("type", &["text", "grammar"])?;
    if kind != Some("grammar") {
        format.finish()?;
        return Ok(None);
    }
    // Chats nest the grammar one level deeper than responses.
    let mut grammar = match format.object("grammar")? {
        None => format,
        Some(deeper) => {
            format.finish()?;
            deeper
        }
    };
    let syntax = grammar.one_of("syntax", &["lark", "regex"])?;
    let syntax = syntax.ok_or_else(|| grammar.missing("syntax"))?;
    let definition = grammar.need_text("definition")?;
    let place = grammar.path("definition");
    grammar.finish()?;
    Ok(Some((syntax, definition, place)))
}

/// The function arguments for an input.
pub(super) fn arguments(input: &str) -> String {
    let mut object = Map::new();
    object.insert(INPUT.to_owned(), json!(input));
    Value::Object(object).to_string()
}

/// The input of a complete call.
pub(super) fn input_of(arguments: &str) -> String {
    let mut text = InputText::default();
    let begun = text.push(arguments);
    begun + &text.finish()
}

/// Decodes the input of a streamed call: each piece of the arguments yields a piece of the text.
#[derive(Clone, Debug, Default)]
pub(super) struct InputText {
    /// Arguments that are not decoded yet.
    held: String,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Before,
    Within,
    Behind,
    /// The arguments have another form and are decoded once complete.
    Other,
}

impl InputText {
    /// Adds a piece of the arguments and returns the text it completes.
    pub fn push(&mut self, piece: &str) -> String {
        if self.state == State::Behind {
            return String::new();
        }
        self.held.push_str(piece);
        if self.state == State::Before {
            match begun(&self.held) {
                Some(Some(place)) => {
                    self.held.drain(..place);
                    self.state = State::Within;
                }
                Some(None) if self.held.len() <= BEFORE_INPUT_MAX => {}
                _ => self.state = State::Other,
            }
        }
        match self.state {
            State::Within => self.decode(),
            _ => String::new(),
        }
    }

    /// Returns the remaining text at the end of the call.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.state, State::Behind) {
            State::Behind | State::Within => String::new(),
            State::Before | State::Other => match serde_json::from_str(&held) {
                Ok(Value::Object(fields)) => match fields.get(INPUT).or(fields.values().next()) {
                    Some(Value::String(text))
                        if fields.len() == 1 || fields.contains_key(INPUT) =>
                    {
                        text.clone()
                    }
                    _ if fields.is_empty() => String::new(),
                    _ => held,
                },
                Ok(Value::String(text)) => text,
                // The model wrote the text without JSON.
                _ => held,
            },
        }
    }

    /// Decodes the complete part of a JSON string whose opening quote has been removed.
    fn decode(&mut self) -> String {
        let mut text = String::new();
        let mut at = 0;
        while let Some(length) = self.held[at..].find(['"', '\\']) {
            text.push_str(&self.held[at..at + length]);
            at += length;
            if self.held.as_bytes()[at] == b'"' {
                self.held.clear();
                self.state = State::Behind;
                return text;
            }
            match escape(&self.held[at..]) {
                Some((letter, length)) => {
                    text.push(letter);
                    at += length;
                }
                // The rest of the escape has not arrived.
                None => {
                    self.held.drain(..at);
                    return text;
                }
            }
        }
        text.push_str(&self.held[at..]);
        self.held.clear();
        text
    }
}

/// Finds the start of the text in `{"input": "…`. `Some(None)` means that more input is needed.
fn begun(arguments: &str) -> Option<Option<usize>> {
    let mut rest = arguments;
    for part in ["{", "\"input\"", ":", "\""] {
        rest = rest.trim_start();
        match rest.strip_prefix(part) {
            Some(behind) => rest = behind,
            None if part.starts_with(rest) => return Some(None),
            None => return None,
        }
    }
    Some(Some(arguments.len() - rest.len()))
}

/// Decodes the escape at the start of a text and returns its character and length in bytes; `None` if more input is needed.
fn escape(text: &str) -> Option<(char, usize)> {
    let bytes = text.as_bytes();
    let letter = match bytes.get(1)? {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => return unicode(bytes),
        other if other.is_ascii() => char::from(*other),
        // An unnecessary escape.
        _ => {
            let letter = text[1..].chars().next()?;
            return Some((letter, 1 + letter.len_utf8()));
        }
    };
    Some((letter, 2))
}

/// `\u0041`, or a surrogate pair.
fn unicode(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| -> Option<Option<u32>> {
        let digits = bytes.get(at..at + 4)?;
        let digits = std::str::from_utf8(digits).ok();
        Some(digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()))
    };
    let lost = char::REPLACEMENT_CHARACTER;
    let Some(first) = unit(2)? else {
        return Some((lost, 2));
    };
    if !(0xD800..0xDC00).contains(&first) {
        return Some((char::from_u32(first).unwrap_or(lost), 6));
    }
    match bytes.get(6..8) {
        None if bytes.len() < 8 && b"\\u".starts_with(&bytes[6..]) => None,
        Some(b"\\u") => match unit(8)? {
            Some(second) if (0xDC00..0xE000).contains(&second) => {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                Some((char::from_u32(code).unwrap_or(lost), 12))
            }
            _ => Some((lost, 6)),
        },
        _ => Some((lost, 6)),
    }
}

#[cfg(test)]
mod tests;
