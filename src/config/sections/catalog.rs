//! Sections `catalog` and `sources`: descriptions of models, and the sources of their weights. The doc comments are the
//! descriptions in the schema.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::Size;
use pool::Bytes;

/// Sources of model descriptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogSection {
    /// The folder of model files: `*.yaml`, `*.yml` and `*.json`, one model each.
    pub models_dir: PathBuf,
    /// The file with GPU counts and priorities of known models.
    pub model_reference: PathBuf,
    /// Refuse a model file of an older system if it has a key that no release had. If false, such a key causes a warning.
    pub strict: bool,
    /// Permission to register a model that is not in the catalogue: no caller (`refuse`), administrators (`admin`), or any user who
    /// requests a model of the hub (`anyone`).
    pub on_unknown: OnUnknown,
    /// The engine of such a model, unless `model_reference` names one; the pool must be able to fetch weights for it.
    pub unknown_engine: String,
    /// With `anyone`: maximum models that users may register, 1 to 10000.
    pub unknown_limit: u32,
    /// With `anyone`: maximum models that users may register per hour, 1 to 10000.
    pub unknown_per_hour: u32,
    /// With `anyone`: maximum disk space for the weights of all users' models.
    pub unknown_size: Size,
    /// With `anyone`: let users register private and gated repositories of the hub that the pool's own token (`HF_TOKEN`) can
    /// access. If false, no token is sent for models that users register.
    pub unknown_private: bool,
}

impl Default for CatalogSection {
    fn default() -> CatalogSection {
        CatalogSection {
            models_dir: PathBuf::from("config/models"),
            model_reference: PathBuf::from("model_reference.json"),
            strict: false,
            on_unknown: OnUnknown::Admin,
            unknown_engine: "CandleEngine".to_owned(),
            unknown_limit: 100,
            unknown_per_hour: 20,
            unknown_size: Size(Bytes(500 * Bytes::GIB)),
            unknown_private: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnUnknown {
    Refuse,
    Admin,
    Anyone,
}

/// Download sources and storage of weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourcesSection {
    /// The folder for fetched weights, in the layout of the Hugging Face cache; null: the default of Hugging Face's tools
    /// (`HF_HUB_CACHE`, `HF_HOME`, `~/.cache/huggingface/hub`).
    pub cache_dir: Option<PathBuf>,
    /// The hub's address; the variable `HF_ENDPOINT` overrides it.
    pub hub: String,
    /// Make no network requests for weights and use only the cache. `HF_HUB_OFFLINE=1` has the same effect.
    pub offline: bool,
    /// Files of one model to fetch simultaneously, 1 to 64.
    pub files_at_once: u32,
    /// Models to fetch simultaneously, 1 to 64.
    pub models_at_once: u32,
    /// Disk space that stays free: a fetch that would leave less is refused before it begins.
    pub keep_free: Size,
    /// Additional folders for the `extra_files` of a mirror.
    pub extra_roots: Vec<PathBuf>,
}

impl Default for SourcesSection {
    fn default() -> SourcesSection {
        SourcesSection {
            cache_dir: None,
            hub: "https://huggingface.co".to_owned(),
            offline: false,
            files_at_once: 4,
            models_at_once: 2,
            keep_free: Size(Bytes(5 * Bytes::GIB)),
            extra_roots: Vec::new(),
        }
    }
}
