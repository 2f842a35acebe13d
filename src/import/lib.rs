//! Translates configurations of llama-swap and LiteLLM into model files and a configuration of model-pool. Whatever has
//! no counterpart is a note with its key and line. Secrets are never copied: they become names of variables.

mod command;
mod engines;
mod fields;
mod files;
mod litellm;
mod llama_swap;
mod macros;
mod names;
mod notes;
mod options;
mod outcome;
mod secrets;

pub use files::{WriteFault, Written};
pub use litellm::litellm;
pub use llama_swap::llama_swap;
pub use notes::Note;
pub use outcome::{Around, Import, ImportError, ImportedModel};
