//! From `engine_config` to a recipe: which engine, with what. Paths become absolute here, counted
//! from the current directory; nothing is opened.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::config::{Config, Provider, reading};

use super::CatalogError;
use super::engines::{self, ENGINES};
use super::limits::{self, CONTEXT_MAX};
use super::model_file::{ComputeDevice, EngineConfig, Secret};
use super::notes::Notes;
use super::recipe::{CandleRecipe, CommandRecipe, Recipe, SleepCommands};
use super::remote::{self, REMOTE};
use super::server_config::{self, Around};
use super::weights::Fetch;
use super::weights_config::{self, Able};

/// Sequences the embedded engine computes together, unless the file says otherwise.
const CANDLE_CONCURRENCY: u32 = 4;
const CANDLE_CONCURRENCY_MAX: u32 = 1024;
/// Less holds no useful prompt and answer; the engine refuses it.
const CANDLE_CONTEXT_MIN: u32 = 16;
const THREADS_MAX: u32 = 1024;
const READY_PATH: &str = "/health";

const CANDLE: &str = "CandleEngine";
const COMMAND: &str = "CommandEngine";

pub(super) fn recipe(
    engine: &EngineConfig,
    reference_engine: Option<&str>,
    around: &Around,
    config: &Config,
    notes: &mut Notes,
) -> Result<(Recipe, Option<Fetch>), CatalogError> {
    let mut engine = with_environment(engine, notes);
    for name in engine.env.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(notes.refuse(
                "engine_config.env",
                format!("`{name}` is no name of an environment variable"),
            ));
        }
        let kind = engine.engine.as_deref().or(reference_engine);
        if let Some(why) = engines::barred_variable(kind.and_then(engines::find), name) {
            return Err(notes.refuse(&format!("engine_config.env.{name}"), why));
        }
    }
    let kind = engine.engine.as_deref().or(reference_engine);
    if kind != Some(REMOTE) {
        remote::refuse_elsewhere(&engine, notes)?;
    }
    let kind = kind.map(str::to_owned);
    let fetch = match fetching(&engine, kind.as_deref()) {
        Some(how) => weights_config::read(&engine, &how, config, notes)?,
        None => None,
    };
    if let Some(fetch) = &fetch {
        // To its engine it is a folder of this machine.
        engine.model_path = Some(fetch.folder().display().to_string());
        engine.hf_model_id = None;
        engine.revision = None;
        engine.is_fetched = true;
    }
    let engine = &engine;
    let recipe = match kind.as_deref() {
        Some(REMOTE) => remote::read(engine, notes).map(Recipe::Remote)?,
        Some(CANDLE) => candle(engine, around.devices, config, notes).map(Recipe::Candle)?,
        Some(COMMAND) => command(engine, notes).map(Recipe::Command)?,
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

/// How an engine gets weights that are not a folder of this machine; `None`: it gets none from here.
fn fetching(engine: &EngineConfig, kind: Option<&str>) -> Option<weights_config::Engine> {
    let how = |name, able, pickles| weights_config::Engine {
        name,
        able,
        pickles,
    };
    Some(match kind? {
        REMOTE => return None,
        CANDLE => how(CANDLE, Able::PoolOnly, false),
        COMMAND => how(COMMAND, Able::EngineFirst, true),
        other => {
            let kind = engines::find(other)?;
            let able = match kind.reads_gguf {
                true => Able::EngineOnly,
                // In a container the pool's cache has another path, or none.
                false if engine.command_prefix.is_some() => Able::EngineFirst,
                false => Able::PoolFirst,
            };
            how(kind.name(), able, true)
        }
    })
}

/// The variables of Ray's form among the engine's own, which win; and those of the pool's own environment
/// that it names.
fn with_environment(engine: &EngineConfig, notes: &mut Notes) -> EngineConfig {
    let mut engine = engine.clone();
    let own = std::mem::take(&mut engine.env);
    for name in engine.env_vars_to_propogate.iter().flatten() {
        match std::env::var(name) {
            Ok(value) => {
                engine.env.insert(name.clone(), Secret(value));
            }
            Err(_) => notes.warn(
                "engine_config.env_vars_to_propogate",
                format!("{name} is not set in the environment of model-pool, so the engine does not get it"),
            ),
        }
    }
    let of_ray = engine.runtime_env.iter().flat_map(|it| it.env_vars.clone());
    engine.env.extend(of_ray.collect::<Vec<_>>());
    engine.env.extend(own);
    engine
}

fn what_is_run() -> String {
    let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name()).collect();
    format!(
        "this version runs {CANDLE} (embedded), {}, {REMOTE}, an endpoint that somebody else runs, and {COMMAND}, which starts any program that speaks the OpenAI API by engine_config.command",
        names.join(", ")
    )
}

fn not_run(engine: &str) -> String {
    let known = ENGINES.iter().flat_map(|engine| engine.names).copied();
    let hint = reading::nearest(engine, [CANDLE, COMMAND, REMOTE].into_iter().chain(known))
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default();
    format!("`{engine}` is not run; {}{hint}", what_is_run())
}

pub(super) fn context(
    engine: &EngineConfig,
    least: u32,
    notes: &Notes,
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

fn candle(
    engine: &EngineConfig,
    devices: u32,
    config: &Config,
    notes: &mut Notes,
) -> Result<CandleRecipe, CatalogError> {
    only_of_servers(engine, notes)?;
    let foreign = [
        ("command", engine.command.is_some()),
        ("listen", engine.listen.is_some()),
        ("ready_path", engine.ready_path.is_some()),
        ("served_model_name", engine.served_model_name.is_some()),
        ("working_dir", engine.working_dir.is_some()),
        ("sleep_command", engine.sleep_command.is_some()),
        ("wake_command", engine.wake_command.is_some()),
    ];
    if let Some((key, _)) = foreign.iter().find(|(_, given)| *given) {
        return Err(notes.refuse(
            &format!("engine_config.{key}"),
            format!("is read with type: {COMMAND} only; remove it, or change the type"),
        ));
    }
    let Some(path) = engine
        .model_path
        .as_deref()
        .or(engine.hf_model_id.as_deref())
    else {
        return Err(notes.refuse(
            "engine_config.model_path",
            "is missing; name the local folder with config.json, tokenizer.json and model.safetensors",
        ));
    };
    let model_path = absolute("engine_config.model_path", path, notes)?;
    warn_of_paths(engine, &model_path, notes);
    let EngineKwargs {
        concurrency,
        threads,
        device,
    } = kwargs(engine, notes)?;
    let concurrency = concurrency
        .map(|value| {
            let bounded = |value| limits::count(value, CANDLE_CONCURRENCY_MAX);
            notes.check("engine_config.engine_kwargs.concurrency", value, bounded)
        })
        .transpose()?;
    let threads = threads
        .map(|value| {
            let bounded = |value| limits::count(value, THREADS_MAX);
            notes.check("engine_config.engine_kwargs.threads", value, bounded)
        })
        .transpose()?;
    let device = device.unwrap_or_default();
    check_device(device, devices, config, notes)?;
    Ok(CandleRecipe {
        model_path,
        context: context(engine, CANDLE_CONTEXT_MIN, notes)?,
        concurrency: concurrency.unwrap_or(CANDLE_CONCURRENCY),
        threads,
        device,
        env: engine.env.clone(),
    })
}

/// The options of the embedded engine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineKwargs {
    /// Sequences that are computed together.
    concurrency: Option<i64>,
    /// Processor threads.
    threads: Option<i64>,
    device: Option<ComputeDevice>,
}

fn kwargs(engine: &EngineConfig, notes: &Notes) -> Result<EngineKwargs, CatalogError> {
    let given = Value::Object(engine.engine_kwargs.clone());
    reading::json_value(&given)
        .map_err(|flaw| notes.refuse("engine_config.engine_kwargs", flaw.to_string()))
}

/// Keys that only the engines of the table read.
fn only_of_servers(engine: &EngineConfig, notes: &Notes) -> Result<(), CatalogError> {
    let given = [
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
    ];
    match given.iter().find(|(_, given, _)| *given) {
        Some((key, _, instead)) => Err(notes.refuse(
            &format!("engine_config.{key}"),
            format!("is not read with type: {CANDLE} or {COMMAND}; remove it, or with {COMMAND} {instead}"),
        )),
        None => Ok(()),
    }
}

/// A device that this binary, or this pool, cannot give is refused before anything is loaded.
fn check_device(
    device: ComputeDevice,
    devices: u32,
    config: &Config,
    notes: &mut Notes,
) -> Result<(), CatalogError> {
    let field = "engine_config.engine_kwargs.device";
    let built = match device {
        ComputeDevice::Cpu => true,
        ComputeDevice::Cuda => cfg!(feature = "cuda"),
        ComputeDevice::Metal => cfg!(feature = "metal"),
    };
    let name = device.as_str();
    if !built {
        return Err(notes.refuse(
            field,
            format!("{name} is not in this binary; build it with `cargo build --release --features {name}`, or write cpu"),
        ));
    }
    if device == ComputeDevice::Cuda && config.inventory.provider == Provider::Host {
        return Err(notes.refuse(
            field,
            "cuda needs GPUs, and inventory.provider is host; write cpu, or another provider",
        ));
    }
    if device != ComputeDevice::Cpu && devices > 1 {
        return Err(notes.refuse(
            field,
            format!("{CANDLE} computes on one GPU, and a replica of this model takes {devices}; set pool_config.gpus_per_replica to 1"),
        ));
    }
    if device == ComputeDevice::Cpu && config.inventory.provider == Provider::Nvml {
        notes.warn(
            field,
            "is cpu, and inventory.provider is nvml: the model reserves GPU memory that it does not use",
        );
    }
    Ok(())
}

fn command(engine: &EngineConfig, notes: &mut Notes) -> Result<CommandRecipe, CatalogError> {
    only_of_servers(engine, notes)?;
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
            format!("`{ready_path}` is no path; write one like {READY_PATH}"),
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
        .map(|path| absolute("engine_config.working_dir", path, notes))
        .transpose()?;
    let recipe = CommandRecipe {
        command,
        listen: engine.listen.unwrap_or_default(),
        ready_path,
        env: engine.env.clone(),
        served_model_name: engine.served_model_name.clone(),
        working_dir,
        model_path: command_model(engine, notes)?,
        context: context(engine, 1, notes)?,
        sleep: sleep_commands(engine, notes)?,
    };
    recipe
        .check()
        .map_err(|error| notes.refuse(&error.key.clone(), error.explain()))?;
    Ok(recipe)
}

/// Both or none: what sleeps has to wake.
fn sleep_commands(
    engine: &EngineConfig,
    notes: &Notes,
) -> Result<Option<SleepCommands>, CatalogError> {
    let (sleep, wake) = match (&engine.sleep_command, &engine.wake_command) {
        (None, None) => return Ok(None),
        (Some(sleep), Some(wake)) => (sleep, wake),
        (Some(_), None) => {
            let why = "is missing, and engine_config.sleep_command is there; write both or none";
            return Err(notes.refuse("engine_config.wake_command", why));
        }
        (None, Some(_)) => {
            let why = "is missing, and engine_config.wake_command is there; write both or none";
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

/// A local path made absolute, so that it holds in any working directory, or a name on Hugging
/// Face as it stands.
fn command_model(engine: &EngineConfig, notes: &mut Notes) -> Result<Option<String>, CatalogError> {
    if let Some(path) = &engine.model_path {
        let path = absolute("engine_config.model_path", path, notes)?;
        warn_of_paths(engine, &path, notes);
        return Ok(Some(path.display().to_string()));
    }
    match &engine.hf_model_id {
        Some(id) if Path::new(id).is_dir() => {
            let path = absolute("engine_config.hf_model_id", id, notes)?;
            Ok(Some(path.display().to_string()))
        }
        other => Ok(other.clone()),
    }
}

pub(super) fn warn_of_paths(engine: &EngineConfig, path: &Path, notes: &mut Notes) {
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
                "there is no {}; loads will fail until it is there",
                path.display()
            ),
        );
    }
}

pub(super) fn absolute(field: &str, path: &str, notes: &Notes) -> Result<PathBuf, CatalogError> {
    std::path::absolute(path)
        .map_err(|error| notes.refuse(field, format!("`{path}` is no usable path: {error}")))
}
