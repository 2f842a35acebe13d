//! The tools of a request: how a family of models writes calls, how they are read out of its text, and the grammar that
//! enforces them.

mod enforce;
mod family;
mod read;

pub(crate) use enforce::{offered, required};
pub(crate) use family::Family;
pub(crate) use read::{Part, ToolReader};

use serde_json::Value;

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub name: String,
    /// JSON schema of its arguments; `None` where it takes none.
    pub parameters: Option<Value>,
    /// Its schema must be enforceable to the last word.
    pub strict: bool,
    /// As the client wrote it, for the chat template.
    pub definition: Value,
}

/// Whether the model calls a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ToolChoice {
    None,
    /// The model decides.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// What a request says about tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tools {
    pub list: Vec<Tool>,
    pub choice: ToolChoice,
    /// More than one call in an answer.
    pub parallel: bool,
}

impl Tools {
    /// The tools that the model gets.
    pub fn offered(&self) -> &[Tool] {
        match self.choice {
            ToolChoice::None => &[],
            _ => &self.list,
        }
    }

    /// The tools of which one must be called; `None` where none must.
    pub fn demanded(&self) -> Option<Vec<&Tool>> {
        match &self.choice {
            ToolChoice::None | ToolChoice::Auto => None,
            ToolChoice::Required => Some(self.list.iter().collect()),
            ToolChoice::Named(name) => {
                Some(self.list.iter().filter(|tool| tool.name == *name).collect())
            }
        }
    }
}

/// A call that the model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolCall {
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}
