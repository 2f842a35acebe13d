//! A line on standard error that is updated in place and erased, for waits and downloads. Not shown without a terminal.

use std::io::{self, IsTerminal, Write};

use super::window::{is_dumb, window};

#[derive(Debug)]
pub struct StatusLine {
    is_enabled: bool,
    is_shown: bool,
}

impl StatusLine {
    pub fn of_stderr() -> StatusLine {
        StatusLine {
            is_enabled: io::stderr().is_terminal() && !is_dumb(),
            is_shown: false,
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Replaces the line. Truncates it to the terminal's width, because a second line could not be erased.
    pub fn show(&mut self, text: &str) {
        if !self.is_enabled {
            return;
        }
        let text = cut(text, window().0.saturating_sub(1));
        let mut err = io::stderr().lock();
        let _closed = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
        self.is_shown = true;
    }

    pub fn erase(&mut self) {
        if !std::mem::take(&mut self.is_shown) {
            return;
        }
        let mut err = io::stderr().lock();
        let _closed = write!(err, "\r\x1b[K").and_then(|()| err.flush());
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.erase();
    }
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        let kept = text.chars().take(most.saturating_sub(1));
        kept.chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_truncated_to_the_width_with_an_ellipsis() {
        assert_eq!(cut("loading 40 %", 12), "loading 40 %");
        assert_eq!(cut("loading 40 %", 8), "loading…");
        assert_eq!(cut("ä中🙂", 2), "ä…");
        assert_eq!(cut("x", 0), "…");
    }
}
