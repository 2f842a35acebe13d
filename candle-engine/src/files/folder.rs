//! Constants shared by the readers of model folders.

/// Key for the pooling type of a GGUF file, which has no field in `config.json`.
pub(super) const GGUF_POOLING: &str = "gguf_pooling_type";

pub(super) const REMEDY: &str =
    "the weights do not belong to this description: download the model's files again";
