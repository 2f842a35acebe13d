//! Replaces control characters in the text of models and servers, to protect the terminal.

/// Keeps line ends and tabs, and replaces every other control character with a visible sign: escape sequences are shown instead of
/// executed. Works on single characters, which also covers sequences split across pieces.
pub fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => shown.push(letter),
            // Half of a line end; on its own it would let text overwrite the line.
            '\r' => {}
            '\u{0}'..='\u{1f}' => {
                shown.extend(char::from_u32(0x2400 + u32::from(letter)));
            }
            '\u{7f}' => shown.push('\u{2421}'),
            '\u{80}'..='\u{9f}' => shown.push(char::REPLACEMENT_CHARACTER),
            letter => shown.push(letter),
        }
    }
    shown
}

/// Like [`clean`], on one line.
pub fn line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_shown_and_not_carried_out() {
        assert_eq!(clean("\x1b[31mred\x1b[0m"), "␛[31mred␛[0m");
        assert_eq!(clean("\x1b]0;title\x07"), "␛]0;title␇");
        assert_eq!(clean("a\u{9b}2Jb\u{7f}"), "a\u{fffd}2Jb␡");
    }

    #[test]
    fn line_breaks_tabs_and_printable_characters_are_kept() {
        assert_eq!(clean("a\tb\r\nc äß中🙂"), "a\tb\nc äß中🙂");
        assert_eq!(clean("real\rfake"), "realfake");
        assert_eq!(line("a\nb"), "a b");
    }
}
