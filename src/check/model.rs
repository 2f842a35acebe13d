//! Checks one model: its command, devices and memory, and problems that prevent loading.

use std::path::Path;

use catalog::{Entry, ModelTask, NeedSource, Prompt, Recipe, Source, Warning};
use config::Config;
use config::positions::Positions;
use engine::CudaProgram;
use pool::{ModelSpec, NodeSpan};

use super::command;
use super::devices::Devices;

/// The results for a model.
#[derive(Debug)]
pub(super) struct ModelFindings {
    pub name: String,
    /// Facts about the model, for display.
    pub lines: Vec<String>,
    /// The command of one replica, if known.
    pub command: Option<String>,
    /// Problems that prevent loading.
    pub problems: Vec<Warning>,
    pub warnings: Vec<Warning>,
}

pub(super) fn check(
    entry: &Entry,
    devices: Option<&Devices>,
    cuda: &CudaProgram,
    config: &Config,
) -> ModelFindings {
    let mut checked = ModelFindings {
        name: entry.name.clone(),
        lines: Vec::new(),
        command: None,
        problems: Vec::new(),
        warnings: Vec::new(),
    };
    for finding in entry.findings() {
        let place = at(entry, &finding.key, finding.problem);
        if finding.prevents_load {
            checked.problems.push(place)
        } else {
            checked.warnings.push(place)
        }
    }
    if let Some(serve) = entry.recipe.ray_serve() {
        let most = match serve.replicas_max {
            1 => "1 replica".to_owned(),
            most => format!("{most} replicas"),
        };
        checked.lines.push(format!(
            "ray_serve engine in Ray at {}, at most {most}; Ray places it, and the pool does not see its memory, {}",
            serve.place.address,
            from(entry)
        ));
        return checked;
    }
    if let Some(url) = entry.recipe.remote_url() {
        let line = format!(
            "remote engine at {url}, nothing is loaded on this machine, {}",
            from(entry)
        );
        checked.lines.push(line);
        return checked;
    }
    let spec = need(entry, devices, config, &mut checked);
    if !entry.adapters.is_empty() {
        checked
            .lines
            .push(format!("adapters {}", entry.adapters.join(", ")));
    }
    checked.lines.extend(weights(entry));
    checked.lines.extend(shared_folder(entry));
    let unfetched = entry.fetch.as_ref().filter(|fetch| !fetch.is_here());
    if let Some(error) = unfetched.and_then(source::not_built) {
        let key = "engine_config.type";
        checked.problems.push(at(entry, key, error.to_string()));
    }
    let dynamic = entry
        .dynamic_adapters
        .as_ref()
        .and_then(|adapters| adapters.fetch());
    if let Some(dynamic) = dynamic {
        let line = format!("adapters are looked up in {}", dynamic.describe());
        checked.lines.push(line);
    }
    if let Some(error) = dynamic.and_then(source::not_built) {
        let key = "lora_config.dynamic_lora_loading_path";
        checked.warnings.push(at(entry, key, error.to_string()));
    }
    checked.lines.extend(parsers(entry));
    if let Recipe::Server(recipe) = &entry.recipe
        && let Some(notice) = recipe.version_notice()
    {
        let notice = at(entry, "engine_config.program", notice);
        checked.warnings.push(notice);
    }
    for unknown in devices.iter().flat_map(|devices| devices.unknown(entry)) {
        checked
            .warnings
            .push(at(entry, &unknown.key, unknown.problem));
    }
    if let (Some((spec, is_known)), Some(devices)) = (spec, devices) {
        let facts = (devices, cuda);
        place(entry, &spec, is_known, facts, config, &mut checked);
    }
    checked
}

/// Reports the model's memory; the flag is true if it is known.
fn need(
    entry: &Entry,
    devices: Option<&Devices>,
    config: &Config,
    checked: &mut ModelFindings,
) -> Option<(ModelSpec, bool)> {
    let engine = entry.recipe.engine();
    let count = |devices: u32| match devices {
        1 => "1 device".to_owned(),
        devices => format!("{devices} devices"),
    };
    let each = |devices: u32| if devices == 1 { "" } else { " each" };
    let largest = devices.and_then(|devices| devices.largest_for(entry));
    match entry.spec_on(config, None, largest) {
        Ok((spec, NeedSource::Unfetched)) => {
            checked.lines.push(format!(
                "{engine} engine, {}, memory unknown until its weights are fetched, {}",
                count(spec.devices_per_replica),
                from(entry)
            ));
            Some((spec, false))
        }
        Ok((spec, source)) => {
            checked.lines.push(format!(
                "{engine} engine, {} with {}{} ({source}), {}",
                count(spec.devices_per_replica),
                spec.bytes_per_device,
                each(spec.devices_per_replica),
                from(entry)
            ));
            if let Some(split) = entry.memory_split(largest) {
                checked.lines.push(format!("estimated by place: {split}"));
                let paged = devices.and_then(|devices| devices.larger_than_host(&split));
                let paged = paged.map(|why| at(entry, "engine_config", why));
                checked.warnings.extend(paged);
            }
            // Broken files are already reported.
            if let Some(rough) = source.warning().filter(|_| checked.problems.is_empty()) {
                let key = "pool_config.memory_gib";
                checked.warnings.push(at(entry, key, rough.to_owned()));
            }
            let is_known = !spec.absent || spec.damage.is_some();
            Some((spec, is_known))
        }
        Err(error) => {
            checked.lines.push(format!(
                "{engine} engine, {}, memory unknown, {}",
                count(entry.devices_per_replica),
                from(entry)
            ));
            // If its files are missing, which is already reported, its memory is unknown.
            if checked.problems.is_empty() {
                let key = "pool_config.memory_gib";
                checked.problems.push(at(entry, key, error.to_string()));
            }
            None
        }
    }
}

/// Reports whether the model fits, and the command for that placement.
fn place(
    entry: &Entry,
    spec: &ModelSpec,
    is_known: bool,
    (devices, cuda): (&Devices, &CudaProgram),
    config: &Config,
    checked: &mut ModelFindings,
) {
    let nodes = match spec.nodes {
        NodeSpan::Exactly(nodes) => nodes,
        NodeSpan::One | NodeSpan::AsNeeded => 1,
    };
    let (on, bytes) = match devices.place(entry, spec, config) {
        _ if nodes > 1 => {
            let each = spec.devices_per_replica / nodes;
            checked.lines.push(format!(
                "spans {nodes} nodes with {each} of the devices each; the pool places it on nodes that have joined (M8)"
            ));
            (devices.example(entry, each), spec.bytes_per_device)
        }
        Ok(placement) => {
            let line = if is_known {
                format!("fits on {} of an empty pool", placement.place)
            } else {
                format!(
                    "would fit on {} of an empty pool, by an estimate from before its weights are fetched",
                    placement.place
                )
            };
            checked.lines.push(line);
            (placement.devices, placement.bytes)
        }
        Err((key, why)) => {
            let problem = at(entry, key, format!("does not fit: {why}"));
            if is_known && spec.damage.is_some() && !checked.problems.is_empty() {
                // The damaged files are already reported.
            } else if is_known {
                checked.problems.push(problem)
            } else {
                // The estimate may be wrong; the weights decide.
                checked.warnings.push(problem)
            }
            let example = devices.example(entry, spec.devices_per_replica);
            (example, spec.bytes_per_device)
        }
    };
    match command::command(entry, &on, bytes, cuda) {
        Ok(None) => {}
        Ok(Some(shown)) => {
            checked.command = Some(shown.line);
            // It may be installed later, or the file may be meant for another machine.
            let missing = shown.missing.map(|(key, why)| at(entry, key, why));
            checked.warnings.extend(missing);
        }
        // The weights will provide the missing size.
        Err(why) if !is_known && why.contains("the size of the weights is not known") => {
            let line = "its command line depends on the size of the weights and is shown once they are fetched";
            checked.lines.push(line.to_owned());
        }
        Err(why) => {
            let key = if why.contains("memory_gib") {
                "pool_config.memory_gib"
            } else {
                "engine_config.type"
            };
            let problem = at(entry, key, why);
            if is_known && spec.damage.is_some() && !checked.problems.is_empty() {
            } else if is_known {
                checked.problems.push(problem)
            } else {
                // The weights may change this.
                checked.warnings.push(problem)
            }
        }
    }
}

/// The source of the weights, if they are fetched.
fn weights(entry: &Entry) -> Option<String> {
    let fetch = entry.fetch.as_ref()?;
    let origin = fetch.describe();
    Some(if fetch.is_here() {
        format!(
            "weights from {origin}, already in {}{}",
            fetch.folder().display(),
            sharing(&fetch.cache, "with the same sources.cache_dir")
        )
    } else {
        format!(
            "weights from {origin}, fetched into {} on first use{}",
            fetch.cache.display(),
            sharing(&fetch.cache, "with the same sources.cache_dir")
        )
    })
}

/// Describes how nodes use weights on a shared file system; empty for local file systems.
fn sharing(path: &Path, condition: &str) -> String {
    // A folder that does not exist yet will be on the file system of its parent.
    let there = path.ancestors().find(|folder| folder.exists());
    match there.and_then(source::shared_file_system) {
        Some(kind) => format!(" (on {kind}: nodes use it where it is, {condition})"),
        None => String::new(),
    }
}

/// The folder of weights that the pool does not fetch, if it is on a shared file system.
fn shared_folder(entry: &Entry) -> Option<String> {
    let path = entry.weights_path().filter(|_| entry.fetch.is_none())?;
    let sharing = sharing(&path, "mounted at the same place");
    (!sharing.is_empty()).then(|| format!("weights in {}{sharing}", path.display()))
}

/// The parsers that the pool chose for the engine.
fn parsers(entry: &Entry) -> Option<String> {
    let Recipe::Server(recipe) = &entry.recipe else {
        return None;
    };
    let chosen = recipe.chosen_parsers(recipe.template_forms());
    let chosen: Vec<String> = chosen
        .iter()
        .map(|parser| format!("{} {}", parser.key, parser.word))
        .collect();
    let chosen = (!chosen.is_empty()).then(|| chosen.join(", "));
    chosen.map(|chosen| format!("{chosen}, from its chat template"))
}

/// Priority, requests, prompts and origin.
fn from(entry: &Entry) -> String {
    format!(
        "priority {} ({}), {} requests at once, {}, from {}",
        entry.priority,
        entry.priority_from.name(),
        entry.seats_per_replica,
        prompt(entry),
        entry.source,
    )
}

/// The prompt format, and the settings added to requests.
fn prompt(entry: &Entry) -> String {
    let generation = &entry.generation;
    let takes_no_prompts = match &entry.recipe {
        Recipe::Candle(recipe) => {
            matches!(
                recipe.serves,
                Some(ModelTask::Embeddings | ModelTask::Ranks)
            )
        }
        Recipe::Server(recipe) => recipe.engine.name() == "EmbeddingEngine",
        Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => false,
    };
    let transcribes =
        matches!(&entry.recipe, Recipe::Candle(recipe) if recipe.serves == Some(ModelTask::Speech));
    let mut text = match generation.prompt {
        _ if transcribes => "no prompts, because it transcribes speech".to_owned(),
        _ if takes_no_prompts => "no prompts, because it embeds or ranks texts".to_owned(),
        Prompt::ChatTemplate => "prompts from its chat template".to_owned(),
        Prompt::Disabled => "completions only".to_owned(),
        Prompt::Format(_) => "prompts from its prompt format".to_owned(),
    };
    if !generation.defaults.is_empty() {
        let names: Vec<String> = generation
            .defaults
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        text += &format!(", defaults for requests: {}", names.join(", "));
    }
    match generation.stops.len() + generation.stop_tokens.len() {
        0 => text,
        1 => text + ", 1 stop",
        count => format!("{text}, {count} stops"),
    }
}

/// The message with file, line and key.
fn at(entry: &Entry, key: &str, message: String) -> Warning {
    let line = match &entry.source {
        Source::File(path) => std::fs::read_to_string(path)
            .ok()
            .and_then(|text| Positions::parse(&text).line(key)),
        Source::Registered => None,
    };
    Warning {
        origin: entry.source.to_string(),
        line,
        key: Some(key.to_owned()),
        message,
    }
}
