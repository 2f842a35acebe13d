//! The context of a command: connection, screen and output format.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::CommandError;
use crate::screen::Screen;
use crate::style::Style;
use client::{ApiResponse, Client};

/// A request body without the options that are absent.
pub fn present(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
    }
    body
}

/// The context of a command.
#[derive(Debug)]
pub struct Session {
    /// Shared with the tasks of `top`.
    pub client: Arc<Client>,
    pub screen: Screen,
    pub json: bool,
}

impl Session {
    /// Gets a response and prints it as `show` formats it, or unchanged with `--json`.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        show: impl FnOnce(&T, Style) -> String,
    ) -> Result<(), CommandError> {
        let response = self.client.get(path, query).await?;
        self.show(&response, |value| show(value, self.screen.style))
    }

    /// Sends an order, and prints its response like `get`.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        show: impl FnOnce(&T, Style) -> String,
    ) -> Result<(), CommandError> {
        let response = self.client.post(path, body).await?;
        self.show(&response, |value| show(value, self.screen.style))
    }

    /// Prints a response: unchanged with `--json`, otherwise as `show` formats it.
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
