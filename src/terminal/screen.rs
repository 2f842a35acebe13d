//! The output of a conversation: responses on standard output, everything else on standard error. Makes control characters
//! from models and servers visible.

use std::io::{self, IsTerminal, Write};

use super::control_chars::clean;
use super::error::CommandError;
use super::status::StatusLine;
use super::window::may_colour;

const FAINT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

#[derive(Debug)]
pub struct Screen {
    status: StatusLine,
    /// Standard output is a terminal.
    is_terminal: bool,
    /// Standard output may use dim text.
    is_coloured: bool,
    /// Standard error may use dim text.
    has_coloured_notes: bool,
    is_reasoning: bool,
    /// Reasoning has been shown, but no text.
    is_after_reasoning: bool,
    is_line_open: bool,
}

impl Screen {
    pub fn new() -> Screen {
        let may_colour = may_colour();
        let is_terminal = io::stdout().is_terminal();
        Screen {
            status: StatusLine::of_stderr(),
            is_terminal,
            is_coloured: is_terminal && may_colour,
            has_coloured_notes: io::stderr().is_terminal() && may_colour,
            is_reasoning: false,
            is_after_reasoning: false,
            is_line_open: false,
        }
    }

    /// Shows a part of the response.
    pub fn text(&mut self, text: &str) -> Result<(), CommandError> {
        if self.is_reasoning && !text.is_empty() {
            self.end_reasoning()?;
        }
        let text = if self.is_after_reasoning {
            text.trim_start_matches(['\n', '\r'])
        } else {
            text
        };
        if text.is_empty() {
            return Ok(());
        }
        self.is_after_reasoning = false;
        self.write(&clean(text))
    }

    /// Shows a part of the reasoning, only on a terminal.
    pub fn reasoning(&mut self, text: &str) -> Result<(), CommandError> {
        if !self.is_terminal || text.is_empty() {
            return Ok(());
        }
        if !self.is_reasoning {
            self.is_reasoning = true;
            let begin = if self.is_coloured {
                FAINT
            } else {
                "Thinking…\n"
            };
            self.write(begin)?;
        }
        self.write(&clean(text))
    }

    fn end_reasoning(&mut self) -> Result<(), CommandError> {
        self.is_reasoning = false;
        self.is_after_reasoning = true;
        if self.is_coloured {
            self.write(&format!("{PLAIN}\n\n"))
        } else {
            self.write("\n…done thinking.\n\n")
        }
    }

    /// Ends the line and resets dim text.
    pub fn end_response(&mut self) -> Result<(), CommandError> {
        self.status.erase();
        if std::mem::take(&mut self.is_reasoning) && self.is_coloured {
            self.write(PLAIN)?;
        }
        self.is_after_reasoning = false;
        if self.is_line_open {
            self.write("\n")
        } else {
            Ok(())
        }
    }

    /// Prints text that does not belong to a conversation, unchanged.
    pub fn print(&mut self, text: &str) -> Result<(), CommandError> {
        self.status.erase();
        self.write(text)
    }

    /// Shows a message on standard error.
    pub fn note(&mut self, text: &str) {
        self.status.erase();
        let mut err = io::stderr().lock();
        let _closed = writeln!(err, "{}", clean(text));
    }

    /// Shows a less important message on standard error.
    pub fn aside(&mut self, text: &str) {
        self.status.erase();
        let mut err = io::stderr().lock();
        let _closed = if self.has_coloured_notes {
            writeln!(err, "{FAINT}{}{PLAIN}", clean(text))
        } else {
            writeln!(err, "{}", clean(text))
        };
    }

    pub fn status(&mut self, text: &str) {
        // The line would appear in the middle of the response.
        if !(self.is_line_open && self.is_terminal) {
            self.status.show(text);
        }
    }

    pub fn erase_status(&mut self) {
        self.status.erase();
    }

    fn write(&mut self, text: &str) -> Result<(), CommandError> {
        self.status.erase();
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(CommandError::Output)?;
        if let Some(last) = text.trim_end_matches(PLAIN).chars().last() {
            self.is_line_open = last != '\n';
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_reasoning && self.is_coloured {
            let _closed = self.write(PLAIN);
        }
    }
}
