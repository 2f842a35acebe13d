//! Parses the headers of model files: GGUF, safetensors, `config.json`. The files are untrusted; every figure is checked, and files
//! are not assumed to agree with each other. Reading blocks. Also contains tables that the catalogue and the embedded engine share:
//! the supported model families and request fields.

pub mod adapter;
mod architecture;
mod chat_template;
mod config_architecture;
pub mod config_json;
mod damage;
mod error;
pub mod families;
mod folder;
pub mod gguf;
mod gguf_architecture;
pub mod gguf_types;
mod layer_kinds;
mod layer_parameters;
pub mod name_size;
mod parameters;
mod python_json;
mod quantisation;
mod regular_file;
pub mod request_fields;
pub mod safetensors;
mod stand_in;

pub use architecture::{
    Architecture, CacheLoad, LayerCache, LayerGroup, LayerMemory, NumberWidth, Split, Widths,
};
pub use chat_template::chat_template;
pub use damage::damage;
pub use error::FileError;
pub use folder::{ModelFiles, bytes_of_weight_files, gguf_of, is_gguf};
pub use gguf::TensorSize;
pub use layer_kinds::CONTEXT_OF_STATES;
pub use parameters::{
    CONFIG_TOLERANCE_PER_CENT, Parameters, guesses_by_config, parameters_by_config,
    weights_by_config,
};
pub use python_json::without_bare_words;
pub use regular_file::open_regular;
pub use safetensors::{Rows, Weights, weights_of};
