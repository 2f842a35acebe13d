//! Turns a document into an entry: each key becomes a field, in the order of the checks.

use std::collections::BTreeMap;

use config::validate::QUEUE_LIMIT_MAX;
use config::{Config, KeepHot, Length, Provider, UnknownFields};
use pool::{Priority, Span};

use super::checks::{check_aliases, configured_seats, devices, no_sleep, positive};
use super::{Entry, PriorityFrom};
use crate::documents::{
    CatalogError, Diagnostics, ModelDocument, Sleep, Source, limits, validation,
};
use crate::entries::reference::Reference;
use crate::entries::scaling;
use crate::forms::unused_keys;
use crate::recipes::{
    CANDLE, EntryContext, Recipe, dynamic_adapters, engine_config, ray_serve, remote,
};
use crate::requests::generation;
use crate::weights::AdapterRoom;

/// The default number of simultaneous requests for a command's replica.
const COMMAND_SEATS: u32 = 20;

impl Entry {
    /// Reads a document key by key.
    pub(crate) fn from_read(
        document: ModelDocument,
        source: Source,
        notes: &mut Diagnostics,
        config: &Config,
        reference: &Reference,
    ) -> Result<Entry, CatalogError> {
        let name = document.engine_config.model_id.clone();
        if let Some(problem) = limits::model_id_problem(&name) {
            let problem = format!("`{}`: {problem}", limits::shown(&name));
            return Err(notes.refuse("engine_config.model_id", problem));
        }
        let known = reference.get(&name).cloned().unwrap_or_default();
        let pool = &document.pool_config;
        check_aliases(&name, &pool.aliases, notes)?;
        let adapters = &document.engine_config.lora_adapters;
        if let Some(twice) = adapters
            .iter()
            .find(|adapter| pool.aliases.contains(&adapter.name))
        {
            return Err(notes.refuse(
                "engine_config.lora_adapters",
                format!("`{}` is an alias of the model too", twice.name),
            ));
        }

        let (priority, priority_from) = match (pool.priority, known.priority) {
            (Some(value), _) => (
                notes.check("pool_config.priority", value, limits::priority)?,
                PriorityFrom::File,
            ),
            (None, Some(priority)) => (priority, PriorityFrom::Reference),
            (None, None) => (Priority::default(), PriorityFrom::Default),
        };
        let in_document = devices(pool, &document.scaling_config, notes)?;
        let devices_configured = in_document.or(known.gpus_per_replica);
        let seats = configured_seats(&document, notes)?;
        let engine = document.engine_config.engine.as_deref();
        let engine = engine.or(known.engine.as_deref());
        let mut dynamic_adapters = dynamic_adapters::read(&document, engine, config, notes)?;
        let adapter_room = match &dynamic_adapters {
            Some(dynamic) => dynamic.room,
            None => AdapterRoom {
                count: 0,
                rank: dynamic_adapters::rank(&document, notes)?,
            },
        };
        let (mut recipe, fetch) = engine_config::recipe(
            &document.engine_config,
            known.engine.as_deref(),
            &EntryContext {
                devices: devices_configured.unwrap_or(1),
                devices_in_document: in_document.unwrap_or(1),
                seats,
                adapter_room,
                sleep: pool.sleep,
                has_memory_figure: pool.memory_gib.is_some() || known.memory.is_some(),
                in_host_memory: config.inventory.provider == Provider::Host,
            },
            config,
            notes,
        )?;
        if let (Some(dynamic), Some(fetch)) = (&mut dynamic_adapters, &fetch) {
            dynamic.ask_as(fetch);
        }
        if let Recipe::Remote(remote) = &mut recipe {
            remote::check_document(remote, &document, &source, notes)?;
        }
        match &mut recipe {
            Recipe::RayServe(serve) => {
                ray_serve::check_document(serve, &document, &source, notes)?;
            }
            _ if pool.max_replicas.is_some() => {
                return Err(notes.refuse(
                    "pool_config.max_replicas",
                    "is read with type: RayServeEngine only; memory bounds the replicas of other engines, and deployment_config.autoscaling_config.max_replicas bounds scaling",
                ));
            }
            _ => {}
        }
        // The reference may describe a model of that name that runs on this machine.
        let here = !recipe.is_remote();
        let device_count = devices_configured
            .filter(|_| here)
            .or_else(|| recipe.devices_in_command());
        let most = recipe.devices_max();
        if let Some(configured) = device_count.filter(|configured| *configured > most) {
            notes.warn(
                "engine_config.model_id",
                format!("model_reference.json says {configured} GPUs, and {CANDLE} without device: cuda uses one device, which takes precedence"),
            );
        }
        let device_count = device_count.map(|configured| configured.min(most));
        let devices_per_replica = device_count.unwrap_or(1);
        let seats_per_replica = seats.unwrap_or(match &recipe {
            Recipe::Candle(candle) => candle.concurrency,
            Recipe::Command(_) => COMMAND_SEATS,
            Recipe::Server(server) => server.seats,
            Recipe::Remote(_) => remote::REMOTE_SEATS,
            Recipe::RayServe(_) => ray_serve::RAY_SERVE_SEATS,
        });
        let sleep = pool.sleep;
        let parking = recipe.parking();
        if sleep != Sleep::Off && parking.is_none() {
            return Err(notes.refuse("pool_config.sleep", no_sleep(sleep, &recipe)));
        }
        if dynamic_adapters.is_some() && sleep != Sleep::Off && !matches!(recipe, Recipe::Candle(_))
        {
            return Err(notes.refuse(
                "pool_config.sleep",
                format!(
                    "is {}, but the {} engine does not report which adapters it still has after waking; write off, or remove lora_config.dynamic_lora_loading_path",
                    sleep.as_str(),
                    recipe.engine()
                ),
            ));
        }
        let memory = pool
            .memory_gib
            .map(|value| notes.check("pool_config.memory_gib", value, limits::memory_gib))
            .transpose()?
            .or(known.memory.filter(|_| here));
        let queue_limit = pool
            .queue_limit
            .map(|value| {
                let bounded = |value| limits::count(value, QUEUE_LIMIT_MAX);
                notes.check("pool_config.queue_limit", value, bounded)
            })
            .transpose()?;
        let queue_timeout = positive("pool_config.queue_timeout", pool.queue_timeout, notes)?;
        let load_deadline = positive("pool_config.load_deadline", pool.load_deadline, notes)?;
        let stall_after = positive("pool_config.stall_after", pool.stall_after, notes)?;
        let first_token_after = positive(
            "pool_config.first_token_after",
            pool.first_token_after,
            notes,
        )?;

        let section = document.deployment_config.autoscaling_config.as_ref();
        let scaling = scaling::read(section, notes)?;
        let scaling = match (&recipe, scaling) {
            (Recipe::RayServe(serve), Some(scaling)) => {
                Some(ray_serve::bounded(scaling, serve.replicas_max))
            }
            (_, scaling) => scaling.filter(|_| here),
        };
        let to_zero = section.and_then(|section| section.downscale_to_zero_delay_s);
        let to_zero = to_zero.map(|seconds| KeepHot::For(Length(Span((seconds * 1000.0) as u64))));
        let section = document.engine_config.generation.as_ref();
        let generation = generation::read(section, pool.prompt_compat, &recipe, notes)?;
        let mut adapter_generation = BTreeMap::new();
        for (nth, adapter) in document.engine_config.lora_adapters.iter().enumerate() {
            if let Some(section) = adapter
                .generation
                .as_ref()
                .filter(|section| !section.is_null())
            {
                let at = format!("engine_config.lora_adapters[{nth}].generation");
                let own = generation::read_at(&at, section, pool.prompt_compat, &recipe, notes)?;
                let own = own.over(&generation, section);
                adapter_generation.insert(adapter.name.clone(), own);
            }
        }
        unused_keys::warn(&document, notes);
        let mut entry = Entry {
            aliases: pool.aliases.clone(),
            adapters: document
                .engine_config
                .lora_adapters
                .iter()
                .map(|adapter| adapter.name.clone())
                .collect(),
            keep_hot: pool.keep_hot.or(known.keep_hot).or(to_zero),
            unknown_fields: pool.unknown_fields.unwrap_or(if recipe.has_known_fields() {
                config.pool.unknown_fields
            } else {
                UnknownFields::Pass
            }),
            plain_requests: pool.plain_requests,
            min_resident: pool.min_resident,
            max_turn: pool.max_turn,
            stop_grace: pool.stop_grace.map(|length| length.0),
            stall_after,
            first_token_after,
            idle_probe: pool.idle_probe,
            labels: pool.labels.clone(),
            scaling,
            generation,
            adapter_generation,
            name,
            source,
            recipe,
            fetch,
            priority,
            priority_from,
            devices_per_replica,
            devices_configured: device_count,
            dynamic_adapters,
            devices: pool.devices.clone().unwrap_or_default(),
            parking,
            seats_per_replica,
            memory,
            queue_limit,
            queue_timeout,
            load_deadline,
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
