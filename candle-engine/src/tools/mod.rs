//! The tools of a request: the call formats of model families, the parser for calls, and the grammars that enforce them.

mod family;
mod grammar;
mod reader;
mod tool;
mod written_calls;

pub(crate) use family::Family;
pub(crate) use grammar::{offered, required};
pub(crate) use reader::{Part, ToolReader};
pub(crate) use tool::{Tool, ToolCall, ToolChoice, Tools};
