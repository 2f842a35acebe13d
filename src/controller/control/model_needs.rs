//! Computes the needs of models from their files. Blocks while it reads them. A model whose files cause a panic gets an error, and
//! the others keep their figures.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::devices::kinds;
use crate::messages::{FigureInputs, Figures, Specs};
use crate::view::device_facts::largest_for;
use catalog::{Catalog, Entry, EstimateError};
use config::Config;
use engine::{missing_program, weights_mark};
use inventory::Inventory;
use store::Measurements;

/// The needs of all models of the catalogue, for the first turn of the loop.
#[derive(Debug)]
pub struct FirstFigures(pub(crate) Specs);

/// Computes the needs of all models of the catalogue, off the runtime's threads. Calls `model_done` after each model.
///
/// # Errors
/// The runtime shuts down.
pub async fn first_figures(
    catalog: &Catalog,
    config: &Arc<Config>,
    measurements: &Measurements,
    inventory: &Inventory,
    model_done: impl Fn() + Send + 'static,
) -> Result<FirstFigures, String> {
    let (catalog, config) = (catalog.clone(), Arc::clone(config));
    let known = FigureInputs {
        measurements: measurements.clone(),
        kinds: kinds(inventory.devices()),
        devices: inventory.devices().to_vec(),
        files: Default::default(),
    };
    let read = tokio::task::spawn_blocking(move || {
        let names: Vec<String> = catalog.entries().keys().cloned().collect();
        let of = |entry: &Entry| of_entry(entry, &config, &known);
        FirstFigures(figure_each(&catalog, &names, of, model_done))
    });
    read.await
        .map_err(|error| format!("the needs of the models were not computed: {error}"))
}

/// The figures of the named entries. Blocking: reads the headers of the models' files.
pub(crate) fn figure(
    catalog: &Catalog,
    names: &[String],
    config: &Config,
    known: &FigureInputs,
) -> Specs {
    figure_each(
        catalog,
        names,
        |entry| of_entry(entry, config, known),
        || {},
    )
}

fn figure_each(
    catalog: &Catalog,
    names: &[String],
    of: impl Fn(&Entry) -> Result<Figures, EstimateError>,
    model_done: impl Fn(),
) -> Specs {
    let entries = names
        .iter()
        .filter_map(|name| Some((name.clone(), catalog.entries().get(name)?)));
    let specs = entries.map(|(name, entry)| {
        let figured = catch_unwind(AssertUnwindSafe(|| of(entry)));
        let spec = figured.unwrap_or_else(|panic| {
            Err(EstimateError::Panicked {
                model: name.clone(),
                file: entry.source.to_string(),
                message: message_of(&*panic),
            })
        });
        model_done();
        (name, spec)
    });
    specs.collect()
}

fn of_entry(
    entry: &Entry,
    config: &Config,
    known: &FigureInputs,
) -> Result<Figures, EstimateError> {
    let weights = entry.weights_path().and_then(|path| weights_mark(&path));
    let measured = known.measured(entry, weights);
    let total = largest_for(entry, &known.devices);
    let figures = entry.spec_and_estimate(config, measured, total)?;
    let mut spec = figures.spec;
    spec.no_program = missing_program(&entry.name, &entry.recipe);
    let listing = entry.fetch.as_ref().and_then(|wanted| wanted.listing());
    Ok(Figures {
        spec,
        source: figures.source,
        estimated: figures.estimated.unwrap_or_default(),
        split: figures.split,
        weights,
        listing: listing.map(Arc::new),
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use catalog::Source;
    use serde_json::json;

    use super::*;

    fn catalog_of(names: &[&str]) -> Catalog {
        let mut catalog = Catalog::default();
        for name in names {
            let document = json!({
                "engine_config": {
                    "model_id": name,
                    "type": "CommandEngine",
                    "listen": "port",
                    "command": ["engine", "--port", "{{ port }}"],
                },
                "pool_config": {"memory_gib": 1},
            });
            let config = Config::default();
            let read =
                Entry::from_document(&document, Source::Registered, &config, catalog.reference());
            let (entry, _) = read.expect("a model");
            catalog.insert(entry).expect("a new name");
        }
        catalog
    }

    #[test]
    fn a_panic_while_reading_one_models_files_does_not_affect_other_models() {
        let catalog = catalog_of(&["a", "broken", "c"]);
        let names = ["a", "broken", "c", "gone"].map(str::to_owned);
        let (config, known) = (
            Config::default(),
            FigureInputs {
                measurements: Measurements::default(),
                kinds: Default::default(),
                devices: Vec::new(),
                files: Default::default(),
            },
        );
        let done = Cell::new(0);
        let of = |entry: &Entry| {
            assert!(entry.name != "broken", "the header is -1 long");
            of_entry(entry, &config, &known)
        };
        let specs = figure_each(&catalog, &names, of, || done.set(done.get() + 1));
        assert_eq!(done.get(), 3, "the start sees that each of them is done");
        let [a, broken, c] = specs.as_slice() else {
            panic!("a model that is gone has no figures: {specs:?}");
        };
        assert!(a.1.is_ok() && c.1.is_ok(), "{specs:?}");
        let error = broken.1.as_ref().expect_err("it panicked").to_string();
        for part in ["broken", "registered", "the header is -1 long"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
