//! Renders a conversation to text with the `prompt_format` of a model's file: RayLLM's algorithm with its bugs fixed, or exactly as
//! RayLLM 0.5. Uses no tokenizer.

mod format;
mod render;
mod template;

#[cfg(test)]
mod tests;

pub use format::{PromptCompat, PromptFormat};
pub(crate) use format::{keys, read};
pub use render::PromptError;

/// A model's handling of conversations.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Prompt {
    /// The engine applies the chat template of the tokenizer.
    #[default]
    ChatTemplate,
    /// Not supported (`prompt_format: null`): the model only completes texts.
    Disabled,
    /// The pool renders them to text.
    Format(Box<PromptFormat>),
}
