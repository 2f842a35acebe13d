//! Turns a document into an entry: each key becomes a field, in the order of the checks.

use config::{Config, UnknownFields};

use super::checks::check_aliases;
use super::settings::{self, Limits};
use super::start::{Start, device_count, nodes, seats_per_replica};
use super::{Entry, PriorityFrom};
use crate::documents::{
    CatalogError, DeviceConstraint, Diagnostics, ModelDocument, Source, limits, validation,
};
use crate::entries::reference::{Reference, ReferenceEntry};
use crate::forms::unused_keys;
use pool::Priority;

impl Entry {
    /// Reads a document key by key.
    pub(crate) fn from_read(
        document: ModelDocument,
        source: Source,
        notes: &mut Diagnostics,
        config: &Config,
        reference: &Reference,
    ) -> Result<Entry, CatalogError> {
        let name = model_id(&document, notes)?;
        let known = reference.get(&name).cloned().unwrap_or_default();
        let pool = &document.pool_config;
        check_names(&name, &document, notes)?;
        let (priority, priority_from) = priority(&document, &known, notes)?;
        let start = Start::from_document(&document, &source, &known, config, notes)?;
        let recipe = &start.recipe;
        // The reference may describe a model of that name that runs on this machine.
        let here = !recipe.is_remote();
        let device_count = device_count(recipe, start.devices, notes);
        let (nodes, device_count) = nodes(pool, recipe, device_count, notes)?;
        let seats_per_replica = seats_per_replica(recipe, start.seats);
        let has_adapters = start.dynamic_adapters.is_some();
        let parking = settings::parking(pool.sleep, recipe, has_adapters, notes)?;
        let limits = Limits::from_document(&document, known.memory.filter(|_| here), notes)?;
        let scaling = settings::scaling(&document, recipe, notes)?;
        let generation = settings::generation(&document, recipe, notes)?;
        let adapter_generation =
            settings::adapter_generation(&document, recipe, &generation, notes)?;
        unused_keys::warn(&document, notes);
        let adapters = document.engine_config.lora_adapters.iter();
        let mut entry = Entry {
            aliases: pool.aliases.clone(),
            adapters: adapters.map(|adapter| adapter.name.clone()).collect(),
            keep_hot: pool
                .keep_hot
                .or(known.keep_hot)
                .or(settings::keep_hot_of_scaling(&document)),
            unknown_fields: pool.unknown_fields.unwrap_or(if recipe.has_known_fields() {
                config.pool.unknown_fields
            } else {
                UnknownFields::Pass
            }),
            plain_requests: pool.plain_requests,
            min_resident: pool.min_resident,
            max_turn: pool.max_turn,
            stop_grace: pool.stop_grace.map(|length| length.0),
            stall_after: limits.stall_after,
            first_token_after: limits.first_token_after,
            idle_probe: pool.idle_probe,
            labels: pool.labels.clone(),
            scaling,
            generation,
            adapter_generation,
            name,
            source,
            recipe: start.recipe,
            fetch: start.fetch,
            priority,
            priority_from,
            devices_per_replica: device_count.unwrap_or(1),
            devices_configured: device_count,
            nodes,
            dynamic_adapters: start.dynamic_adapters,
            devices: DeviceConstraint {
                accelerator: pool.accelerator,
                ..pool.devices.clone().unwrap_or_default()
            },
            parking,
            seats_per_replica,
            memory: limits.memory,
            queue_limit: limits.queue_limit,
            queue_timeout: limits.queue_timeout,
            load_deadline: limits.load_deadline,
            validation: None,
            document,
        };
        let section = entry.document.pool_config.validation.as_ref();
        let rule =
            section.map(|section| validation::read(section, || entry.can_count_tokens(), notes));
        entry.validation = rule.transpose()?;
        Ok(entry)
    }
}

fn model_id(document: &ModelDocument, notes: &mut Diagnostics) -> Result<String, CatalogError> {
    let name = document.engine_config.model_id.clone();
    match limits::model_id_problem(&name) {
        Some(problem) => {
            let problem = format!("`{}`: {problem}", limits::shown(&name));
            Err(notes.refuse("engine_config.model_id", problem))
        }
        None => Ok(name),
    }
}

/// Checks the aliases, and that no adapter has the name of one.
fn check_names(
    name: &str,
    document: &ModelDocument,
    notes: &mut Diagnostics,
) -> Result<(), CatalogError> {
    let aliases = &document.pool_config.aliases;
    check_aliases(name, aliases, notes)?;
    let mut adapters = document.engine_config.lora_adapters.iter();
    match adapters.find(|adapter| aliases.contains(&adapter.name)) {
        Some(twice) => Err(notes.refuse(
            "engine_config.lora_adapters",
            format!("`{}` is an alias of the model too", twice.name),
        )),
        None => Ok(()),
    }
}

fn priority(
    document: &ModelDocument,
    known: &ReferenceEntry,
    notes: &mut Diagnostics,
) -> Result<(Priority, PriorityFrom), CatalogError> {
    Ok(match (document.pool_config.priority, known.priority) {
        (Some(value), _) => (
            notes.check("pool_config.priority", value, limits::priority)?,
            PriorityFrom::File,
        ),
        (None, Some(priority)) => (priority, PriorityFrom::Reference),
        (None, None) => (Priority::default(), PriorityFrom::Default),
    })
}
