//! The size and the abilities of the terminal that the program writes to.

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

use crate::style::Style;

/// Columns and rows of the terminal on standard output or error; 100 × 40 without one.
pub fn window() -> (usize, usize) {
    tcgetwinsize(rustix::stdio::stdout())
        .or_else(|_| tcgetwinsize(rustix::stdio::stderr()))
        .ok()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)
        .map_or((100, 40), |size| {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        })
}

/// Returns true for terminals without escape sequences.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Returns true if a terminal may show colours and dim text.
pub(crate) fn may_colour() -> bool {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !no_colour && !is_dumb()
}

impl Style {
    pub fn of_stdout() -> Style {
        Style::for_output(io::stdout().is_terminal())
    }

    pub fn of_stderr() -> Style {
        Style::for_output(io::stderr().is_terminal())
    }

    fn for_output(terminal: bool) -> Style {
        Style {
            colour: terminal && may_colour(),
            columns: if terminal { window().0 } else { 100 },
            terminal,
            wide: false,
        }
    }
}
