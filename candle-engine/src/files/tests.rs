//! Models as they lie on disk: every kept model, GGUF files written here, and files that are broken. Owns the breaking.

mod broken_gguf;
mod computed;
mod folders;
mod gguf;
mod loading;
mod written;
