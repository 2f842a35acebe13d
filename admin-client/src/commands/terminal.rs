//! The terminal while `top` runs: single keys without echo, no line wrapping, hidden cursor. Dropping
//! `SingleKeys` restores the terminal.

use rustix::stdio::stdin;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcsetattr,
};

use crate::failure::Failure;
use crate::screen::Screen;

/// A terminal in single-key mode.
pub struct SingleKeys {
    before: Option<Termios>,
    screen: Screen,
}

impl SingleKeys {
    /// Without a terminal on standard input there are no keys; the output is set up all the same.
    ///
    /// # Errors
    /// `Failure::Output` if the terminal cannot be written.
    pub fn start(screen: Screen) -> Result<SingleKeys, Failure> {
        // No line wrapping, hidden cursor, empty screen.
        screen.print("\x1b[?7l\x1b[?25l\x1b[2J")?;
        let before = isatty(stdin()).then(|| tcgetattr(stdin()).ok()).flatten();
        if let Some(before) = &before {
            let mut single = before.clone();
            single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // A read returns at once with what is available.
            single.special_codes[SpecialCodeIndex::VMIN] = 0;
            single.special_codes[SpecialCodeIndex::VTIME] = 0;
            let _refused = tcsetattr(stdin(), OptionalActions::Now, &single);
        }
        Ok(SingleKeys { before, screen })
    }

    /// Whether q was pressed since the last call. Returns at once.
    pub fn quit_pressed(&self) -> bool {
        if self.before.is_none() {
            return false;
        }
        let mut keys = [0; 64];
        rustix::io::read(stdin(), &mut keys).is_ok_and(|count| keys[..count].contains(&b'q'))
    }
}

impl Drop for SingleKeys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _refused = tcsetattr(stdin(), OptionalActions::Now, before);
        }
        let _closed = self.screen.print("\x1b[?7h\x1b[?25h");
    }
}
