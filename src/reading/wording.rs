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
        "a comment stands in the middle of a text of several lines; move it above the key",
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
        "`*name` stands for a part of the file that is marked with `&name`, and there is none; put a text that begins with `*` into quotes",
    ),
    (
        "directive",
        "a line that begins with `%` is not understood here; put the text into quotes",
    ),
    ("character", CHARACTER),
    ("key must be a string", KEY),
    ("expected `\"`", KEY),
    (
        "trailing comma",
        "a comma stands after the last entry; remove it",
    ),
    (
        "expected value",
        "a value is expected here: a text in double quotes, a number, true, false, null, a list or an object; JSON has no comments",
    ),
    (
        "expected ident",
        "true, false or null is probably meant here; put a text into double quotes",
    ),
    (
        "trailing characters",
        "something follows the end of the document; remove it",
    ),
    ("recursion limit", "lists and keys are nested too deep here"),
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

const TAB: &str = "a tab stands here; indent with spaces";
const BRACKET: &str = "a bracket is not closed: each `[` needs its `]` and each `{` its `}`, with commas between the entries";
const COMMA: &str =
    "a comma between two entries, or a closing bracket, is missing before this place";
const OPENING: &str = "a closing bracket stands here that does not belong to an opening one";
const QUOTE: &str = "a quotation mark is not closed";
const ONE_QUOTE: &str =
    "something follows the closing quotation mark; put the whole text into one pair of quotes";
const ESCAPE: &str = "a `\\` in double quotes is not followed by something that it can stand before; write `\\\\`, or use single quotes in YAML";
const INDENTATION: &str = "the line is indented wrongly, or a `:` is missing: keys of one section begin in the same column, as `key: value`";
const COLON: &str = "a `:` stands where no key can be: begin each key on its own line, and put a text with `:` into quotes";
const DASH: &str = "a `-` of a list stands where none can be: each entry begins on its own line, indented below the key of the list";
const CHARACTER: &str = "no value can begin with this character; put the text into quotes";
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
        return Some("the value has none of the forms that are possible here".to_owned());
    }
    let kinds = ["invalid type: ", "invalid value: "];
    if let Some(rest) = kinds.iter().find_map(|kind| message.strip_prefix(kind)) {
        let (found, expected) = rest.rsplit_once(", expected ")?;
        let wanted = wanted(expected);
        return Some(match stands(found, number_wanted(expected).is_some()) {
            Some(found) => format!("{found} stands here, and {wanted} is expected"),
            None => format!("the value is missing; {wanted} is expected"),
        });
    }
    let rest = message.strip_prefix("invalid length ")?;
    let (length, expected) = rest.split_once(", expected ")?;
    let wanted = wanted(expected);
    Some(format!(
        "{length} entries stand here, and {wanted} is expected"
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
        "u8" | "u16" | "u32" | "u64" | "usize" => Some("a whole number that is not negative"),
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
    fn types_are_told_in_plain_words() {
        for (message, text) in [
            (
                "invalid type: map, expected a sequence",
                "an object of keys stands here, and a list such as [one, two] is expected",
            ),
            (
                "invalid type: sequence, expected struct PoolConfig",
                "a list stands here, and an object of keys (`key: value`) is expected",
            ),
            (
                "invalid type: integer `600`, expected a duration such as `10m`",
                "`600` stands here, and a duration such as `10m` is expected",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "`-1` stands here, and a whole number that is not negative is expected",
            ),
            (
                "invalid type: null, expected a string",
                "the value is missing; a text is expected",
            ),
            (
                "invalid length 3, expected tuple of 2 elements",
                "3 entries stand here, and a list such as [one, two] is expected",
            ),
        ] {
            assert_eq!(of_value(message), text);
        }
    }

    #[test]
    fn a_text_that_was_found_is_not_repeated() {
        let message = "invalid type: string \"sk-sesame, expected\", expected a map";
        let text = of_value(message);
        assert!(!text.contains("sesame"), "{text}");
        assert!(text.starts_with("a text stands here"), "{text}");
        let message = "invalid type: string \"sk-sesame-0123456789\", expected i64";
        assert!(!of_value(message).contains("sesame"));
        let message = "invalid type: string \"many\", expected i64";
        assert!(of_value(message).starts_with("`many` stands here"));
    }

    #[test]
    fn syntax_is_told_with_what_to_write() {
        for (message, part) in [
            (
                "while parsing a block mapping, did not find expected key",
                "indented",
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
