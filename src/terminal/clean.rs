//! Makes text of a model or a server harmless for a terminal: no control character reaches it.

/// The text with line ends and tabs, and every other control character as a visible sign: an escape sequence is
/// shown and not carried out. It looks at single characters, so that a sequence in pieces is harmless too.
pub fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => shown.push(letter),
            // Half of a line end; alone it would let a line be overwritten.
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

/// The same on one line.
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
    fn line_ends_tabs_and_all_other_letters_stay() {
        assert_eq!(clean("a\tb\r\nc äß中🙂"), "a\tb\nc äß中🙂");
        assert_eq!(clean("real\rfake"), "realfake");
        assert_eq!(line("a\nb"), "a b");
    }
}
