//! How a conversation becomes one text, by the `prompt_format` of a model's file: RayLLM's algorithm with
//! its faults mended, or exactly as RayLLM 0.5 did it. It never sees a tokenizer.

mod format;
mod render;
mod template;

#[cfg(test)]
mod tests;

pub use format::{PromptCompat, PromptFormat};
pub(super) use format::{keys, read};
pub use render::PromptError;

/// How a model takes conversations.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Prompt {
    /// By the chat template of its tokenizer, which its engine applies.
    #[default]
    ChatTemplate,
    /// Not at all: `prompt_format: null`. It completes texts.
    Disabled,
    /// As one text, which the pool writes.
    Format(Box<PromptFormat>),
}
