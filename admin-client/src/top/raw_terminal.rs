//! The terminal while `top` draws on it: raw, on the alternate screen, with the mouse. However the program ends, by
//! return, by a signal or by a panic, the terminal is as it was before.

use std::io::{self, stdout};
use std::panic;

use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// A terminal that was taken over. Dropping it gives it back.
pub struct RawTerminal(());

impl RawTerminal {
    /// # Errors
    /// If the output is closed.
    pub fn enter() -> io::Result<RawTerminal> {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // First the terminal: the report would be lost with the alternate screen.
            leave();
            report(info);
        }));
        // Without a terminal on standard input there are no keys, and nothing to make raw.
        let _no_input = enable_raw_mode();
        let entered = RawTerminal(());
        execute!(stdout(), EnterAlternateScreen, EnableMouseCapture)?;
        Ok(entered)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        leave();
    }
}

/// A terminal that is gone needs nothing back.
fn leave() {
    let _gone = execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _gone = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const OWN: &str =
        "top::raw_terminal::tests::a_panic_gives_the_terminal_back_before_it_is_reported";
    /// Set in the process that panics.
    const PANICS: &str = "MODEL_POOL_TEST_PANICS";

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_reported() {
        if std::env::var_os(PANICS).is_some() {
            let _entered = RawTerminal::enter().expect("the output is open");
            panic!("in the middle of a frame");
        }
        let own = std::env::current_exe().expect("the path of this test");
        let output = Command::new("sh")
            .args(["-c", "exec \"$0\" --exact --nocapture \"$1\" 2>&1"])
            .arg(own)
            .arg(OWN)
            .env(PANICS, "1")
            .output()
            .expect("sh runs");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let place = |text: &str| {
            let found = shown.find(text);
            found.unwrap_or_else(|| panic!("no {text:?} in {shown:?}"))
        };
        let taken = place("\x1b[?1049h");
        let back = place("\x1b[?1049l");
        let report = place("in the middle of a frame");
        assert!(taken < back && back < report, "{shown:?}");
        assert!(place("\x1b[?1000l") < report && place("\x1b[?25h") < report);
        assert!(!output.status.success(), "{shown}");
    }
}
