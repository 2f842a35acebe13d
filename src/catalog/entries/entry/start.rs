//! The part of an entry that defines how its engine starts: the recipe, the weights to fetch, adapters, devices and seats.

use config::{Config, Provider};

use super::checks::{configured_seats, devices};
use crate::documents::{
    CatalogError, Diagnostics, ModelDocument, PoolConfig, Sleep, Source, limits,
};
use crate::entries::reference::ReferenceEntry;
use crate::recipes::{
    CANDLE, EntryContext, Recipe, dynamic_adapters, engine_config, ray_serve, remote,
};
use crate::weights::{AdapterRoom, DynamicAdapters, Fetch};
use pool::NodeSpan;

/// The default number of simultaneous requests for a command's replica.
const COMMAND_SEATS: u32 = 20;

pub(super) struct Start {
    pub recipe: Recipe,
    /// Weights that the pool fetches for the model.
    pub fetch: Option<Fetch>,
    /// Adapters that are found by name.
    pub dynamic_adapters: Option<DynamicAdapters>,
    /// The number of devices that the document or the reference sets.
    pub devices: Option<u32>,
    /// The number of seats that the document sets.
    pub seats: Option<u32>,
}

impl Start {
    pub fn from_document(
        document: &ModelDocument,
        source: &Source,
        known: &ReferenceEntry,
        config: &Config,
        notes: &mut Diagnostics,
    ) -> Result<Start, CatalogError> {
        let pool = &document.pool_config;
        let in_document = devices(pool, &document.scaling_config, notes)?;
        let devices = in_document.or(known.gpus_per_replica);
        let seats = configured_seats(document, notes)?;
        let engine = document.engine_config.engine.as_deref();
        let engine = engine.or(known.engine.as_deref());
        let mut dynamic_adapters = dynamic_adapters::read(document, engine, config, notes)?;
        let adapter_room = match &dynamic_adapters {
            Some(dynamic) => dynamic.room,
            None => AdapterRoom {
                count: 0,
                rank: dynamic_adapters::rank(document, notes)?,
            },
        };
        let (mut recipe, fetch) = engine_config::recipe(
            &document.engine_config,
            known.engine.as_deref(),
            &EntryContext {
                devices: devices.unwrap_or(1),
                devices_in_document: in_document.unwrap_or(1),
                seats,
                spans_nodes: pool.nodes.is_some_and(|nodes| nodes > 1),
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
        check_place(&mut recipe, document, source, notes)?;
        Ok(Start {
            recipe,
            fetch,
            dynamic_adapters,
            devices,
            seats,
        })
    }
}

/// Checks the keys that only engines without a local process have, and completes their recipes.
fn check_place(
    recipe: &mut Recipe,
    document: &ModelDocument,
    source: &Source,
    notes: &mut Diagnostics,
) -> Result<(), CatalogError> {
    if let Recipe::Remote(remote) = recipe {
        remote::check_document(remote, document, source, notes)?;
    }
    match recipe {
        Recipe::RayServe(serve) => ray_serve::check_document(serve, document, source, notes),
        _ if document.pool_config.max_replicas.is_some() => Err(notes.refuse(
            "pool_config.max_replicas",
            "is read with type: RayServeEngine only; memory bounds the replicas of other engines, and deployment_config.autoscaling_config.max_replicas bounds scaling",
        )),
        _ => Ok(()),
    }
}

/// The number of devices that is set for the model, at most as many as its engine can use.
pub(super) fn device_count(
    recipe: &Recipe,
    configured: Option<u32>,
    notes: &mut Diagnostics,
) -> Option<u32> {
    let count = configured
        .filter(|_| !recipe.is_remote())
        .or_else(|| recipe.devices_in_command());
    let most = recipe.devices_max();
    if let Some(configured) = count.filter(|configured| *configured > most) {
        notes.warn(
            "engine_config.model_id",
            format!("model_reference.json says {configured} GPUs, and {CANDLE} without device: cuda uses one device, which takes precedence"),
        );
    }
    count.map(|configured| configured.min(most))
}

/// The nodes of a replica, and its devices: a file that sets only the nodes has one device on each (M8).
pub(super) fn nodes(
    pool: &PoolConfig,
    recipe: &Recipe,
    devices: Option<u32>,
    notes: &mut Diagnostics,
) -> Result<(NodeSpan, Option<u32>), CatalogError> {
    const KEY: &str = "pool_config.nodes";
    let may_span = recipe.spans_nodes() && pool.sleep == Sleep::Off;
    let Some(nodes) = pool.nodes else {
        let is_larger = may_span && devices.is_some_and(|devices| devices > 1);
        let as_needed = is_larger && matches!(recipe, Recipe::Server(_));
        let span = if as_needed {
            NodeSpan::AsNeeded
        } else {
            NodeSpan::One
        };
        return Ok((span, devices));
    };
    let nodes = notes.check(KEY, nodes, |nodes| {
        limits::count(nodes, limits::NODES_PER_REPLICA_MAX)
    })?;
    if nodes == 1 {
        return Ok((NodeSpan::One, devices));
    }
    if !recipe.spans_nodes() {
        return Err(notes.refuse(
            KEY,
            format!(
                "is {nodes}, and the {} engine runs on one node; VLLMEngine, SGLangEngine and CommandEngine can span several",
                recipe.engine()
            ),
        ));
    }
    if pool.sleep != Sleep::Off {
        return Err(notes.refuse(
            KEY,
            format!(
                "is {nodes}, and a replica on several nodes cannot sleep; write pool_config.sleep: off"
            ),
        ));
    }
    let count = devices.unwrap_or(nodes);
    if !count.is_multiple_of(nodes) {
        return Err(notes.refuse(
            KEY,
            format!(
                "is {nodes}, which does not divide the {count} GPUs of a replica (pool_config.gpus_per_replica): each node has the same number"
            ),
        ));
    }
    Ok((NodeSpan::Exactly(nodes), Some(count)))
}

pub(super) fn seats_per_replica(recipe: &Recipe, configured: Option<u32>) -> u32 {
    configured.unwrap_or(match recipe {
        Recipe::Candle(candle) => candle.concurrency,
        Recipe::Command(_) => COMMAND_SEATS,
        Recipe::Server(server) => server.seats,
        Recipe::Remote(_) => remote::REMOTE_SEATS,
        Recipe::RayServe(_) => ray_serve::RAY_SERVE_SEATS,
    })
}
