//! Rewrites parsers' messages in plain words: what was found, and what to write. Texts from the input are not repeated, because
//! they may be secrets.

/// Phrases in the messages of the YAML and JSON parsers, with an explanation. The first match counts.
const SYNTAX: [(&str, &str); 48] = [
    ("tabs disallowed", TAB),
    ("tab cannot be used", TAB),
    ("found a tab", TAB),
    ("cannot start with a tab", TAB),
    ("unclosed bracket", BRACKET),
    ("parsing a flow", BRACKET),
    ("parsing an implicit flow", BRACKET),
    ("parsing a list", BRACKET),
    ("parsing an object", BRACKET),
    ("expected `,` or", COMMA),
    ("misplaced bracket", OPENING),
    ("mismatched bracket", OPENING),
    ("unclosed quote", QUOTE),
    ("multiline quoted", QUOTE),
    ("EOF while parsing a string", QUOTE),
    (
        "EOF while parsing",
        "the text ends where a value is expected; a part of it is missing",
    ),
    ("control character", QUOTE),
    ("trailing content after", ONE_QUOTE),
    ("escape", ESCAPE),
    ("surrogate", ESCAPE),
    ("unicode code point", ESCAPE),
    ("expected key", INDENTATION),
    ("simple key", INDENTATION),
    ("indentation", INDENTATION),
    ("wrongly indented", INDENTATION),
    ("indent their content", INDENTATION),
    (
        "comment intercepting",
        "a comment interrupts a multi-line text; move it above the key",
    ),
    (
        "comments must be separated",
        "a space is missing before `#`; put the text into quotes if the `#` belongs to it",
    ),
    ("values are not allowed", COLON),
    ("keys are not allowed", COLON),
    ("':'", COLON),
    ("expected `:`", "a `:` is missing after the key"),
    ("sequence entries are not allowed", DASH),
    ("block sequence entry", DASH),
    ("'-'", DASH),
    (
        "unknown anchor",
        "`*name` refers to a part of the file marked with `&name`, which does not exist; put a text that begins with `*` into quotes",
    ),
    (
        "directive",
        "a line cannot begin with `%` here; put the text into quotes",
    ),
    ("character", CHARACTER),
    ("key must be a string", KEY),
    ("expected `\"`", KEY),
    (
        "trailing comma",
        "there is a comma after the last entry; remove it",
    ),
    (
        "expected value",
        "a value is expected here: a text in double quotes, a number, true, false, null, a list or an object; JSON has no comments",
    ),
    (
        "expected ident",
        "true, false or null is expected here; put a text into double quotes",
    ),
    (
        "trailing characters",
        "the document has ended before this text; remove it",
    ),
    (
        "recursion limit",
        "lists and keys are nested too deeply here",
    ),
    ("number out of range", "the number is too large"),
    (
        "invalid number",
        "this is not a number; put a text into quotes",
    ),
    (
        "not valid UTF-8",
        "the text is not UTF-8; save the file as UTF-8",
    ),
];

/// Longer texts may be secret keys and are not repeated.
const REPEATED_BYTES_MAX: usize = 16;

const TAB: &str = "there is a tab here; indent with spaces";
const BRACKET: &str = "a bracket is not closed: each `[` needs its `]` and each `{` its `}`, with commas between the entries";
const COMMA: &str =
    "a comma between two entries, or a closing bracket, is missing before this place";
const OPENING: &str = "this closing bracket has no opening bracket";
const QUOTE: &str = "a quotation mark is not closed";
const ONE_QUOTE: &str =
    "there is text after the closing quotation mark; put the entire text into one pair of quotes";
const ESCAPE: &str = "a `\\` in double quotes does not begin a valid escape; write `\\\\`, or use single quotes in YAML";
const INDENTATION: &str = "the indentation is wrong, or a `:` is missing: keys of one section begin in the same column, as `key: value`";
const COLON: &str = "a `:` is not allowed here: begin each key on its own line, and put a text with `:` into quotes";
const DASH: &str = "a list's `-` is not allowed here: each entry begins on its own line, indented below the key of the list";
const CHARACTER: &str = "values cannot begin with this character; put the text into quotes";
const KEY: &str = "a key is expected here, in double quotes";

/// Rewrites a message about a value. Messages of this project's own types stay unchanged.
pub(crate) fn of_value(message: &str) -> String {
    of_type(message).unwrap_or_else(|| message.to_owned())
}

/// Rewrites a parser's own message; unknown messages stay unchanged.
pub(crate) fn of_parser(message: &str) -> String {
    if let Some(text) = of_type(message) {
        return text;
    }
    let known = SYNTAX.iter().find(|(words, _)| message.contains(words));
    known.map_or_else(|| message.to_owned(), |(_, plain)| (*plain).to_owned())
}

/// Rewrites a message about a value of the wrong type.
fn of_type(message: &str) -> Option<String> {
    if message.contains("untagged enum") {
        return Some("the value has none of the allowed forms".to_owned());
    }
    let kinds = ["invalid type: ", "invalid value: "];
    if let Some(rest) = kinds.iter().find_map(|kind| message.strip_prefix(kind)) {
        let (found, expected) = rest.rsplit_once(", expected ")?;
        let wanted = wanted(expected);
        return Some(match stands(found, number_wanted(expected).is_some()) {
            Some(found) => format!("{wanted} is expected here, not {found}"),
            None => format!("the value is missing; {wanted} is expected"),
        });
    }
    let rest = message.strip_prefix("invalid length ")?;
    let (length, expected) = rest.split_once(", expected ")?;
    let wanted = wanted(expected);
    Some(format!(
        "{length} entries are given, but {wanted} is expected"
    ))
}

/// Describes the value that was found; `None` if it is missing. A text is only repeated where a number or boolean is expected and
/// it is too short for a secret key.
fn stands(found: &str, is_for_number: bool) -> Option<String> {
    let kind = found.split([' ', '`', '"']).next().unwrap_or_default();
    let value = found.split('`').nth(1);
    let text = found.strip_prefix("string \"");
    let text = text.and_then(|text| text.strip_suffix('"'));
    let is_short = |text: &&str| text.len() <= REPEATED_BYTES_MAX && !text.contains('\\');
    if let Some(text) = text.filter(|text| is_for_number && is_short(text)) {
        return Some(format!("`{text}`"));
    }
    Some(match (kind, value) {
        ("null" | "unit" | "Option", _) => return None,
        ("boolean" | "integer" | "floating", Some(value)) => format!("`{value}`"),
        ("map" | "struct", _) => "an object of keys".to_owned(),
        ("sequence" | "tuple", _) => "a list".to_owned(),
        ("string" | "character", _) => "a text".to_owned(),
        _ => "something else".to_owned(),
    })
}

/// Describes the expected type.
fn wanted(expected: &str) -> String {
    if let Some(wanted) = number_wanted(expected) {
        return wanted.to_owned();
    }
    let first = expected.split(' ').next().unwrap_or_default();
    match (expected, first) {
        ("unit" | "null", _) => "nothing",
        ("a string" | "a borrowed string" | "string" | "a character", _) => "a text",
        ("a sequence" | "sequence", _) | (_, "tuple") => "a list such as [one, two]",
        ("a map" | "map" | "an object", _) | (_, "struct") => "an object of keys (`key: value`)",
        ("string or map" | "variant identifier", _) | (_, "enum" | "variant") => "one plain word",
        (own, _) => own,
    }
    .to_owned()
}

/// Describes a Rust number type.
pub(crate) fn number_wanted(ty: &str) -> Option<&'static str> {
    match ty {
        "u8" | "u16" | "u32" | "u64" | "usize" => Some("a non-negative whole number"),
        "i8" | "i16" | "i32" | "i64" | "isize" => Some("a whole number"),
        "f32" | "f64" | "floating point" => Some("a number without a unit, such as 40"),
        "bool" | "a boolean" => Some("true or false"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_errors_are_reported_in_plain_language() {
        for (message, text) in [
            (
                "invalid type: map, expected a sequence",
                "a list such as [one, two] is expected here, not an object of keys",
            ),
            (
                "invalid type: sequence, expected struct PoolConfig",
                "an object of keys (`key: value`) is expected here, not a list",
            ),
            (
                "invalid type: integer `600`, expected a duration such as `10m`",
                "a duration such as `10m` is expected here, not `600`",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "a non-negative whole number is expected here, not `-1`",
            ),
            (
                "invalid type: null, expected a string",
                "the value is missing; a text is expected",
            ),
            (
                "invalid length 3, expected tuple of 2 elements",
                "3 entries are given, but a list such as [one, two] is expected",
            ),
        ] {
            assert_eq!(of_value(message), text);
        }
    }

    #[test]
    fn a_quoted_text_value_is_not_repeated_in_the_message() {
        let message = "invalid type: string \"sk-sesame, expected\", expected a map";
        let text = of_value(message);
        assert!(!text.contains("sesame"), "{text}");
        assert!(text.ends_with("here, not a text"), "{text}");
        let message = "invalid type: string \"sk-sesame-0123456789\", expected i64";
        assert!(!of_value(message).contains("sesame"));
        let message = "invalid type: string \"many\", expected i64";
        assert!(of_value(message).ends_with("here, not `many`"));
    }

    #[test]
    fn syntax_errors_are_reported_with_advice() {
        for (message, part) in [
            (
                "while parsing a block mapping, did not find expected key",
                "indentation",
            ),
            ("mapping values are not allowed in this context", "quotes"),
            (
                "tabs disallowed within this context (block indentation)",
                "spaces",
            ),
            ("unclosed bracket '['", "not closed"),
            ("EOF while parsing an object", "not closed"),
            ("EOF while parsing a string", "quotation mark"),
            ("expected `,` or `}`", "comma"),
            ("trailing comma", "remove it"),
            ("key must be a string", "double quotes"),
            ("while parsing node, found unknown anchor", "quotes"),
            ("unexpected character: `@`", "quotes"),
        ] {
            let text = of_parser(message);
            assert!(text.contains(part), "{message}: {text}");
            assert_ne!(text, message);
        }
        let own = "a control character is not allowed in a name";
        assert_eq!(of_value(own), own);
    }
}
