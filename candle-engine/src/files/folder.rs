//! What the readers of a model's folder share: a key that `config.json` has no field for, and what to do about wrong files.

/// What `config.json` has no field for.
pub(super) const GGUF_POOLING: &str = "gguf_pooling_type";

pub(super) const REMEDY: &str =
    "the weights do not belong to this description: download the model's files again";
