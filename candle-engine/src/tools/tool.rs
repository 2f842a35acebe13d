//! Tools of a request, and calls of them.

use serde_json::Value;

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub name: String,
    /// JSON schema of its arguments; `None` without arguments.
    pub parameters: Option<Value>,
    /// Every keyword of its schema must be enforceable.
    pub strict: bool,
    /// The client's definition, for the chat template.
    pub definition: Value,
}

/// The request's constraint on tool calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ToolChoice {
    None,
    /// The model decides.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// A call to this tool.
    Named(String),
}

/// The tool settings of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tools {
    pub list: Vec<Tool>,
    pub choice: ToolChoice,
    /// Allow more than one call per completion.
    pub parallel: bool,
}

impl Tools {
    /// The tools offered to the model.
    pub fn offered(&self) -> &[Tool] {
        match self.choice {
            ToolChoice::None => &[],
            _ => &self.list,
        }
    }

    /// The tools of which one must be called; `None` if no call is forced.
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

/// A tool call by the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolCall {
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}
