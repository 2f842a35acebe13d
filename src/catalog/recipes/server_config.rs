//! Turns `engine_config` into a recipe for an engine from the table: reads the keys with dedicated meanings and `engine_kwargs`,
//! and refuses contradictions. Opens no files.

use std::path::Path;

use serde_json::Value;

use super::engine_fields::{context, program, refuse_engine_keys, warn_of_paths};
use super::{adapters, candle_models};
use crate::documents::{CatalogError, Diagnostics, EngineConfig, Listen, SEATS_MAX, Sleep, limits};
use crate::engines::{CheckedFlags, Engine, ServerRecipe};
use crate::weights::AdapterRoom;

/// Settings of a model file outside `engine_config`.
pub(crate) struct EntryContext {
    /// Devices per replica.
    pub devices: u32,
    /// Devices per replica from the document alone, ignoring the reference.
    pub devices_in_document: u32,
    /// `deployment_config.max_ongoing_requests`.
    pub seats: Option<u32>,
    /// `pool_config.nodes` is more than 1.
    pub spans_nodes: bool,
    /// Room for adapters loaded with the model or at run time.
    pub adapter_room: AdapterRoom,
    pub sleep: Sleep,
    /// The memory of a replica is set in the file or in the reference.
    pub has_memory_figure: bool,
    /// Models are placed in host memory.
    pub in_host_memory: bool,
}

pub(crate) fn server(
    kind: &'static Engine,
    engine: &EngineConfig,
    around: &EntryContext,
    notes: &mut Diagnostics,
) -> Result<ServerRecipe, CatalogError> {
    let name = kind.name();
    let foreign = "command ready_path sleep_command wake_command";
    refuse_engine_keys(engine, foreign, notes, |_| {
        format!(
            "is read with type: CommandEngine only; {name} knows its own. Options go into engine_config.engine_kwargs, another program into engine_config.program"
        )
    })?;
    for (key, text) in [
        ("program", &engine.program),
        ("revision", &engine.revision),
        ("served_model_name", &engine.served_model_name),
        ("hf_model_id", &engine.hf_model_id),
    ] {
        let field = format!("engine_config.{key}");
        match text.as_deref() {
            Some(text) if text.trim().is_empty() => {
                return Err(notes.refuse(&field, "is empty; name it or remove it"));
            }
            // The engine would parse it as a flag.
            Some(text) if text.starts_with('-') || text.contains(char::is_control) => {
                return Err(notes.refuse(
                    &field,
                    "must not begin with `-` or contain control characters",
                ));
            }
            _ => {}
        }
    }
    if around.devices > kind.devices_max {
        return Err(notes.refuse(
            "pool_config.gpus_per_replica",
            format!(
                "{name} supports at most {} GPUs per replica, but {} are configured",
                kind.devices_max, around.devices
            ),
        ));
    }
    if around.in_host_memory && kind.needs_gpu {
        return Err(notes.refuse(
            "engine_config.type",
            format!("{name} requires GPUs, but inventory.provider is host; choose another type or provider"),
        ));
    }
    if around.in_host_memory && around.sleep != Sleep::Off {
        return Err(notes.refuse(
            "pool_config.sleep",
            format!("{name} only sleeps on GPUs, but inventory.provider is host; write off"),
        ));
    }
    let (model, is_local) = model(kind, engine, notes)?;
    if is_local {
        warn_of_context(engine, &model, notes);
    }
    let mut kwargs = engine.engine_kwargs.clone();
    let share_per_mille = match kind.share_key {
        Some(key) => {
            let value = kwargs.shift_remove(key);
            let value = value.or_else(|| kwargs.shift_remove(&key.replace('_', "-")));
            share(key, value, notes)?
        }
        None => None,
    };
    let flags = kind.flags.check(&kwargs).map_err(|flaw| {
        notes.refuse(
            &format!("engine_config.engine_kwargs.{}", flaw.key),
            flaw.problem,
        )
    })?;
    for (key, why) in &flags.warnings {
        notes.warn(&format!("engine_config.engine_kwargs.{key}"), why.clone());
    }
    if is_local && engine.revision.is_some() {
        notes.warn("engine_config.revision", "has no effect on a local folder");
    }
    let listen = match engine.listen {
        Some(Listen::Socket) if !kind.sockets => {
            return Err(notes.refuse(
                "engine_config.listen",
                format!("{name} listens on a port only; write port, or remove it"),
            ));
        }
        Some(Listen::At(_)) => {
            return Err(notes.refuse(
                "engine_config.listen",
                format!("is an address, which only a CommandEngine supports; the pool assigns a port to {name}: write port, or remove it"),
            ));
        }
        Some(listen) => listen,
        // The routes for sleep require a mode in which every client can run code in the engine. A socket keeps out other accounts
        // of the machine. A container has a separate file system.
        None if around.sleep != Sleep::Off && kind.sockets && engine.command_prefix.is_none() => {
            Listen::Socket
        }
        None => Listen::Port,
    };
    let working_dir = engine
        .working_dir
        .as_deref()
        .map(|path| notes.path("engine_config.working_dir", path))
        .transpose()?;
    // With a prefix, this is a path in the container.
    let own_program = engine.program.as_deref();
    let own_program = match own_program.filter(|_| engine.command_prefix.is_none()) {
        Some(own) => {
            let folder = working_dir.as_deref();
            Some(program("engine_config.program", own, folder, notes)?)
        }
        None => engine.program.clone(),
    };
    let prefix = engine.command_prefix.clone().unwrap_or_default();
    if engine.command_prefix.as_ref().is_some_and(Vec::is_empty) {
        return Err(notes.refuse("engine_config.command_prefix", "is empty; remove it"));
    }
    let recipe = ServerRecipe {
        engine: kind,
        program: own_program,
        prefix,
        context: context_of(kind, engine, notes)?,
        seats: seats(kind, &flags, around.seats, notes)?,
        model,
        is_local,
        revision: engine.revision.clone(),
        share_per_mille,
        sleep: around.sleep,
        listen,
        flags,
        env: engine.env.clone(),
        served_model_name: engine.served_model_name.clone(),
        adapters: adapters::of_engine(kind, engine, notes)?,
        run_time_adapters: Some(around.adapter_room).filter(|room| room.count > 0),
        working_dir,
    };
    recipe.check_templates().map_err(|problem| {
        // The message itself names the key.
        let (field, problem) = problem
            .split_once(": ")
            .unwrap_or(("engine_config.command_prefix", &problem));
        notes.refuse(field, problem)
    })?;
    Ok(recipe)
}

/// An absolute path, or the name on Hugging Face; the flag is true for a path.
fn model(
    kind: &Engine,
    engine: &EngineConfig,
    notes: &mut Diagnostics,
) -> Result<(String, bool), CatalogError> {
    let (field, path) = match (&engine.model_path, &engine.hf_model_id) {
        (Some(path), _) => ("engine_config.model_path", path),
        (None, Some(id)) if notes.is_local(id) => ("engine_config.hf_model_id", id),
        (None, Some(id)) => return Ok((id.clone(), false)),
        (None, None) => {
            return Err(notes.refuse(
                "engine_config.model_path",
                format!("is missing; name the model's local {}, or its name on Hugging Face in engine_config.hf_model_id", if kind.reads_gguf { "GGUF file" } else { "folder" }),
            ));
        }
    };
    let path = notes.path(field, path)?;
    warn_of_paths(engine, &path, notes);
    let path = if kind.reads_gguf && path.is_dir() {
        model_files::gguf_of(&path)
            .map_err(|error| notes.refuse(field, error.to_string()))?
            .ok_or_else(|| {
                notes.refuse(
                    field,
                    format!(
                        "{} contains no GGUF file, which {} requires",
                        path.display(),
                        kind.name()
                    ),
                )
            })?
    } else {
        path
    };
    match path.to_str() {
        Some(text) if !text.starts_with('-') => Ok((text.to_owned(), true)),
        _ => Err(notes.refuse(field, "is not a path that can be written on a command line")),
    }
}

fn context_of(
    kind: &Engine,
    engine: &EngineConfig,
    notes: &mut Diagnostics,
) -> Result<Option<u32>, CatalogError> {
    let tokens = context(engine, 1, notes)?;
    if tokens.is_some() && kind.devices_max == 1 {
        notes.warn(
            "engine_config.max_total_tokens",
            format!("has no effect: {} uses the model's own length; engine_kwargs.max_batch_tokens limits a batch", kind.name()),
        );
    }
    Ok(tokens)
}

/// Warns if the context exceeds the trained context: some engines refuse it, others extrapolate.
fn warn_of_context(engine: &EngineConfig, model: &str, notes: &mut Diagnostics) {
    let path = Path::new(model);
    // Skips special files: reading a named pipe would block. The load reports them.
    let is_there = path.is_file() || path.join("config.json").is_file();
    let own = is_there.then(|| candle_models::architecture(path));
    let own = own.and_then(|read| read.ok()?.context);
    if let (Some(configured), Some(most)) = (engine.max_total_tokens, own)
        && u64::try_from(configured).is_ok_and(|configured| configured > most)
    {
        notes.warn(
            "engine_config.max_total_tokens",
            format!("is {configured}, but the model was trained for {most} tokens; the engine may refuse it, or respond badly beyond that"),
        );
    }
}

/// The share of each device set in the file, in thousandths.
fn share(
    key: &str,
    value: Option<Value>,
    notes: &Diagnostics,
) -> Result<Option<u32>, CatalogError> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let field = format!("engine_config.engine_kwargs.{key}");
    let per_mille = value.as_f64().map(|share| (share * 1000.0).floor());
    match per_mille {
        // At most 1,000.
        Some(share) if (1.0..=1000.0).contains(&share) => Ok(Some(share as u32)),
        _ => Err(notes.refuse(
            &field,
            format!("{value} is not allowed; allowed: 0.001 to 1, the share of each GPU to request; without it, the replica requests memory for its weights and cache"),
        )),
    }
}

/// The number of requests, by default the limit in the engine's own options.
fn seats(
    kind: &Engine,
    flags: &CheckedFlags,
    configured: Option<u32>,
    notes: &Diagnostics,
) -> Result<u32, CatalogError> {
    let own = kind
        .sequences_key
        .and_then(|key| flags.of_key.iter().find(|(known, _)| known == key))
        .and_then(|(_, flags)| flags.last()?.parse::<u32>().ok());
    match (configured, own) {
        (Some(configured), _) => Ok(configured),
        (None, Some(own)) if own > SEATS_MAX => Err(notes.refuse(
            &format!(
                "engine_config.engine_kwargs.{}",
                kind.sequences_key.unwrap_or_default()
            ),
            limits::count(i64::from(own), SEATS_MAX)
                .err()
                .unwrap_or_default(),
        )),
        (None, Some(own)) => Ok(own),
        (None, None) => Ok(kind.seats),
    }
}
