//! `model-pool check`: reads configuration, catalogue and reference as `serve` would, and prints what
//! would take effect. It starts nothing and writes nothing.

use std::collections::BTreeMap;

use crate::catalog::Catalog;
use crate::cli::ConfigArgs;
use crate::config::Config;

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
            Ok((spec, source)) => println!(
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
            ),
            Err(error) => return Err(format!("model {name}: {error}")),
        }
    }
    Ok(())
}
