//! `model-pool check`: reads configuration, catalogue and reference like `serve`, and prints what would
//! take effect. It starts nothing and writes nothing.

use std::collections::BTreeMap;

use crate::cli::CheckArgs;
use catalog::{
    Catalog, Entry, Listen, NeedSource, Place, PlacedDevice, Prompt, Recipe, Warning, Where,
};
use config::{Config, Provider};
use pool::{Bytes, ModelSpec};

/// Fails if the service would not start, or if a named file cannot be used.
pub fn run(args: &CheckArgs) -> Result<(), String> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let file = args.config.config.as_deref();
    let config = Config::load(file, &environment).map_err(|error| error.to_string())?;
    let (catalog, warnings, errors) = if args.models.is_empty() {
        let effective = serde_json::to_string_pretty(&config.effective_json())
            .map_err(|error| error.to_string())?;
        println!("configuration: {effective}");
        for notice in config.notices() {
            println!("notice: {notice}");
        }
        let (catalog, warnings) = Catalog::load(&config).map_err(|error| error.to_string())?;
        (catalog, warnings, Vec::new())
    } else {
        if let Some(path) = args.models.iter().find(|path| !path.exists()) {
            return Err(format!("{} does not exist", path.display()));
        }
        Catalog::load_from(&args.models, &config).map_err(|error| error.to_string())?
    };
    print_warnings(&warnings);
    for (name, entry) in catalog.entries() {
        describe(name, entry, &config);
    }
    for error in &errors {
        eprintln!("error: {error}");
    }
    match errors.len() {
        0 => Ok(()),
        1 => Err("1 model cannot be used".to_owned()),
        count => Err(format!("{count} models cannot be used")),
    }
}

/// A warning that at least this many files share is printed once.
const ALIKE_MIN: usize = 4;

/// Prints warnings by file and line. A warning that many files share is one line.
fn print_warnings(warnings: &[Warning]) {
    let mut alike: BTreeMap<(&Option<String>, &str), Vec<&Warning>> = BTreeMap::new();
    for warning in warnings {
        let same = alike.entry((&warning.key, &warning.message)).or_default();
        same.push(warning);
    }
    let (many, few): (Vec<_>, Vec<_>) = alike
        .into_values()
        .partition(|same| same.len() >= ALIKE_MIN);
    let mut few: Vec<&Warning> = few.into_iter().flatten().collect();
    few.sort_by_key(|warning| (&warning.origin, warning.line));
    for warning in few {
        println!("warning: {warning}");
    }
    for same in many {
        println!("warning: {} times, for example {}", same.len(), same[0]);
    }
}

/// Prints what is known of a model, in one or more lines.
fn describe(name: &str, entry: &Entry, config: &Config) {
    let from = format!(
        "priority {} ({}), {} requests at once, {}, from {}",
        entry.priority,
        entry.priority_from.name(),
        entry.seats_per_replica,
        prompt(entry),
        entry.source,
    );
    if let Some(url) = entry.recipe.remote_url() {
        return println!(
            "model {name}: remote engine at {url}, nothing is loaded on this machine, {from}"
        );
    }
    let engine = entry.recipe.engine();
    let devices = |count: u32| match count {
        1 => "1 device".to_owned(),
        count => format!("{count} devices"),
    };
    let each = |count: u32| if count == 1 { "" } else { " each" };
    let spec = match entry.spec(config, None) {
        Ok((spec, NeedSource::Unfetched)) => {
            println!(
                "model {name}: {engine} engine, {}, memory unknown until its weights are fetched, {from}",
                devices(spec.devices_per_replica),
            );
            spec
        }
        Ok((spec, source)) => {
            println!(
                "model {name}: {engine} engine, {} with {}{} ({source}), {from}",
                devices(spec.devices_per_replica),
                spec.bytes_per_device,
                each(spec.devices_per_replica),
            );
            spec
        }
        // The service starts anyway, because the weights may come later.
        Err(error) => {
            println!(
                "model {name}: {engine} engine, {}, memory unknown, {from}",
                devices(entry.devices_per_replica)
            );
            return println!("model {name}: cannot be loaded yet: {error}");
        }
    };
    if !entry.adapters.is_empty() {
        println!("model {name}: adapters {}", entry.adapters.join(", "));
    }
    if let Some(fetch) = &entry.fetch {
        let place = fetch.folder();
        match fetch.is_here() {
            true => println!(
                "model {name}: weights from {}, already in {}",
                fetch.describe(),
                place.display()
            ),
            false => println!(
                "model {name}: weights from {}, fetched into {} on first use",
                fetch.describe(),
                fetch.cache.display()
            ),
        }
    }
    if let Some(line) = command_line(entry, &spec, config.inventory.provider) {
        println!("model {name}: would run: {line}");
    }
}

/// How prompts are built, and what is added to requests.
fn prompt(entry: &Entry) -> String {
    let generation = &entry.generation;
    let mut text = match generation.prompt {
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

/// The minimum size of the example devices, because `check` does not read the real ones.
const EXAMPLE_DEVICE: Bytes = Bytes(80 * Bytes::GIB);

/// The command of one replica, with secrets masked. Port, devices and names are examples; settings that
/// depend on the size of a device are for one of 80 GiB.
fn command_line(entry: &Entry, spec: &ModelSpec, provider: Provider) -> Option<String> {
    let Recipe::Server(recipe) = &entry.recipe else {
        return None;
    };
    let is_gpu = provider != Provider::Host;
    let devices: Vec<PlacedDevice> = (0..spec.devices_per_replica)
        .map(|index| PlacedDevice {
            index,
            uuid: is_gpu.then(|| format!("GPU-{index}")),
            is_gpu,
            total: EXAMPLE_DEVICE.max(spec.bytes_per_device),
        })
        .collect();
    let socket = std::path::Path::new("data/run/replica.sock");
    let place = Place {
        model_name: &entry.name,
        at: match recipe.listen {
            Listen::Port => Where::Port(8000),
            Listen::Socket => Where::Socket(socket),
        },
        devices: &devices,
        weights: entry.weights_per_device(spec.devices_per_replica),
        ..Place::example(spec.bytes_per_device)
    };
    Some(match recipe.command(&place) {
        Ok(command) => command.masked(),
        Err(problem) => format!("nothing: {problem}"),
    })
}
