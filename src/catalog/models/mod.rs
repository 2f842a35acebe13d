//! All models by name, and how they are read from files.

mod adapter_bases;
mod adapter_file;
mod broken_models;
mod catalog;
mod files;
mod reading_files;
mod weight_descriptions;

pub use broken_models::BrokenModel;
pub use catalog::{Catalog, Changes};
