//! RemoteEngine: an OpenAI endpoint of another operator. Reads the keys for the endpoint and refuses keys without meaning for it.
//! Opens no connections and reads no key.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::engine_fields::{refuse_engine_keys, refuse_keys};
use super::remote_url::RemoteUrl;
use crate::documents::{
    CONTEXT_MAX, CatalogError, Diagnostics, EngineConfig, ModelDocument, ScalingConfig, Secret,
    Source, limits,
};

pub(super) const REMOTE: &str = "RemoteEngine";
/// Simultaneous requests to the endpoint, unless the file sets them.
pub(crate) const REMOTE_SEATS: u32 = 20;
const HEALTH_PATH: &str = "/models";
/// Keys of engines on this machine.
const KEYS_OF_ENGINES: &str = "hf_model_id model_path engine_kwargs env command listen program command_prefix revision fetch \
    s3_mirror_config gcs_mirror_config oci_artifact lora_adapters sleep_command wake_command ready_path working_dir";
/// Headers that the pool sets itself, or that concern a single connection.
const HEADERS_OF_THE_POOL: [&str; 13] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// An endpoint, and the settings for requests to it.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteRecipe {
    pub url: RemoteUrl,
    /// The endpoint's name for the model; `None`: the same name.
    pub served_model_name: Option<String>,
    /// `None`: the endpoint requires no key.
    pub key: Option<KeySource>,
    /// A path below the prefix of the URL; a 2xx response means ready.
    pub health_path: String,
    pub headers: BTreeMap<String, Secret>,
    pub context: Option<u32>,
    /// Registered over the API with a plain `http` URL, which may only refer to this machine.
    pub only_loopback: bool,
}

/// The source of the bearer token, read when the model is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A variable of the pool's own environment.
    Environment(String),
    File(PathBuf),
}

pub(crate) fn read(
    engine: &EngineConfig,
    notes: &mut Diagnostics,
) -> Result<RemoteRecipe, CatalogError> {
    refuse_engine_keys(engine, KEYS_OF_ENGINES, notes, not_here)?;
    let Some(url) = engine.url.as_deref() else {
        return Err(notes.refuse(
            "engine_config.url",
            "is missing; set it to the endpoint, such as https://api.example.org/v1",
        ));
    };
    let url = RemoteUrl::parse(url).map_err(|why| notes.refuse("engine_config.url", why))?;
    let served_model_name = served_model_name(engine, notes)?;
    let bounded = |value| limits::count(value, CONTEXT_MAX);
    let context = engine
        .max_total_tokens
        .map(|value| notes.check("engine_config.max_total_tokens", value, bounded))
        .transpose()?;
    Ok(RemoteRecipe {
        url,
        served_model_name,
        key: key(engine, notes)?,
        health_path: health_path(engine, notes)?,
        headers: headers(&engine.headers, notes)?,
        context,
        only_loopback: false,
    })
}

pub(crate) fn served_model_name(
    engine: &EngineConfig,
    notes: &Diagnostics,
) -> Result<Option<String>, CatalogError> {
    let served = engine.served_model_name.as_deref();
    if served.is_some_and(|name| name.trim().is_empty()) {
        return Err(notes.refuse(
            "engine_config.served_model_name",
            "is empty; set it to the endpoint's name for the model, or remove it",
        ));
    }
    Ok(engine.served_model_name.clone())
}

pub(crate) fn health_path(
    engine: &EngineConfig,
    notes: &Diagnostics,
) -> Result<String, CatalogError> {
    let path = engine.health_path.as_deref().unwrap_or(HEALTH_PATH);
    if !path.starts_with('/')
        || path.contains(|letter: char| !letter.is_ascii_graphic() || letter == '#')
    {
        return Err(notes.refuse(
            "engine_config.health_path",
            format!("`{path}` is not a path; write one like {HEALTH_PATH}, relative to the path of the url"),
        ));
    }
    Ok(path.to_owned())
}

pub(crate) fn key(
    engine: &EngineConfig,
    notes: &mut Diagnostics,
) -> Result<Option<KeySource>, CatalogError> {
    if let Some(path) = engine
        .api_key_file
        .as_deref()
        .filter(|path| !path.is_empty())
        && engine.api_key_env.is_none()
    {
        let path = notes.path("engine_config.api_key_file", path)?;
        return Ok(Some(KeySource::File(path)));
    }
    let refuse = |field: &str, problem: &str| {
        let field = format!("engine_config.{field}");
        Err(notes.refuse(&field, problem))
    };
    match (&engine.api_key_env, &engine.api_key_file) {
        (Some(_), Some(_)) => refuse("api_key_env", "and api_key_file are both set; remove one"),
        (Some(name), None) => {
            if name.is_empty() || name.contains(['=', '\0']) {
                // The value may be the key itself and is not repeated.
                refuse(
                    "api_key_env",
                    "is not a valid name of an environment variable; write the variable's name, not the key",
                )
            } else {
                Ok(Some(KeySource::Environment(name.clone())))
            }
        }
        (None, Some(_)) => refuse(
            "api_key_file",
            "is empty; set it to the file that contains the key",
        ),
        (None, None) => Ok(None),
    }
}

pub(crate) fn headers(
    foreign_keys: &BTreeMap<String, Secret>,
    notes: &Diagnostics,
) -> Result<BTreeMap<String, Secret>, CatalogError> {
    let mut headers = BTreeMap::new();
    for (name, value) in foreign_keys {
        let field = format!("engine_config.headers.{name}");
        let lower = name.to_ascii_lowercase();
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if lower.is_empty() || !lower.bytes().all(token) {
            return Err(notes.refuse(&field, "is not a valid name of an HTTP header"));
        }
        if HEADERS_OF_THE_POOL.contains(&lower.as_str()) {
            return Err(notes.refuse(
                &field,
                "is set by the pool itself; the key is set with engine_config.api_key_file or api_key_env",
            ));
        }
        if value.0.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(notes.refuse(&field, "has a value with control characters"));
        }
        if headers.insert(lower, value.clone()).is_some() {
            return Err(notes.refuse(
                &field,
                "is given twice; names must differ by more than case",
            ));
        }
    }
    Ok(headers)
}

/// The message for a key that has no meaning here, since nothing is loaded.
fn not_here(key: &str) -> String {
    let instead = match key {
        "hf_model_id" | "model_path" => "; engine_config.served_model_name names the model there",
        "ready_path" => "; engine_config.health_path is probed instead",
        _ => "",
    };
    format!(
        "has no meaning for a {REMOTE}, which runs on another server and takes no device and no memory here; remove it{instead}"
    )
}

/// Checks the rest of the document: keys without meaning for a remote model, and keys that only a file may set.
pub(crate) fn check_document(
    recipe: &mut RemoteRecipe,
    document: &ModelDocument,
    source: &Source,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let pool = &document.pool_config;
    let keys = "gpus_per_replica memory_gib devices stop_grace";
    refuse_keys("pool_config", pool, keys, notes, not_here)?;
    if document.scaling_config != ScalingConfig::default() {
        return Err(notes.refuse("scaling_config", not_here("")));
    }
    if pool.idle_probe.is_some() {
        return Err(notes.refuse(
            "pool_config.idle_probe",
            format!(
                "has no meaning for a {REMOTE}: the pool sends it no probing requests, which may cost money; remove it"
            ),
        ));
    }
    if *source == Source::Registered && !recipe.url.https {
        if !recipe.url.is_loopback() {
            return Err(notes.refuse(
                "engine_config.url",
                "is http, but only https, or http to this machine, can be registered over the API; use https, or write a model file",
            ));
        }
        recipe.only_loopback = true;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
