//! Memory estimates without measurements: from published figures, from safetensors and GGUF files written here, and from the
//! arguments of commands.

mod broken_gguf;
mod commands;
mod damage;
mod forms;
mod gguf;
mod layouts;
mod llama_placement;
mod published_models;

use support::assert_has;
