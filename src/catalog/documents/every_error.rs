//! Re-reads a model file without its wrong values until no new errors appear, and reports all errors.

use reading::{SkippedPaths, WrongValue};

use super::error::CatalogError;
use super::fields::fields_of;
use super::model_file::{
    DeploymentConfig, EngineConfig, LoraConfig, MultiplexConfig, PoolConfig, ScalingConfig,
};

/// Later errors are mostly consequences of earlier ones.
const ERRORS_MAX: usize = 20;
/// Keys that determine the meaning of other keys in `engine_config`.
const DECISIVE: [&str; 7] = [
    "engine_config.command",
    "engine_config.hf_model_id",
    "engine_config.import_path",
    "engine_config.model_id",
    "engine_config.model_path",
    "engine_config.type",
    "engine_config.url",
];

/// Adds the errors that remain without the wrong values to the first error. `read` reads the file without these values.
pub(crate) fn every_error<T>(
    first: CatalogError,
    read: impl Fn(&SkippedPaths) -> Result<T, CatalogError>,
) -> CatalogError {
    let mut left_out = SkippedPaths::default();
    let mut errors = Vec::new();
    let mut next = Some(first);
    while let Some(error) = next.take() {
        let (path, message) = (error.path().to_owned(), error.to_string());
        // Leaving a value out has no effect on files of older forms: the same error occurs again.
        if errors
            .iter()
            .any(|known: &CatalogError| known.to_string() == message)
        {
            break;
        }
        if !is_consequence(&path, &message, &left_out) {
            errors.push(error);
        }
        if errors.len() < ERRORS_MAX && left_out.add(&path) {
            next = read(&left_out).err();
        }
    }
    match errors.pop() {
        Some(only) if errors.is_empty() => only,
        Some(last) => {
            errors.push(last);
            CatalogError::Several { errors }
        }
        None => CatalogError::Several { errors },
    }
}

/// Returns true if the error only exists because a value was left out.
fn is_consequence(path: &str, message: &str, left_out: &SkippedPaths) -> bool {
    let is_decided_otherwise = DECISIVE.iter().any(|key| left_out.touches(key))
        && (path.is_empty() || path.starts_with("engine_config"));
    left_out.contains(path) || is_decided_otherwise || left_out.explains(path, message)
}

/// Returns the same error; for an unknown key, it names the section that the key belongs to.
pub(crate) fn with_section(wrong: &WrongValue) -> WrongValue {
    let sections = [
        ("engine_config", fields_of::<EngineConfig>()),
        ("pool_config", fields_of::<PoolConfig>()),
        ("scaling_config", fields_of::<ScalingConfig>()),
        ("deployment_config", fields_of::<DeploymentConfig>()),
        ("lora_config", fields_of::<LoraConfig>()),
        ("multiplex_config", fields_of::<MultiplexConfig>()),
    ];
    let has = |keys: &[&str]| wrong.unknown_key().is_some_and(|key| keys.contains(&key));
    let known = sections.iter().find(|(_, keys)| has(keys));
    known.map_or_else(|| wrong.clone(), |(section, _)| wrong.belonging_to(section))
}
