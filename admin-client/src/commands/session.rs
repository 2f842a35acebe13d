//! What every command works with: the connection to the server, and where its answers are shown.

use serde::de::DeserializeOwned;

use crate::client::{Answer, Client};
use crate::failure::Failure;
use crate::screen::Screen;

/// What every command works with.
#[derive(Debug)]
pub struct Session {
    pub client: Client,
    pub screen: Screen,
    pub json: bool,
}

impl Session {
    /// Prints an answer: as it came with `--json`, else as `show` makes it.
    pub fn show<T: DeserializeOwned>(
        &self,
        answer: &Answer,
        show: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            return self.screen.print(&answer.text);
        }
        self.screen.print(&show(&answer.read()?))
    }
}
