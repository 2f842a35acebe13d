//! Colours and widths for output, and removal of harmful characters from text that the server sent. Pure.

use unicode_width::UnicodeWidthStr;

/// Colours and width of an output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// ANSI colours may be used: a terminal, and `NO_COLOR` is not set.
    pub colour: bool,
    /// The stream is a terminal, so bars make sense.
    pub terminal: bool,
    /// Columns of the terminal; 100 without one.
    pub columns: usize,
    /// Lines may be longer than the terminal is wide (`--wide`).
    pub wide: bool,
}

/// The client's colours, each with one meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    Good,
    Warning,
    Bad,
    Faint,
    Strong,
    /// The n-th owner of a device's memory.
    Owner(usize),
}

impl Style {
    /// Neither colours nor bars, as in a pipe.
    pub const PLAIN: Style = Style {
        colour: false,
        terminal: false,
        columns: 100,
        wide: false,
    };

    /// A terminal of this many columns, without colours.
    pub const fn terminal(columns: usize) -> Style {
        Style {
            terminal: true,
            columns,
            ..Style::PLAIN
        }
    }

    /// The maximum width of a line. `None` leaves lines uncut, which lets `grep` find everything in a pipe.
    pub fn limit(self) -> Option<usize> {
        (self.terminal && !self.wide).then_some(self.columns.max(COLUMNS_MIN))
    }

    pub fn paint(self, tint: Tint, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match tint {
            Tint::Good => 32,
            Tint::Warning => 33,
            Tint::Bad => 31,
            Tint::Faint => 2,
            Tint::Strong => 1,
            Tint::Owner(n) => [34, 35, 36, 32, 33, 94, 95, 96][n % 8],
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Narrower terminals wrap their lines: no readable text fits.
const COLUMNS_MIN: usize = 20;

/// The columns of a text on a terminal. The text has no line ends.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Removes escape sequences, control characters and direction marks from text that a server or an engine sent. They could control
/// the terminal. Line ends and tabs stay.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' if chars.peek() == Some(&'[') => {
                // A control sequence: parameters, then one final character.
                chars.next();
                while chars
                    .next()
                    .is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c))
                {}
            }
            '\n' | '\t' => out.push(c),
            c if c.is_control() || misleads(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// Like `clean`, on one line.
pub fn clean_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// Returns true for line and paragraph separators and direction marks, which move the text after them.
fn misleads(c: char) -> bool {
    matches!(
        c,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_of_an_engine_do_not_reach_the_terminal() {
        assert_eq!(
            clean("\x1b[31mred\x1b[0m \x1b]0;title\x07\ta\r\nb"),
            "red ]0;title\ta\nb"
        );
        assert_eq!(clean("cut \x1b[3"), "cut ");
        assert_eq!(clean("a\u{202e}b\u{2066}c\u{2028}d\u{9b}2J"), "abcd2J");
    }

    #[test]
    fn without_colour_paint_returns_the_text_unchanged() {
        assert_eq!(Style::PLAIN.paint(Tint::Bad, "text"), "text");
        let colour = Style {
            colour: true,
            ..Style::PLAIN
        };
        assert_eq!(colour.paint(Tint::Bad, "text"), "\x1b[31mtext\x1b[0m");
    }

    #[test]
    fn only_lines_on_a_terminal_are_limited() {
        assert_eq!(Style::PLAIN.limit(), None);
        assert_eq!(Style::terminal(80).limit(), Some(80));
        let wide = Style {
            wide: true,
            ..Style::terminal(80)
        };
        assert_eq!(wide.limit(), None);
    }
}
