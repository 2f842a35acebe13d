//! `model-pool check`: reads configuration, catalogue and reference as `serve` would, and prints what
//! would take effect. It starts nothing and writes nothing.

use std::collections::BTreeMap;

use crate::catalog::{Catalog, Entry, Listen, Place, PlacedDevice, Recipe, Where};
use crate::cli::ConfigArgs;
use crate::config::{Config, Provider};
use crate::pool::{Bytes, ModelSpec};

/// Fails with the first thing that would keep the service from starting.
pub fn run(args: &ConfigArgs) -> Result<(), String> {
    let environment: BTreeMap<String, String> = std::env::vars().collect();
    let config =
        Config::load(args.config.as_deref(), &environment).map_err(|error| error.to_string())?;
    let effective = serde_json::to_string_pretty(&config.effective_json())
        .map_err(|error| error.to_string())?;
    println!("configuration: {effective}");
    for notice in config.notices() {
        println!("notice: {notice}");
    }
    let (catalog, warnings) = Catalog::load(&config).map_err(|error| error.to_string())?;
    for warning in warnings {
        println!("warning: {warning}");
    }
    for (name, entry) in catalog.entries() {
        match entry.spec(&config, None) {
            Ok((spec, _)) if entry.recipe.is_remote() => println!(
                "model {name}: remote engine at {}, nothing is loaded here, priority {} ({}), {} seats, from {}",
                entry.recipe.remote_url().unwrap_or_default(),
                spec.priority,
                entry.priority_from.name(),
                spec.seats_per_replica,
                entry.source,
            ),
            Ok((spec, source)) => {
                println!(
                    "model {name}: {} engine, {} device{} with {} each ({source}), priority {} ({}), {} seats, from {}",
                    entry.recipe.engine(),
                    spec.devices_per_replica,
                    if spec.devices_per_replica == 1 {
                        ""
                    } else {
                        "s"
                    },
                    spec.bytes_per_device,
                    spec.priority,
                    entry.priority_from.name(),
                    spec.seats_per_replica,
                    entry.source,
                );
                if let Some(line) = command_line(entry, &spec, config.inventory.provider) {
                    println!("model {name}: would run: {line}");
                }
            }
            Err(error) => return Err(format!("model {name}: {error}")),
        }
    }
    Ok(())
}

/// A device of so much memory at least stands for those that `check` does not look at.
const EXAMPLE_DEVICE: Bytes = Bytes(80 * Bytes::GIB);

/// What would be run for one replica, with secrets masked; port, devices and names are made up, and
/// what depends on the size of a device is for one of 80 GiB.
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
