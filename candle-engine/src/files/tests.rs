//! Tests of models on disk: every test model, generated GGUF files, and broken files.

mod broken_gguf;
mod folders;
pub(crate) mod gguf;
pub(crate) mod gguf_writer;
mod loading;
