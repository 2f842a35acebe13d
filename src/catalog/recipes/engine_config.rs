//! Turns `engine_config` into a recipe. Makes paths absolute, but opens no files.

use config::Config;

use super::candle_config::candle;
use super::engine_fields::{
    CANDLE, COMMAND, context, only_of_servers, program, refuse_engine_keys, warn_of_paths,
};
use super::engine_names::{not_run, what_is_run};
use super::ray_serve::RAY_SERVE;
use super::recipe::{CommandRecipe, Recipe, SleepCommands};
use super::remote::REMOTE;
use super::server_config::EntryContext;
use super::weights_config::Downloader;
use super::{ray_serve, remote, server_config, weights_config};
use crate::documents::{CatalogError, Diagnostics, EngineConfig, Secret};
use crate::engines;
use crate::weights::Fetch;

const READY_PATH: &str = "/health";

pub(crate) fn recipe(
    engine: &EngineConfig,
    reference_engine: Option<&str>,
    around: &EntryContext,
    config: &Config,
    notes: &mut Diagnostics,
) -> Result<(Recipe, Option<Fetch>), CatalogError> {
    let mut engine = with_environment(engine, notes);
    for name in engine.env.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(notes.refuse(
                "engine_config.env",
                format!("`{name}` is not a valid name of an environment variable"),
            ));
        }
        let kind = engine.engine.as_deref().or(reference_engine);
        if let Some(why) = engines::barred_variable(kind.and_then(engines::find), name) {
            return Err(notes.refuse(&format!("engine_config.env.{name}"), why));
        }
    }
    let kind = engine.engine.as_deref().or(reference_engine);
    if ![Some(REMOTE), Some(RAY_SERVE)].contains(&kind) {
        let keys = "url api_key_env api_key_file health_path headers";
        refuse_engine_keys(&engine, keys, notes, |_| {
            format!("is read with type: {REMOTE} only; remove it, or change the type")
        })?;
    }
    if kind != Some(RAY_SERVE) {
        let keys = "address token_file proxy accelerator_type import_path args deployments";
        refuse_engine_keys(&engine, keys, notes, |_| {
            format!("is read with type: {RAY_SERVE} only; remove it, or change the type")
        })?;
    }
    let kind = kind.map(str::to_owned);
    if engine.gguf_file.is_some() && kind.as_deref() != Some(CANDLE) {
        return Err(notes.refuse(
            "engine_config.gguf_file",
            format!("is only read with type: {CANDLE}; name the file in engine_config.model_path, or give the engine its own option"),
        ));
    }
    let fetch = match fetching(&engine, kind.as_deref()) {
        Some(how) => weights_config::read(&engine, &how, config, notes)?,
        None => None,
    };
    if let Some(fetch) = &fetch {
        // The engine sees a local folder.
        engine.model_path = Some(fetch.model_path().display().to_string());
        engine.hf_model_id = None;
        engine.revision = None;
        engine.is_fetched = true;
    }
    let engine = &engine;
    let recipe = match kind.as_deref() {
        Some(REMOTE) => remote::read(engine, notes).map(Recipe::Remote)?,
        Some(RAY_SERVE) => {
            let recipe = ray_serve::read(engine, around, config, notes)?;
            Recipe::RayServe(Box::new(recipe))
        }
        Some(CANDLE) => candle(engine, around, config, notes).map(Recipe::Candle)?,
        Some(COMMAND) => command(engine, around.spans_nodes, notes).map(Recipe::Command)?,
        Some(other) => match engines::find(other) {
            Some(kind) => {
                let recipe = server_config::server(kind, engine, around, notes)?;
                Recipe::Server(Box::new(recipe))
            }
            None => return Err(notes.refuse("engine_config.type", not_run(other))),
        },
        None => {
            return Err(notes.refuse(
                "engine_config.type",
                format!("is missing; {}", what_is_run()),
            ));
        }
    };
    Ok((recipe, fetch))
}

/// Describes how an engine gets weights that are not in a local folder. `None` means that the pool provides none.
fn fetching(engine: &EngineConfig, kind: Option<&str>) -> Option<weights_config::Engine> {
    let how = |name, able, pickles| weights_config::Engine {
        name,
        able,
        pickles,
    };
    Some(match kind? {
        REMOTE | RAY_SERVE => return None,
        CANDLE => how(CANDLE, Downloader::PoolOnly, false),
        COMMAND => how(COMMAND, Downloader::EngineFirst, true),
        other => {
            let kind = engines::find(other)?;
            let able = if kind.reads_gguf {
                Downloader::EngineOnly
            } else if engine.command_prefix.is_some() {
                // In a container the pool's cache has a different path, or is not mounted.
                Downloader::EngineFirst
            } else {
                Downloader::PoolFirst
            };
            how(kind.name(), able, true)
        }
    })
}

/// Adds the variables of Ray's form, and the variables of the pool's environment that it names. The engine's own variables take
/// precedence.
pub(super) fn with_environment(engine: &EngineConfig, notes: &mut Diagnostics) -> EngineConfig {
    let mut engine = engine.clone();
    let own = std::mem::take(&mut engine.env);
    for name in engine.env_vars_to_propogate.iter().flatten() {
        match std::env::var(name) {
            Ok(value) => {
                engine.env.insert(name.clone(), Secret(value));
            }
            Err(_) => notes.warn(
                "engine_config.env_vars_to_propogate",
                format!("{name} is not set in the environment of model-pool, so the engine does not receive it"),
            ),
        }
    }
    let of_ray = engine
        .runtime_env
        .iter()
        .flat_map(|ray| ray.env_vars.clone());
    engine.env.extend(of_ray.collect::<Vec<_>>());
    engine.env.extend(own);
    engine
}

fn command(
    engine: &EngineConfig,
    spans_nodes: bool,
    notes: &mut Diagnostics,
) -> Result<CommandRecipe, CatalogError> {
    let keys = "program command_prefix revision lora_adapters";
    only_of_servers(engine, keys, notes)?;
    if !engine.engine_kwargs.is_empty() {
        return Err(notes.refuse(
            "engine_config.engine_kwargs",
            format!("is not read with type: {COMMAND} ({CANDLE} and the other types read it); write the engine's arguments into engine_config.command"),
        ));
    }
    let command = engine.command.clone().unwrap_or_default();
    if command
        .first()
        .is_none_or(|program| program.trim().is_empty())
    {
        return Err(notes.refuse(
            "engine_config.command",
            "is missing or has no program; write a list such as [llama-server, --model, \"{{ model_path }}\", --port, \"{{ port }}\"]",
        ));
    }
    let ready_path = engine
        .ready_path
        .clone()
        .unwrap_or_else(|| READY_PATH.to_owned());
    if !ready_path.starts_with('/')
        || ready_path.contains(|letter: char| !letter.is_ascii_graphic())
    {
        return Err(notes.refuse(
            "engine_config.ready_path",
            format!("`{ready_path}` is not a path; write one like {READY_PATH}"),
        ));
    }
    if engine
        .served_model_name
        .as_deref()
        .is_some_and(|name| name.trim().is_empty())
    {
        return Err(notes.refuse(
            "engine_config.served_model_name",
            "is empty; name it or remove it",
        ));
    }
    let working_dir = engine
        .working_dir
        .as_deref()
        .map(|path| notes.path("engine_config.working_dir", path))
        .transpose()?;
    let mut command = command;
    if let Some(word) = command.first_mut() {
        *word = program(
            "engine_config.command[0]",
            word,
            working_dir.as_deref(),
            notes,
        )?;
    }
    let recipe = CommandRecipe {
        command,
        listen: engine.listen.unwrap_or_default(),
        ready_path,
        env: engine.env.clone(),
        served_model_name: engine.served_model_name.clone(),
        working_dir,
        model_path: command_model(engine, notes)?,
        context: context(engine, 1, notes)?,
        spans_nodes,
        sleep: sleep_commands(engine, notes)?,
    };
    recipe
        .check()
        .map_err(|error| notes.refuse(&error.key.clone(), error.explain()))?;
    Ok(recipe)
}

/// Requires both commands or neither: an engine that sleeps must be able to wake.
fn sleep_commands(
    engine: &EngineConfig,
    notes: &Diagnostics,
) -> Result<Option<SleepCommands>, CatalogError> {
    let (sleep, wake) = match (&engine.sleep_command, &engine.wake_command) {
        (None, None) => return Ok(None),
        (Some(sleep), Some(wake)) => (sleep, wake),
        (Some(_), None) => {
            let why = "is missing, but engine_config.sleep_command is set; set both or neither";
            return Err(notes.refuse("engine_config.wake_command", why));
        }
        (None, Some(_)) => {
            let why = "is missing, but engine_config.wake_command is set; set both or neither";
            return Err(notes.refuse("engine_config.sleep_command", why));
        }
    };
    for (key, words) in [("sleep_command", sleep), ("wake_command", wake)] {
        let field = format!("engine_config.{key}");
        if words
            .first()
            .is_none_or(|program| program.trim().is_empty())
        {
            let why = "has no program; write a list such as [cuda-checkpoint, --toggle, --pid, \"{{ pid }}\"]";
            return Err(notes.refuse(&field, why));
        }
        SleepCommands::render(words, &field, 1)
            .map_err(|error| notes.refuse(&error.key.clone(), error.problem.clone()))?;
    }
    Ok(Some(SleepCommands {
        sleep: sleep.clone(),
        wake: wake.clone(),
    }))
}

/// A local path, made absolute to be valid in any working directory, or a Hugging Face name unchanged.
fn command_model(
    engine: &EngineConfig,
    notes: &mut Diagnostics,
) -> Result<Option<String>, CatalogError> {
    if let Some(path) = &engine.model_path {
        let path = notes.path("engine_config.model_path", path)?;
        warn_of_paths(engine, &path, notes);
        return Ok(Some(path.display().to_string()));
    }
    match &engine.hf_model_id {
        Some(id) if notes.is_local(id) => {
            let path = notes.path("engine_config.hf_model_id", id)?;
            Ok(Some(path.display().to_string()))
        }
        other => Ok(other.clone()),
    }
}
