//! Reads the fields of `engine_config` that several engines share.

use std::path::Path;

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

/// Keys that only engines from the table read.
pub(super) fn only_of_servers(
    engine: &EngineConfig,
    is_command: bool,
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let foreign_keys = [
        (
            "program",
            engine.program.is_some(),
            "write the program into engine_config.command",
        ),
        (
            "command_prefix",
            engine.command_prefix.is_some(),
            "write it into engine_config.command",
        ),
        (
            "revision",
            engine.revision.is_some(),
            "write it into engine_config.command",
        ),
        (
            "lora_adapters",
            is_command && !engine.lora_adapters.is_empty(),
            "write them into engine_config.command, and their names into pool_config.aliases",
        ),
    ];
    match foreign_keys.iter().find(|(_, foreign_keys, _)| *foreign_keys) {
        Some((key, _, instead)) => Err(notes.refuse(
            &format!("engine_config.{key}"),
            format!("is not read with type: {CANDLE} or {COMMAND}; remove it, or with {COMMAND} {instead}"),
        )),
        None => Ok(()),
    }
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
