//! Tools whose input is a text and no JSON (`custom`): for the engine each is a function with one text, and a call of it is
//! read back as that text, also while it arrives in pieces. Knows no API's form of an answer.

use serde_json::{Map, Value, json};

use super::grammar::{self, Expression, GrammarError};
use super::taken::Taken;
use crate::error::Failure;

/// The one parameter of the function.
const INPUT: &str = "input";
/// White space before the text of a call; more is no call of this form.
const BEFORE_INPUT_MAX: usize = 64;

/// The function for a custom tool.
#[derive(Debug)]
pub(super) struct CustomFunction {
    pub function: Value,
    /// Its grammar is described to the model, and nothing holds the model to it.
    pub is_unheld: bool,
    /// Its rules use themselves, and the model is constrained to texts in which they are nested less deeply.
    pub is_bounded: bool,
}

/// Reads `description` and `format` of a tool, and writes it as a function of this name.
pub(super) fn function(tool: &mut Taken, name: &str) -> Result<CustomFunction, Failure> {
    let description = tool.text("description")?;
    let mut input =
        json!({"type": "string", "description": "the input of this tool, as plain text"});
    let mut about = vec![format!(
        "Call it with one argument, `{INPUT}`: the text itself."
    )];
    let (mut is_unheld, mut is_bounded) = (false, false);
    if let Some((syntax, definition, place)) = format_of(tool)? {
        about.push(format!(
            "The text follows this grammar ({syntax}):\n{definition}"
        ));
        let expression = match syntax {
            "lark" => grammar::expression(&definition),
            _ => grammar::checked(&definition).map(|text| Expression { text, nested: None }),
        };
        match expression {
            Ok(Expression { text, nested }) => {
                input["pattern"] = json!(format!("^({text})$"));
                is_bounded = nested.is_some();
                about.extend(nested.map(|times| {
                    format!(
                        "A rule that uses itself may be nested in itself {times} times at most."
                    )
                }));
            }
            Err(GrammarError::NotRegular) => is_unheld = true,
            Err(GrammarError::Wrong(why)) => {
                let message = format!("`{place}` is no grammar of the syntax {syntax}: {why}");
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
        is_bounded,
    })
}

/// `text`, or a grammar: its syntax, its definition and where that stands.
fn format_of(tool: &mut Taken) -> Result<Option<(&'static str, String, String)>, Failure> {
    let Some(mut format) = tool.object("format")? else {
        return Ok(None);
    };
    let kind = format.one_of("type", &["text", "grammar"])?;
    if kind != Some("grammar") {
        format.finish()?;
        return Ok(None);
    }
    // Chats have it one level deeper than responses.
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

/// The arguments of the function for an input.
pub(super) fn arguments(input: &str) -> String {
    let mut object = Map::new();
    object.insert(INPUT.to_owned(), json!(input));
    Value::Object(object).to_string()
}

/// The input of a call that came whole.
pub(super) fn input_of(arguments: &str) -> String {
    let mut text = InputText::default();
    let begun = text.push(arguments);
    begun + &text.finish()
}

/// The input of a call that comes in pieces: each piece of the arguments gives a piece of the text.
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
    /// They have another form; all of them are waited for.
    Other,
}

impl InputText {
    /// Takes a piece of the arguments, and gives what it says of the text.
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

    /// The rest, when no more comes.
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
                // A model that has written the text itself.
                _ => held,
            },
        }
    }

    /// Decodes what is certain of a JSON string whose opening quote is gone.
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
                // The rest of it has not come.
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

/// Where the text of `{"input": "…` begins; `Some(None)`: it may still come.
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

/// The letter of an escape at the beginning of a text, and the bytes that it takes; `None`: more has to come.
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
        // A letter that is escaped in vain.
        _ => {
            let letter = text[1..].chars().next()?;
            return Some((letter, 1 + letter.len_utf8()));
        }
    };
    Some((letter, 2))
}

/// `\u0041`, or two of these for one letter.
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
mod tests {
    use super::*;

    fn of(tool: Value) -> Result<CustomFunction, Failure> {
        let mut tool = Taken::of("tools[0]", tool)?;
        let made = function(&mut tool, "edit")?;
        tool.finish()?;
        Ok(made)
    }

    /// Whatever the cuts, the text is the same.
    fn decoded(arguments: &str) -> String {
        let whole = input_of(arguments);
        let letters: Vec<char> = arguments.chars().collect();
        for size in [1, 2, 5] {
            let mut text = InputText::default();
            let mut all = String::new();
            for piece in letters.chunks(size) {
                all += &text.push(&piece.iter().collect::<String>());
            }
            all += &text.finish();
            assert_eq!(all, whole, "{arguments} in pieces of {size}");
        }
        whole
    }

    #[test]
    fn the_text_of_a_call_is_read_whole_and_in_pieces() {
        for text in [
            "",
            "a",
            "*** Begin Patch\n+\"é\"\t\\ \u{1f600}\n",
            "{\"input\": 1}",
        ] {
            assert_eq!(decoded(&arguments(text)), text);
        }
        let escaped = "{ \"input\" : \"\\u0041\\ud83d\\ude00\\/\\ud83d.\\u00e9\" } ";
        assert_eq!(decoded(escaped), "A\u{1f600}/\u{fffd}.é");
    }

    #[test]
    fn a_call_of_another_form_gives_what_there_is() {
        for (arguments, text) in [
            ("{\"patch\": \"a\"}", "a"),
            ("{\"patch\": \"a\", \"input\": \"b\"}", "b"),
            ("{\"a\": 1, \"b\": 2}", "{\"a\": 1, \"b\": 2}"),
            ("*** Begin Patch", "*** Begin Patch"),
            ("\"a\"", "a"),
            ("{}", ""),
            // Cut off by its limit.
            ("{\"input\": \"a\\u00", "a"),
        ] {
            assert_eq!(decoded(arguments), text, "{arguments}");
        }
    }

    #[test]
    fn a_custom_tool_is_a_function_with_one_text() {
        let made = of(json!({"description": "Edits."})).unwrap();
        assert_eq!(made.function["parameters"]["required"], json!(["input"]));
        let about = made.function["description"].as_str().unwrap();
        assert!(
            about.starts_with("Edits.") && about.contains("`input`"),
            "{about}"
        );
        let grammar = json!({"type": "grammar", "syntax": "regex", "definition": "a+"});
        let made = of(json!({"format": grammar})).unwrap();
        let input = &made.function["parameters"]["properties"]["input"];
        assert_eq!(
            (&input["pattern"], made.is_unheld),
            (&json!("^(a+)$"), false)
        );
        assert_eq!(made.function["strict"], true);
        let nested = json!({"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: \"a\" | \"(\" start \")\""}});
        let made = of(json!({"format": nested})).unwrap();
        let input = &made.function["parameters"]["properties"]["input"];
        assert!(made.is_bounded && !made.is_unheld && input["pattern"].is_string());
        let about = made.function["description"].as_str().unwrap();
        assert!(about.contains("nested in itself 6 times"), "{about}");
        let endless =
            json!({"type": "grammar", "syntax": "lark", "definition": "start: \"(\" start \")\""});
        let made = of(json!({"format": endless})).unwrap();
        let input = &made.function["parameters"]["properties"]["input"];
        assert!(made.is_unheld && input.get("pattern").is_none());
    }

    #[test]
    fn a_format_that_is_none_is_named() {
        for (format, field) in [
            (json!({"type": "xml"}), "tools[0].format.type"),
            (
                json!({"type": "grammar", "definition": "a"}),
                "tools[0].format.syntax",
            ),
            (
                json!({"type": "grammar", "syntax": "lark"}),
                "tools[0].format.definition",
            ),
            (
                json!({"type": "grammar", "syntax": "lark", "definition": "start: missing"}),
                "tools[0].format.definition",
            ),
            (
                json!({"type": "grammar", "syntax": "regex", "definition": "("}),
                "tools[0].format.definition",
            ),
        ] {
            let failure = of(json!({"format": format})).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(field));
        }
    }
}
