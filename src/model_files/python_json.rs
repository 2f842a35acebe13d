//! Reads JSON as written by Python's `json.dump`, which writes some numbers as the bare words `NaN`, `Infinity` and `-Infinity`.

use std::borrow::Cow;

const WORDS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Replaces numbers that JSON does not support by `null`. Line numbers stay the same.
pub fn without_bare_words(text: &str) -> Cow<'_, str> {
    if !text.contains("NaN") && !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 16);
    let (mut copied, mut at) = (0, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        let byte = bytes[at];
        if in_string {
            in_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
        } else if byte == b'"' {
            in_string = true;
        } else if let Some(word) = WORDS
            .iter()
            .find(|word| bytes[at..].starts_with(word.as_bytes()))
        {
            written.push_str(&text[copied..at]);
            written.push_str("null");
            at += word.len();
            copied = at;
            continue;
        }
        at += 1;
    }
    written.push_str(&text[copied..]);
    Cow::Owned(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_infinities_and_nans_become_null_and_strings_are_unchanged() {
        for (text, expected) in [
            (r#"{"a": [0.0, Infinity]}"#, r#"{"a": [0.0, null]}"#),
            (r#"{"a": -Infinity, "b": NaN}"#, r#"{"a": null, "b": null}"#),
            (r#"{"NaN": "Infinity"}"#, r#"{"NaN": "Infinity"}"#),
            (r#"["a\"NaN", NaN]"#, r#"["a\"NaN", null]"#),
            (r#"["ends with \\", NaN]"#, r#"["ends with \\", null]"#),
            ("[1, -2, \"é\", Infinity", "[1, -2, \"é\", null"),
            ("{}", "{}"),
        ] {
            assert_eq!(without_bare_words(text), expected);
        }
    }
}
