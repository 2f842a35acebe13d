//! Tests of models on disk: every test model, generated GGUF files, and broken files.

mod broken_gguf;
mod computed;
mod folders;
mod gguf;
mod loading;
mod written;
