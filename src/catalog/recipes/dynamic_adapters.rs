//! Reads the adapters that a model finds by name: `lora_config`, and RayLLM's `multiplex_config`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use config::Config;
use pool::{Bytes, Span};

use super::engine_config::with_environment;
use super::engine_fields::CANDLE;
use super::recipe::Recipe;
use crate::documents::{CatalogError, Diagnostics, LoraConfig, ModelDocument, limits};
use crate::engines;
use crate::weights::adapter_names::last_of;
use crate::weights::{
    AdapterBucket, AdapterPlace, AdapterRoom, Bucket, BucketUri, DynamicAdapters, Fetch, GgufFiles,
    Origin, Scheme, hub_cache,
};

const PATH: &str = "lora_config.dynamic_lora_loading_path";
/// The default of Ray Serve.
const PER_REPLICA: u32 = 16;
const PER_REPLICA_MAX: u32 = 1000;
/// The highest rank of most adapters.
pub(super) const RANK: u32 = 64;
const RANK_MAX: u32 = 4096;
const GIB_MAX: f64 = 4.0;
const CACHE_GIB: f64 = 32.0;
const CACHE: &str = "lora_config.cache_gib";
/// The folder for adapters from buckets in the model cache.
const CACHE_FOLDER: &str = "model-pool-adapters";
const FETCH_TIMEOUT: Span = Span(30_000);
const FETCH_TIMEOUT_MAX_S: f64 = 3600.0;

pub(crate) fn read(
    document: &ModelDocument,
    engine: Option<&str>,
    config: &Config,
    notes: &mut Diagnostics,
) -> Result<Option<DynamicAdapters>, CatalogError> {
    let section = &document.lora_config;
    let multiplexed = &document.multiplex_config;
    let count = [
        (
            "lora_config.max_num_adapters_per_replica",
            section.max_num_adapters_per_replica,
        ),
        (
            "multiplex_config.max_num_adapters_per_replica",
            multiplexed.max_num_adapters_per_replica,
        ),
        (
            "multiplex_config.max_num_models_per_replica",
            multiplexed.max_num_models_per_replica,
        ),
    ];
    let mut configured = count
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    let first = configured.next();
    for (key, _) in configured {
        let (counts, _) = first.unwrap_or((key, 0));
        notes.warn(key, format!("has no effect: {counts} is given too"));
    }
    let Some(path) = &section.dynamic_lora_loading_path else {
        if let Some((key, _)) = first {
            notes.warn(
                key,
                format!(
                    "has no effect without {PATH}: a replica has all adapters of its model's file"
                ),
            );
        }
        return Ok(None);
    };
    let names = names_of_able();
    let is_able = engine.is_some_and(|engine| names.contains(&engine));
    if !is_able {
        notes.warn(
            PATH,
            format!(
                "has no effect: {} cannot load adapters at run time; these engines can: {}",
                engine.unwrap_or("the engine"),
                names.join(", ")
            ),
        );
        return Ok(None);
    }
    let count = match first {
        None => PER_REPLICA,
        Some((key, value)) => {
            notes.check(key, value, |value| limits::count(value, PER_REPLICA_MAX))?
        }
    };
    let gib = section.max_adapter_gib.unwrap_or(GIB_MAX);
    let bytes_max = notes.check("lora_config.max_adapter_gib", gib, limits::memory_gib)?;
    let place = if path.contains("://") {
        AdapterPlace::Bucket(Box::new(bucket(path, document, bytes_max, config, notes)?))
    } else {
        AdapterPlace::Folder(folder(path, section, notes)?)
    };
    let engine = &document.engine_config;
    let names = [&engine.hf_model_id, &engine.model_path];
    let names = names.into_iter().flatten().chain([&engine.model_id]);
    let aliases = document.pool_config.aliases.iter();
    let bases = names.chain(aliases).chain(&section.base_models);
    for (key, is_given) in [
        (
            "lora_config.max_download_tries",
            section.max_download_tries.is_some(),
        ),
        (
            "multiplex_config.max_download_tries",
            multiplexed.max_download_tries.is_some(),
        ),
    ] {
        if is_given {
            notes.warn(
                key,
                "has no effect: every request for a missing adapter looks it up again",
            );
        }
    }
    Ok(Some(DynamicAdapters {
        place,
        room: AdapterRoom {
            count,
            rank: rank(document, notes)?,
        },
        bytes_max,
        bases: bases
            .map(|name| last_of(name))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        timeout: timeout(
            section
                .download_timeout_s
                .or(multiplexed.download_timeout_s),
            notes,
        )?,
    }))
}

fn folder(
    path: &str,
    section: &LoraConfig,
    notes: &mut Diagnostics,
) -> Result<PathBuf, CatalogError> {
    let folder = notes.path(PATH, path)?;
    if !folder.is_dir() {
        let message = format!(
            "the folder {} does not exist; no adapter is found until it does",
            folder.display()
        );
        notes.warn(PATH, message);
    }
    if section.cache_gib.is_some() {
        notes.warn(
            CACHE,
            format!("has no effect: {PATH} is a folder, and adapters are loaded from there"),
        );
    }
    Ok(folder)
}

fn bucket(
    path: &str,
    document: &ModelDocument,
    bytes_max: Bytes,
    config: &Config,
    notes: &Diagnostics,
) -> Result<AdapterBucket, CatalogError> {
    let uri = BucketUri::parse(path, &[Scheme::S3, Scheme::Gs])
        .map_err(|problem| notes.refuse(PATH, problem))?;
    let gib = document.lora_config.cache_gib.unwrap_or(CACHE_GIB);
    let cache_bytes_max = notes.check(CACHE, gib, limits::memory_gib)?;
    if cache_bytes_max < bytes_max {
        return Err(notes.refuse(
            CACHE,
            format!("is {cache_bytes_max}, and one adapter may take {bytes_max} (lora_config.max_adapter_gib); set at least that much"),
        ));
    }
    // Warnings about this environment are reported where the engine's own environment is read.
    let engine = with_environment(&document.engine_config, &mut Diagnostics::default());
    let env = &engine.env;
    let root = match &config.sources.cache_dir {
        Some(folder) => Some(folder.clone()),
        None => hub_cache::root(env),
    };
    let root = root.and_then(|folder| std::path::absolute(folder).ok());
    let Some(root) = root else {
        return Err(notes.refuse(PATH, "no folder to fetch adapters to: HF_HUB_CACHE, HF_HOME and HOME are not set; set sources.cache_dir"));
    };
    let cache = root.join(CACHE_FOLDER);
    Ok(AdapterBucket {
        fetch: Fetch {
            origin: Origin::Bucket(Bucket::at(uri)),
            id: document.engine_config.model_id.clone(),
            notes: cache.clone(),
            cache,
            extra_files: Vec::new(),
            extra_by: None,
            pickles: false,
            consolidated: false,
            gguf: GgufFiles::None,
            env: env.clone(),
        },
        cache_bytes_max,
    })
}

/// The highest rank: from this section, or else from the engine's own option.
pub(crate) fn rank(document: &ModelDocument, notes: &Diagnostics) -> Result<u32, CatalogError> {
    let own = document.engine_config.engine_kwargs.get("max_lora_rank");
    let own = own.and_then(serde_json::Value::as_i64);
    let field = "lora_config.max_lora_rank";
    match (document.lora_config.max_lora_rank, own) {
        (Some(stated), Some(own)) if stated != own => Err(notes.refuse(
            field,
            format!(
                "is {stated}, and engine_config.engine_kwargs.max_lora_rank is {own}; write it once"
            ),
        )),
        (None, None) => Ok(RANK),
        (stated, own) => notes.check(field, stated.or(own).unwrap_or_default(), |value| {
            limits::count(value, RANK_MAX)
        }),
    }
}

fn timeout(seconds: Option<f64>, notes: &Diagnostics) -> Result<Span, CatalogError> {
    let Some(seconds) = seconds else {
        return Ok(FETCH_TIMEOUT);
    };
    notes.check("lora_config.download_timeout_s", seconds, |seconds| {
        if seconds > 0.0 && seconds <= FETCH_TIMEOUT_MAX_S {
            Ok(Span((seconds * 1000.0).ceil() as u64))
        } else {
            Err(format!(
                "allowed: more than 0, at most {FETCH_TIMEOUT_MAX_S}"
            ))
        }
    })
}

/// Names of the engines that can load adapters at run time.
fn names_of_able() -> Vec<&'static str> {
    let tabled = engines::ENGINES
        .iter()
        .filter(|engine| engine.lora.is_some());
    std::iter::once(CANDLE)
        .chain(tabled.map(|engine| engine.name()))
        .collect()
}

impl Recipe {
    /// The engine's routes for loading adapters at run time.
    pub fn adapter_routes(&self) -> Option<engines::AdapterRoutes> {
        match self {
            Recipe::Candle(_) => Some(engines::ADAPTER_ROUTES),
            Recipe::Server(server) => server.engine.lora.map(|lora| lora.run_time),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => None,
        }
    }
}
