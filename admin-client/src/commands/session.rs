//! The context of a command: connection, screen and output format.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::error::CommandError;
use crate::screen::Screen;
use client::{ApiResponse, Client};

/// The context of a command.
#[derive(Debug)]
pub struct Session {
    /// Shared with the tasks of `top`.
    pub client: Arc<Client>,
    pub screen: Screen,
    pub json: bool,
}

impl Session {
    /// Prints an answer: unchanged with `--json`, otherwise as `show` formats it.
    pub fn show<T: DeserializeOwned>(
        &self,
        response: &ApiResponse,
        show: impl FnOnce(&T) -> String,
    ) -> Result<(), CommandError> {
        if self.json {
            return self.screen.print(&response.text);
        }
        self.screen.print(&show(&response.read()?))
    }
}
