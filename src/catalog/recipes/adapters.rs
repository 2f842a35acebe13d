//! LoRA adapters: small weights that a base model's engine serves under separate names. An adapter is a key of the base's file, or
//! a RayLLM file that names the base. This module only reads the settings; it starts and fetches nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::documents::{CatalogError, Diagnostics, EngineConfig, limits};
use crate::engines::Engine;
use crate::weights::source::short_digest;
use crate::weights::{BucketUri, ExtraFiles, Scheme};

const KEY: &str = "engine_config.lora_adapters";
/// The subfolder for adapters from buckets in a fetched model's folder.
const FOLDER: &str = "adapters";
/// Engines hold a few hundred.
const ADAPTERS_MAX: usize = 1000;

/// The name and local folder of each adapter that a base model serves.
pub(crate) type Adapters = Vec<(String, PathBuf)>;

/// Reads the adapters of a model that runs on an engine from the table.
pub(super) fn of_engine(
    kind: &Engine,
    engine: &EngineConfig,
    notes: &mut Diagnostics,
) -> Result<Adapters, CatalogError> {
    let takes = kind.lora.is_some_and(|lora| lora.modules.is_some());
    if !engine.lora_adapters.is_empty() && !takes {
        let problem = format!(
            "{} cannot load the adapters of a model file; CandleEngine and VLLMEngine can",
            kind.name()
        );
        return Err(notes.refuse(KEY, problem));
    }
    read(engine, notes)
}

/// Reads the names and folders of the adapters. Adapters from buckets are placed below the model's own folder once it is fetched.
pub(crate) fn read(
    engine: &EngineConfig,
    notes: &mut Diagnostics,
) -> Result<Adapters, CatalogError> {
    if engine.lora_adapters.is_empty() {
        return Ok(Vec::new());
    }
    if engine.lora_adapters.len() > ADAPTERS_MAX {
        return Err(notes.refuse(KEY, format!("has more than {ADAPTERS_MAX}")));
    }
    // The flag that comes later on the command line would override the other.
    for key in ["enable_lora", "lora_modules", "lora_paths"] {
        if engine.engine_kwargs.contains_key(key) {
            let field = format!("engine_config.engine_kwargs.{key}");
            return Err(notes.refuse(&field, format!("is set by {KEY}; list adapters only there")));
        }
    }
    let mut seen = BTreeSet::new();
    let mut adapters = Vec::new();
    for (nth, adapter) in engine.lora_adapters.iter().enumerate() {
        let field = |key: &str| format!("{KEY}[{nth}].{key}");
        // RayLLM's names have a suffix and an id after colons.
        let plain = adapter.name.replace(':', "-");
        if let Some(problem) = limits::model_id_problem(&plain) {
            return Err(notes.refuse(&field("name"), problem));
        }
        if adapter.name == engine.model_id || !seen.insert(&adapter.name) {
            let problem = format!("`{}` is the model's own name, or given twice", adapter.name);
            return Err(notes.refuse(&field("name"), problem));
        }
        let path = match (&adapter.path, &adapter.bucket_uri) {
            (Some(path), None) => {
                let path = notes.path(&field("path"), path)?;
                if !path.exists() {
                    let message = format!(
                        "there is no {}; loads will fail until it exists",
                        path.display()
                    );
                    notes.warn(&field("path"), message);
                }
                path
            }
            (None, Some(_)) => match &engine.model_path {
                Some(folder) if engine.is_fetched => Path::new(folder).join(place(&adapter.name)),
                _ => {
                    return Err(notes.refuse(&field("bucket_uri"), "is fetched together with the base model, but the pool does not fetch this base model; copy the adapter into a folder and set path to it"));
                }
            },
            _ => {
                return Err(notes.refuse(
                    &field("path"),
                    "or bucket_uri must give the adapter's location; set exactly one",
                ));
            }
        };
        adapters.push((adapter.name.clone(), path));
    }
    Ok(adapters)
}

/// Adapters to fetch along with the base model.
pub(super) fn to_fetch(
    engine: &EngineConfig,
    notes: &Diagnostics,
) -> Result<Vec<ExtraFiles>, CatalogError> {
    let mut extra = Vec::new();
    for (nth, adapter) in engine.lora_adapters.iter().enumerate() {
        if let Some(text) = &adapter.bucket_uri {
            let field = format!("{KEY}[{nth}].bucket_uri");
            let uri = BucketUri::parse(text, &[Scheme::S3, Scheme::Gs]);
            extra.push(ExtraFiles {
                uri: uri.map_err(|problem| notes.refuse(&field, problem))?,
                destination: place(&adapter.name),
            });
        }
    }
    Ok(extra)
}

fn place(name: &str) -> PathBuf {
    let readable = name.replace(['/', ':'], "-");
    Path::new(FOLDER).join(format!("{readable}-{}", short_digest(name)))
}
