//! Reads the fields of `engine_config` that several engines share.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::documents::fields::{fields_of, given_keys};
use crate::documents::{CONTEXT_MAX, CatalogError, Diagnostics, EngineConfig, limits};

pub(crate) const CANDLE: &str = "CandleEngine";
pub(super) const COMMAND: &str = "CommandEngine";

pub(crate) fn context(
    engine: &EngineConfig,
    least: u32,
    notes: &Diagnostics,
) -> Result<Option<u32>, CatalogError> {
    let bounded = |value| match limits::count(value, CONTEXT_MAX) {
        Ok(tokens) if tokens >= least => Ok(tokens),
        _ => Err(format!("allowed: {least} to {CONTEXT_MAX}")),
    };
    engine
        .max_total_tokens
        .map(|value| notes.check("engine_config.max_total_tokens", value, bounded))
        .transpose()
}

/// Refuses the first of these keys, separated by spaces, that a section sets. `message` gets the key.
pub(super) fn refuse_keys<T: DeserializeOwned + Serialize>(
    name: &str,
    section: &T,
    keys: &str,
    notes: &Diagnostics,
    message: impl FnOnce(&str) -> String,
) -> Result<(), CatalogError> {
    let is_key = |key| fields_of::<T>().contains(&key);
    debug_assert!(keys.split(' ').all(is_key), "{keys}");
    let given = given_keys(section);
    match keys.split(' ').find(|key| given.contains_key(*key)) {
        None => Ok(()),
        Some(key) => Err(notes.refuse(&format!("{name}.{key}"), message(key))),
    }
}

/// Refuses the first of these keys that `engine_config` sets.
pub(super) fn refuse_engine_keys(
    engine: &EngineConfig,
    keys: &str,
    notes: &Diagnostics,
    message: impl FnOnce(&str) -> String,
) -> Result<(), CatalogError> {
    refuse_keys("engine_config", engine, keys, notes, message)
}

/// Refuses keys that only engines from the table read.
pub(super) fn only_of_servers(
    engine: &EngineConfig,
    keys: &str,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    refuse_engine_keys(engine, keys, notes, |key| {
        let instead = match key {
            "program" => "write the program into engine_config.command",
            "lora_adapters" => {
                "write them into engine_config.command, and their names into pool_config.aliases"
            }
            _ => "write it into engine_config.command",
        };
        format!(
            "is not read with type: {CANDLE} or {COMMAND}; remove it, or with {COMMAND} {instead}"
        )
    })
}

pub(super) fn warn_of_paths(engine: &EngineConfig, path: &Path, notes: &mut Diagnostics) {
    if engine.model_path.is_some() && engine.hf_model_id.is_some() {
        notes.warn(
            "engine_config.hf_model_id",
            "has no effect: engine_config.model_path is used",
        );
    }
    if !path.exists() && !engine.is_fetched {
        let key = if engine.model_path.is_some() {
            "model_path"
        } else {
            "hf_model_id"
        };
        notes.warn(
            &format!("engine_config.{key}"),
            format!(
                "there is no {}; loads will fail until it exists",
                path.display()
            ),
        );
    }
}

/// A program's name, or its path, made absolute.
pub(crate) fn program(
    field: &str,
    program: &str,
    working_dir: Option<&Path>,
    notes: &mut Diagnostics,
) -> Result<String, CatalogError> {
    let is_name = !program.contains('/') || program.contains("{{");
    // The system resolves the program relative to the working directory.
    let is_in_working_dir = || working_dir.is_some_and(|folder| folder.join(program).exists());
    if is_name || is_in_working_dir() {
        return Ok(program.to_owned());
    }
    let path = notes.path(field, program)?;
    Ok(if path.exists() {
        path.display().to_string()
    } else {
        program.to_owned()
    })
}
