//! Determines what `pull` fetches for a name: the weights of a model of the catalogue, or of a model on the hub that has no file.

use serde_json::json;

use catalog::{Catalog, Entry, Fetch, Origin, Source};
use config::Config;

/// # Errors
/// If the model does not exist, or the pool does not fetch its weights.
pub(super) fn find(name: &str, config: &Config) -> Result<Fetch, String> {
    let catalog = match Catalog::load(config) {
        Ok((catalog, _)) => Some(catalog),
        // A model of the hub does not depend on the files.
        Err(error) if is_of_the_hub(name) => {
            eprintln!("model-pool: {error}; the model files are ignored");
            None
        }
        Err(error) => return Err(error.to_string()),
    };
    if let Some(catalog) = &catalog {
        if let Some(entry) = catalog.get(name) {
            return of_entry(name, entry, config, catalog);
        }
        // A model with another name that takes its weights from this repository.
        let fetches = catalog
            .entries()
            .values()
            .filter_map(|entry| entry.fetch.as_ref());
        let is_wanted =
            |fetch: &&Fetch| fetch.id == name && matches!(fetch.origin, Origin::Hub { .. });
        if let Some(fetch) = fetches.clone().find(is_wanted) {
            return Ok(fetch.clone());
        }
    }
    if !is_of_the_hub(name) {
        let closest = catalog
            .map(|catalog| catalog.closest(name))
            .unwrap_or_default();
        let closest = match closest.as_slice() {
            [] => String::new(),
            [name] => format!("; the closest is {name}"),
            names => format!("; the closest are: {}", names.join(", ")),
        };
        let word = name.rsplit('/').next().unwrap_or(name);
        return Err(format!(
            "no model is called {name}{closest}; a model of the hub is written ORG/NAME, or ORG/NAME:Q4_K_M for one quantization, and `model-pool pull --search {word}` looks for it there"
        ));
    }
    of_hub(name, config, catalog.as_ref())
}

fn is_of_the_hub(name: &str) -> bool {
    name.split('/').count() == 2
}

fn of_entry(
    name: &str,
    entry: &Entry,
    config: &Config,
    catalog: &Catalog,
) -> Result<Fetch, String> {
    if let Some(fetch) = &entry.fetch {
        return Ok(fetch.clone());
    }
    let mut document = entry.to_document();
    let engine = entry.recipe.engine();
    let section = &mut document["engine_config"];
    if let Some(written) = section["model_path"].as_str() {
        // The path in the model's file may be relative, which does not help the reader.
        let path = entry.weights_path();
        let path = path.map_or_else(|| written.to_owned(), |path| path.display().to_string());
        return Err(format!(
            "the weights of {name} are {path} on this machine; there is nothing to fetch"
        ));
    }
    // Its engine would download into the same cache when it starts.
    section["fetch"] = json!("pool");
    let read = Entry::from_document(&document, Source::Registered, config, catalog.reference());
    let fetch = read.ok().and_then(|(entry, _)| entry.fetch);
    fetch.ok_or_else(|| {
        format!(
            "the {engine} engine of {name} downloads its weights when it starts; `model-pool run {name}` starts it"
        )
    })
}

/// The fetch settings for models of the hub, with an arbitrary model.
pub(super) fn any_of_the_hub(config: &Config) -> Result<Fetch, String> {
    of_hub("any/model", config, None)
}

/// The settings that the pool uses when it registers a model of the hub.
fn of_hub(name: &str, config: &Config, catalog: Option<&Catalog>) -> Result<Fetch, String> {
    let none = catalog::Reference::default();
    let reference = catalog.map_or(&none, Catalog::reference);
    let named = reference.get(name).and_then(|entry| entry.engine.clone());
    let engine = named.unwrap_or_else(|| config.catalog.unknown_engine.clone());
    let read = |engine: &str| {
        let document = json!({
            "engine_config": {"model_id": name, "hf_model_id": name, "type": engine, "fetch": "pool"},
        });
        Entry::from_document(&document, Source::Registered, config, reference)
    };
    let (entry, _) = read(&engine).map_err(|error| error.to_string())?;
    entry.fetch.ok_or_else(|| {
        format!("{engine} downloads its own weights; set catalog.unknown_engine to another engine")
    })
}
