//! Formats Ray's messages, which are Python tracebacks with colours, as lines for users.

/// Longer messages lose their beginning, because the cause is at the end.
const MESSAGE_CHARACTERS: usize = 600;
/// Text at the end of each wrong field of a configuration, followed by an address.
const LINK: &str = "For further information visit";
const ESCAPE: char = '\u{1b}';

/// The error at the end of a traceback.
pub fn last_line(text: &str) -> String {
    let text = plain(text);
    let mut lines = text.lines().rev().map(one_line);
    let found = lines.find(|line| !line.is_empty() && line != ".");
    found.unwrap_or_else(|| "it says nothing".to_owned())
}

/// The message of a refusal: the error of a traceback, or all lines of a list of wrong fields.
pub(super) fn refusal(text: &str) -> String {
    let is_link = |line: &&str| line.trim_start().starts_with(LINK);
    if !text.lines().any(|line| is_link(&line)) {
        return last_line(text);
    }
    let lines = text.lines().filter(|line| !is_link(line)).map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    // The link may follow the last field on the same line.
    let joined = lines.join("; ");
    one_line(joined.split(LINK).next().unwrap_or_default())
}

/// The text without colours.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // `ESC [ 36 m`: it ends with the first letter after the bracket.
            ESCAPE => {
                let _ = letters.find(char::is_ascii_alphabetic);
            }
            letter => plain.push(letter),
        }
    }
    plain
}

fn one_line(line: &str) -> String {
    let letters: Vec<char> = line
        .trim()
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    let skipped = letters.len().saturating_sub(MESSAGE_CHARACTERS);
    letters[skipped..].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coloured_traceback_is_reduced_to_its_error() {
        let text = "\u{1b}[36mray::ServeReplica\u{1b}[39m (pid=1)\n  File \"x.py\"\nRuntimeError: no room\n\n";
        assert_eq!(last_line(text), "RuntimeError: no room");
        assert_eq!(last_line(" \n"), "it says nothing");
        assert_eq!(refusal(text), "RuntimeError: no room");
        let fields = "1 validation error for X\na.0.b\n  Field required [type=missing]\n    For further information visit https://e.org";
        assert_eq!(
            refusal(fields),
            "1 validation error for X; a.0.b; Field required [type=missing]"
        );
        assert!(plain(text).starts_with("ray::ServeReplica (pid=1)"));
    }
}
