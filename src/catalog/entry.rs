//! One model of the catalogue: a document, read and checked against the reference and the
//! configuration. Every mistake is refused with the key that holds it; whatever has no effect is
//! a warning. How the engine is started is made in `engine_config`.
//! One file because each key of a document becomes one field of an entry, in the order in which they are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use config::validate::QUEUE_LIMIT_MAX;
use config::{Config, IdleProbe, KeepHot, Length, MaxTurn, MinResident, Provider};
use pool::{Bytes, Priority, Scaling, Span};

use super::adapter_names::{AdapterRoom, DynamicAdapters};
use super::constraint::DeviceConstraint;
use super::diagnostics::Diagnostics;
use super::dynamic_adapters;
use super::engine_fields::CANDLE;
use super::engines::{ENGINES, Parking};
use super::entry_source::Source;
use super::generation::{self, Generation};
use super::limits::{self, SEATS_MAX};
use super::model_file::{
    LoraAdapter, ModelDocument, PoolConfig, ScalingConfig, Sleep, UnknownFields,
};
use super::recipe::Recipe;
use super::reference::Reference;

use super::server_config::Around;
use super::validation::{self, Validation};
use super::weights::Fetch;
use super::{
    CatalogError, Warning, document, engine_config, ray_serve, remote, scaling, without_effect,
};

/// Requests a command's replica takes at once, unless its file says otherwise.
const COMMAND_SEATS: u32 = 20;

/// Which of the places of P1 a model's own priority was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityFrom {
    File,
    Reference,
    Default,
}

impl PriorityFrom {
    pub fn name(self) -> &'static str {
        match self {
            PriorityFrom::File => "file",
            PriorityFrom::Reference => "reference",
            PriorityFrom::Default => "default",
        }
    }
}

/// One model. Times that are `None` are the pool's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub aliases: Vec<String>,
    /// Names of LoRA adapters that its engine serves beside it.
    pub adapters: Vec<String>,
    pub source: Source,
    pub recipe: Recipe,
    /// What the pool fetches for it.
    pub fetch: Option<Fetch>,
    pub priority: Priority,
    pub priority_from: PriorityFrom,
    /// At least 1: the configured number, or else 1.
    pub devices_per_replica: u32,
    /// What the model's file, the reference or the command itself says of it, if anything does.
    pub devices_configured: Option<u32>,
    /// The only devices it may use.
    pub devices: DeviceConstraint,
    /// Adapters that are looked for by their names.
    pub dynamic_adapters: Option<DynamicAdapters>,
    /// Requests that one replica takes at once; at least 1.
    pub seats_per_replica: u32,
    /// How it sleeps, if its file says so.
    pub parking: Option<&'static Parking>,
    /// An administrator's figure for one replica, on all its devices together.
    pub memory: Option<Bytes>,
    pub keep_hot: Option<KeepHot>,
    pub min_resident: Option<MinResident>,
    pub max_turn: Option<MaxTurn>,
    pub queue_limit: Option<u32>,
    pub queue_timeout: Option<Span>,
    pub load_deadline: Option<Span>,
    pub stop_grace: Option<Span>,
    pub stall_after: Option<Span>,
    pub first_token_after: Option<Span>,
    pub idle_probe: Option<IdleProbe>,
    pub labels: BTreeMap<String, String>,
    /// How it grows with its requests.
    pub scaling: Option<Scaling>,
    /// What is added to its requests.
    pub generation: Generation,
    /// The same of adapters that have their own.
    pub adapter_generation: BTreeMap<String, Generation>,
    /// What happens to fields of requests that its engine is not known to take.
    pub unknown_fields: UnknownFields,
    /// What texts of users must be.
    pub validation: Option<Validation>,
    document: ModelDocument,
}

impl Entry {
    /// The name that its engine knows an adapter by, if this is one of its.
    /// Of those that are looked for it is whatever may be one.
    pub fn adapter<'a>(&self, name: &'a str) -> Option<&'a str> {
        let is_one = self.adapters.iter().any(|known| known == name);
        (is_one || self.adapter_id(name).is_some()).then_some(name)
    }

    /// The `suffix:id` of a name that may be one of its adapters that are looked for.
    pub fn adapter_id<'a>(&self, name: &'a str) -> Option<&'a str> {
        self.dynamic_adapters.as_ref()?.id_of(&self.name, name)
    }

    /// What is added to requests that have this name: the model's, an alias, or an adapter.
    pub fn generation_of(&self, name: &str) -> &Generation {
        let own = self.adapter_generation.get(name);
        own.unwrap_or(&self.generation)
    }

    /// Reads a document that came over the API or from the store. The warnings name every key
    /// that has no effect.
    pub fn from_document(
        document: &Value,
        source: Source,
        config: &Config,
        reference: &Reference,
    ) -> Result<(Entry, Vec<Warning>), CatalogError> {
        let mut notes = Diagnostics::of(&source);
        notes.is_strict = config.catalog.strict;
        let read = document::typed(document.clone(), None, &mut notes)?;
        let Some(read) = read else {
            return Err(notes.refuse("enabled", "is false; leave the model out instead"));
        };
        let entry = Entry::from_read(read, source, &mut notes, config, reference)?;
        Ok((entry, notes.warnings))
    }

    /// The document that this entry was read from; reads back to an equal entry. It holds the
    /// values of `engine_config.env` in clear: for the store, not for answers.
    pub fn to_document(&self) -> Value {
        // Plain data with text keys: there is nothing in it that JSON cannot hold.
        serde_json::to_value(&self.document).unwrap_or(Value::Null)
    }

    pub(super) fn document(&self) -> &ModelDocument {
        &self.document
    }

    /// The same model with one more adapter.
    pub(super) fn with_adapter(
        &self,
        adapter: &LoraAdapter,
        config: &Config,
        reference: &Reference,
    ) -> Result<Entry, CatalogError> {
        let mut document = self.document.clone();
        document.engine_config.lora_adapters.push(adapter.clone());
        let mut notes = Diagnostics::of(&self.source);
        Entry::from_read(document, self.source.clone(), &mut notes, config, reference)
    }

    pub(super) fn from_read(
        document: ModelDocument,
        source: Source,
        notes: &mut Diagnostics,
        config: &Config,
        reference: &Reference,
    ) -> Result<Entry, CatalogError> {
        let name = document.engine_config.model_id.clone();
        if let Some(problem) = limits::model_id_problem(&name) {
            return Err(notes.refuse("engine_config.model_id", format!("`{name}`: {problem}")));
        }
        let known = reference.get(&name).cloned().unwrap_or_default();
        let pool = &document.pool_config;
        check_aliases(&name, &pool.aliases, notes)?;
        let adapters = &document.engine_config.lora_adapters;
        if let Some(twice) = adapters.iter().find(|it| pool.aliases.contains(&it.name)) {
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
            &Around {
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
        // The reference may tell of a model of that name that is run here.
        let here = !recipe.is_remote();
        let device_count = devices_configured
            .filter(|_| here)
            .or_else(|| recipe.devices_in_command());
        let most = recipe.devices_max();
        if let Some(configured) = device_count.filter(|configured| *configured > most) {
            notes.warn(
                "engine_config.model_id",
                format!("model_reference.json says {configured} GPUs, and {CANDLE} without device: cuda computes on one device, which counts"),
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
                    "is {}, and the {} engine does not say which adapters it still has afterwards; write off, or remove lora_config.dynamic_lora_loading_path",
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
        let to_zero = section.and_then(|it| it.downscale_to_zero_delay_s);
        let to_zero = to_zero.map(|seconds| KeepHot::For(Length(Span((seconds * 1000.0) as u64))));
        let section = document.engine_config.generation.as_ref();
        let generation = generation::read(section, pool.prompt_compat, &recipe, notes)?;
        let mut adapter_generation = BTreeMap::new();
        for (nth, adapter) in document.engine_config.lora_adapters.iter().enumerate() {
            if let Some(section) = adapter.generation.as_ref().filter(|it| !it.is_null()) {
                let at = format!("engine_config.lora_adapters[{nth}].generation");
                let own = generation::read_at(&at, section, pool.prompt_compat, &recipe, notes)?;
                let own = own.over(&generation, section);
                adapter_generation.insert(adapter.name.clone(), own);
            }
        }
        without_effect::warn(&document, notes);
        let mut entry = Entry {
            aliases: pool.aliases.clone(),
            adapters: document
                .engine_config
                .lora_adapters
                .iter()
                .map(|adapter| adapter.name.clone())
                .collect(),
            keep_hot: pool.keep_hot.or(known.keep_hot).or(to_zero),
            unknown_fields: pool.unknown_fields,
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
        let rule = section.map(|it| validation::read(it, || entry.can_count_tokens(), notes));
        entry.validation = rule.transpose()?;
        Ok(entry)
    }

    /// The key of its document that names the model.
    pub(super) fn path_key(&self) -> String {
        let key = match self.document.engine_config.model_path {
            Some(_) => "model_path",
            None => "hf_model_id",
        };
        format!("engine_config.{key}")
    }

    /// The model's `tokenizer.json` on this machine. Blocking: looks for it.
    pub fn tokenizer_file(&self) -> Option<PathBuf> {
        let path = self.weights_path()?;
        let folder = if path.is_dir() { &path } else { path.parent()? };
        Some(folder.join("tokenizer.json")).filter(|file| file.is_file())
    }

    /// Whether its tokens can be counted, now or once its weights have been fetched.
    fn can_count_tokens(&self) -> Result<(), String> {
        match (self.tokenizer_file(), self.weights_path()) {
            (Some(_), _) => Ok(()),
            (None, _) if self.fetch.is_some() => Ok(()),
            (None, Some(path)) => Err(format!("there is no tokenizer.json in {}", path.display())),
            (None, None) => Err(format!(
                "the {} engine has no folder of the model on this machine with a tokenizer.json",
                self.recipe.engine()
            )),
        }
    }
}

fn check_aliases(name: &str, aliases: &[String], notes: &Diagnostics) -> Result<(), CatalogError> {
    let mut seen = BTreeSet::from([name]);
    for (index, alias) in aliases.iter().enumerate() {
        let field = format!("pool_config.aliases[{index}]");
        if let Some(problem) = limits::model_id_problem(alias) {
            return Err(notes.refuse(&field, format!("`{alias}`: {problem}")));
        }
        if !seen.insert(alias) {
            return Err(notes.refuse(
                &field,
                format!("`{alias}` is the model's own name or an alias given twice; remove it"),
            ));
        }
    }
    Ok(())
}

fn positive(
    field: &str,
    length: Option<Length>,
    notes: &Diagnostics,
) -> Result<Option<Span>, CatalogError> {
    match length {
        Some(length) if length.0 == Span::ZERO => {
            Err(notes.refuse(field, "0s is not allowed; allowed: 1ms and more"))
        }
        other => Ok(other.map(|length| length.0)),
    }
}

/// Devices of one replica, if the document says (M5).
fn devices(
    pool: &PoolConfig,
    scaling: &ScalingConfig,
    notes: &mut Diagnostics,
) -> Result<Option<u32>, CatalogError> {
    let own = pool
        .gpus_per_replica
        .map(|value| notes.check("pool_config.gpus_per_replica", value, limits::device_count))
        .transpose()?;
    let workers = scaling
        .num_workers
        .map(|value| notes.check("scaling_config.num_workers", value, limits::device_count))
        .transpose()?;
    let per_worker = scaling
        .num_gpus_per_worker
        .map(|value| {
            notes.check("scaling_config.num_gpus_per_worker", value, |value| {
                let devices = if value.fract() == 0.0 {
                    value as i64
                } else {
                    0
                };
                limits::device_count(devices)
                    .map_err(|allowed| format!("{allowed}, whole GPUs only"))
            })
        })
        .transpose()?;
    let rayllm = match (workers, per_worker) {
        (None, None) => None,
        (workers, per_worker) => {
            let product = i64::from(workers.unwrap_or(1)) * i64::from(per_worker.unwrap_or(1));
            let field = "scaling_config.num_workers × num_gpus_per_worker";
            Some(notes.check(field, product, limits::device_count)?)
        }
    };
    if let (Some(own), Some(other)) = (own, rayllm)
        && own != other
    {
        notes.warn(
            "scaling_config.num_workers",
            format!("has no effect: pool_config.gpus_per_replica says {own} GPUs, scaling_config says {other}"),
        );
    }
    Ok(own.or(rayllm))
}

/// Requests that one replica takes at once, if the document says.
fn configured_seats(
    document: &ModelDocument,
    notes: &Diagnostics,
) -> Result<Option<u32>, CatalogError> {
    let deployment = &document.deployment_config;
    let new = deployment.max_ongoing_requests;
    let old = deployment.max_concurrent_queries;
    let (field, seats) = match (new, old) {
        (Some(_), Some(_)) => {
            return Err(notes.refuse(
                "deployment_config.max_concurrent_queries",
                "is the old name of max_ongoing_requests, which is given too; remove it",
            ));
        }
        (None, Some(old)) => ("deployment_config.max_concurrent_queries", Some(old)),
        (new, None) => ("deployment_config.max_ongoing_requests", new),
    };
    seats
        .map(|value| notes.check(field, value, |value| limits::count(value, SEATS_MAX)))
        .transpose()
}

/// Which engines could, where this one cannot.
fn no_sleep(sleep: Sleep, recipe: &Recipe) -> String {
    let depths = |parking: &[Parking]| {
        let depths: Vec<&str> = parking.iter().map(|it| it.depth.as_str()).collect();
        depths.join(" and ")
    };
    let mut able: Vec<String> = ENGINES
        .into_iter()
        .filter(|engine| !engine.parking.is_empty())
        .map(|engine| format!("{} ({})", engine.name(), depths(engine.parking)))
        .collect();
    able.push(format!(
        "{CANDLE} ({}; on a GPU only what generates texts)",
        Sleep::Weights.as_str()
    ));
    format!(
        "is {}, and the {} engine does not sleep so; these do: {}; write off",
        sleep.as_str(),
        recipe.engine(),
        able.join(", ")
    )
}
