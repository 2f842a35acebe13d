//! Translates configurations of llama-swap and LiteLLM to model files and a configuration of model-pool. Keys without a counterpart
//! cause a note with key and line. Secrets are never copied; they are replaced by names of environment variables.

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
mod virtual_models;

pub use files::{ImportedFiles, WriteError};
pub use litellm::litellm;
pub use llama_swap::llama_swap;
pub use notes::Note;
pub use outcome::{Import, ImportContext, ImportError, ImportedModel};
