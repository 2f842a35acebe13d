//! Takes over the terminal for `top`: raw mode, the alternate screen, and the mouse. Restores the terminal however the program
//! ends: by a return, a signal or a panic.

use std::io::{self, stdout};
use std::panic;

use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// A terminal that was taken over. Restores it when dropped.
pub struct RawTerminal(());

impl RawTerminal {
    /// # Errors
    /// If the output is closed.
    pub fn enter() -> io::Result<RawTerminal> {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Restores the terminal first: the report would disappear with the alternate screen.
            leave();
            report(info);
        }));
        // Fails without a terminal on standard input, which means that there are no keys to read.
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

/// Ignores errors: a terminal that is gone needs no restoration.
fn leave() {
    let _gone = execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _gone = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const OWN: &str =
        "top::raw_terminal::tests::a_panic_restores_the_terminal_before_it_is_reported";
    /// Set in the process that panics.
    const PANICS: &str = "MODEL_POOL_TEST_PANICS";

    #[test]
    fn a_panic_restores_the_terminal_before_it_is_reported() {
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
