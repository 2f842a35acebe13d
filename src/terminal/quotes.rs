//! Multi-line texts between `"""`. Pure.

use super::command::is_command;

pub const QUOTES: &str = "\"\"\"";

/// Returns the text before and after `"""` if the line opens a multi-line text: at its beginning, or anywhere in a command.
pub fn opens(line: &str) -> Option<(&str, &str)> {
    if is_command(line) {
        line.split_once(QUOTES)
    } else {
        Some(("", line.trim_start().strip_prefix(QUOTES)?))
    }
}

/// Removes a trailing `"""`. Returns true if there was one.
pub fn closes(text: &mut String) -> bool {
    let Some(inner) = text.trim_end().strip_suffix(QUOTES) else {
        return false;
    };
    let length = inner.len();
    text.truncate(length);
    true
}

/// Returns true if the text continues on further lines.
pub fn is_open(text: &str) -> bool {
    opens(text).is_some_and(|(_, inner)| !closes(&mut inner.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triple_quotes_delimit_a_multiline_prompt() {
        assert_eq!(opens("  \"\"\"a"), Some(("", "a")));
        assert_eq!(opens("say \"\"\"a"), None);
        assert_eq!(opens("/system \"\"\"a"), Some(("/system ", "a")));
        for (text, inner) in [
            ("a\"\"\" ", Some("a")),
            ("\"\"\"", Some("")),
            ("a", None),
            ("a\"\"\"b", None),
        ] {
            let mut text = text.to_owned();
            assert_eq!(closes(&mut text).then_some(text.as_str()), inner);
        }
    }

    #[test]
    fn a_quoted_text_is_open_until_its_closing_quotes() {
        for open in ["\"\"\"", "\"\"\"a\nb", "/system \"\"\"a"] {
            assert!(is_open(open), "{open}");
        }
        for whole in [
            "a",
            "\"\"\"\"\"\"",
            "\"\"\"a\nb\"\"\"",
            "/system a",
            "/etc/x \"\"\"",
        ] {
            assert!(!is_open(whole), "{whole}");
        }
    }
}
