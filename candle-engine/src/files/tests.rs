//! Tests of models on disk: every test model, generated GGUF files, and broken files.

mod broken_gguf;
mod equivalence;
mod folders;
mod gguf;
mod gguf_writer;
mod loading;
