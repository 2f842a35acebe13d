//! Opens the parts that must exist before the loop runs: devices, catalogue, single sign-on, and the state of a process that is
//! taken over from. Each error is one line for the user.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::Utc;

use super::takeover::{self, InheritedSocket, Role};
use crate::devices;
use access::oidc::Oidc;
use catalog::{Catalog, Source};
use config::Config;
use inventory::Inventory;
use pool::Time;
use store::Store;

/// Refuses a bucket of batches that this program cannot use.
pub(super) fn check_bucket(config: &Config) -> Result<(), String> {
    let bucket = config.batch.bucket.as_ref();
    match bucket.and_then(|folder| source::bucket_not_built(&folder.0)) {
        Some(error) => Err(format!("batch.bucket: {error}")),
        None => Ok(()),
    }
}

/// Checks that this process could serve, then takes over from the running one.
pub(super) async fn take_over(
    config: &Config,
    runtime_dir: &Path,
    strict: bool,
) -> Result<Option<InheritedSocket>, String> {
    // Models that this process could not serve must be reported while the old process still serves.
    let (catalog, _) = Catalog::default().reread(config).map_err(line)?;
    refuse_broken(&catalog, strict)?;
    let running = engine::recorded_models(&absolute(&config.state.dir)?.join("engines"));
    let lost = |model: &String| Some((model.clone(), catalog.broken_model(model)?));
    if let Some((model, broken)) = running.iter().find_map(lost) {
        return Err(format!(
            "{}\n{model} is loaded, and a takeover would stop it: fix its file and try again; the running model-pool continues",
            broken.error
        ));
    }
    let inherited = takeover::ask(runtime_dir, Role::Serve).await?;
    if inherited.is_none() {
        tracing::info!("found no model-pool to take over from; starting normally");
    }
    Ok(inherited)
}

/// With `--strict`, fails if any model file cannot be used.
fn refuse_broken(catalog: &Catalog, strict: bool) -> Result<(), String> {
    let broken = catalog.broken().iter();
    let errors: Vec<&str> = broken
        .filter(|model| strict && model.source != Source::Registered)
        .map(|model| model.error.as_str())
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "{}\nwithout --strict everything else is served",
            errors.join("\n")
        ))
    }
}

/// The models registered through the API, and the models of the files.
pub(super) async fn open_catalog(
    config: &Arc<Config>,
    store: &Store,
    strict: bool,
) -> Result<Catalog, String> {
    let registrations = store.registrations().await.map_err(line)?;
    let config = Arc::clone(config);
    let read = tokio::task::spawn_blocking(move || {
        let registered = Catalog::of_registrations(registrations, &config).map_err(line)?;
        let (catalog, warnings) = registered.reread(&config).map_err(line)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        refuse_broken(&catalog, strict)?;
        controller::log_broken(&catalog);
        Ok(catalog)
    });
    read.await
        .map_err(|error| format!("reading the catalogue panicked: {error}"))?
}

pub(super) async fn open_sign_on(config: &Config) -> Result<Option<Oidc>, String> {
    // Tokens are checked against the wall clock, which may be set while the service runs.
    let clock = || Time(u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0));
    match &config.auth.oidc {
        Some(section) => Oidc::new(section, clock).await.map(Some).map_err(line),
        None => Ok(None),
    }
}

pub(super) async fn open_inventory(config: &Config) -> Result<Inventory, String> {
    let settings = devices::settings(config);
    tokio::task::spawn_blocking(move || Inventory::open(&settings))
        .await
        .map_err(|error| format!("looking for devices panicked: {error}"))?
        .map_err(line)
}

/// Logs the devices and models to serve with.
pub(super) fn describe(catalog: &Catalog, inventory: &Inventory) {
    for device in inventory.devices() {
        let (name, total, headroom) = (&device.name, device.total, device.headroom);
        tracing::info!(
            "device {name}: {total}, of which {headroom} stay free ({})",
            inventory.provider().name()
        );
    }
    let names: Vec<&str> = catalog.entries().keys().map(String::as_str).collect();
    match names.as_slice() {
        [] => tracing::info!("no models yet"),
        [name] => tracing::info!("1 model: {name}"),
        names => tracing::info!("{} models: {}", names.len(), names.join(", ")),
    }
    for (name, entry) in catalog.entries() {
        let adapters = entry
            .dynamic_adapters
            .as_ref()
            .and_then(|adapters| adapters.fetch());
        let fetches = entry.fetch.as_ref().into_iter().chain(adapters);
        for error in fetches.filter_map(source::not_built) {
            tracing::warn!(model = %name, "{error}");
        }
    }
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn line(error: impl std::fmt::Display) -> String {
    error.to_string()
}
