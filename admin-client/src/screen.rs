//! Prints text and asks for confirmation. Detects terminals, their width and whether to use colours.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// How a stream may be decorated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// ANSI colours may be used: a terminal, and `NO_COLOR` is not set.
    pub colour: bool,
    /// The stream is a terminal, so bars make sense.
    pub terminal: bool,
    /// Columns of the terminal; 100 without one.
    pub columns: usize,
}

/// The colours the client uses, each for one meaning.
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
    /// Neither colours nor bars: what pipes and tests get.
    #[cfg(test)]
    pub const PLAIN: Style = Style {
        colour: false,
        terminal: false,
        columns: 100,
    };

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

/// Standard output or standard error.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub style: Style,
}

impl Screen {
    pub fn of_stdout() -> Screen {
        Screen::of(io::stdout().is_terminal())
    }

    pub fn of_stderr() -> Screen {
        Screen::of(io::stderr().is_terminal())
    }

    fn of(terminal: bool) -> Screen {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Screen {
            style: Style {
                colour: terminal && !no_colour && !dumb,
                terminal,
                columns: if terminal { window().0 } else { 100 },
            },
        }
    }

    /// Prints text to standard output, and a line end if the text lacks one.
    ///
    /// # Errors
    /// `Failure::Output` if the output is closed or full.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| {
                if text.ends_with('\n') {
                    Ok(())
                } else {
                    out.write_all(b"\n")
                }
            })
            .and_then(|()| out.flush())
            .map_err(Failure::Output)
    }
}

/// Columns and rows of the terminal on standard output or error; 100 × 40 without one.
pub fn window() -> (usize, usize) {
    rustix::termios::tcgetwinsize(rustix::stdio::stdout())
        .or_else(|_| rustix::termios::tcgetwinsize(rustix::stdio::stderr()))
        .ok()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)
        .map_or((100, 40), |size| {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        })
}

/// Prints a note to standard error. A closed standard error is not a failure.
pub fn note(text: &str) {
    let mut err = io::stderr().lock();
    let _closed = writeln!(err, "{text}");
}

/// Asks on standard error, which keeps standard output clean. Without a terminal, as in a script,
/// the answer is yes.
///
/// # Errors
/// `Failure::Declined` unless the answer is `y` or `yes`.
pub fn confirm(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ")
        .and_then(|()| err.flush())
        .map_err(Failure::Output)?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(Failure::Question)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Declined),
    }
}

/// Removes escape sequences and control characters from text of the server or an engine, so that it
/// cannot control the terminal. Line ends and tabs stay.
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
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
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
    }

    #[test]
    fn without_colour_paint_changes_nothing() {
        assert_eq!(Style::PLAIN.paint(Tint::Bad, "text"), "text");
        let colour = Style {
            colour: true,
            ..Style::PLAIN
        };
        assert_eq!(colour.paint(Tint::Bad, "text"), "\x1b[31mtext\x1b[0m");
    }
}
