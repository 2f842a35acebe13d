//! Section `pool`: rules for sharing the devices between models, and `parking`: engines that sleep in host memory. The doc
//! comments are the descriptions in the schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{IdleProbe, IdleYields, KeepHot, Length, MaxTurn, MemoryPart, MinResident};
use pool::{Bytes, HostReading, Priority, Span};

/// Rules for sharing the devices between models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSection {
    /// Time that a replica stays after its last request ended (L2): a duration, `adaptive` to derive it from the gaps between the
    /// model's requests, or `until_needed` to stay until another load needs its memory.
    pub keep_hot: KeepHot,
    /// The requests that restart the keep-hot time (L2): with `model`, requests for the model itself; with `device`, requests for
    /// any model on its devices. With `device`, idle models stay while their device is in use, and leave together. A model with its
    /// own keep-hot time keeps exactly that time.
    pub keep_hot_scope: KeepHotScope,
    /// The shortest time that `adaptive` chooses.
    pub keep_hot_least: Length,
    /// The longest time that `adaptive` chooses; at least `keep_hot_least`.
    pub keep_hot_most: Length,
    /// Models of equal priority cannot evict an idle replica younger than this (P3): a duration, or `auto`, which evicts it
    /// immediately unless its own next request is likely within half the time of a swap.
    pub min_resident: MinResident,
    /// Time that a busy replica keeps its turn against models of equal priority (P3): `auto` or a duration.
    pub max_turn: MaxTurn,
    /// The eviction policy among models of equal priority (P3, P5): `adaptive` considers the expected cost of loading a model
    /// again; `lru` evicts the least recently used model and never a busy one, for comparison.
    pub policy: PoolPolicy,
    /// The quantity that the pool minimises: `wait` counts the seconds that requests wait; `balanced` counts a second of loading as
    /// two more seconds of waiting, and `reload` as eight. With these, a load that evicts a model of equal priority begins once the
    /// total waiting time of its requests is that multiple of the load time, and after at most a quarter of `queue_timeout` (P3).
    pub objective: PoolObjective,
    /// The time to the first token that requests for models of a priority should have, up to a day, as `{0: 30s, 1: 10s}` (P3). Loads
    /// begin and turns end in time for it where that is possible. Without a target, the waits of all requests together count.
    pub targets: BTreeMap<String, Length>,
    /// The idle time after which a replica of higher priority, below always-hot, makes room for a lower one with waiting requests
    /// (P6): `auto` for three times the measured time to stop and reload it, a duration, or `never`.
    pub idle_yields: IdleYields,
    /// Time for a victim of lower priority to finish its requests before they are cut (P2).
    pub preempt_drain: Length,
    /// Maximum requests waiting for one model, 1 to 1000000 (Q1).
    pub queue_limit: u32,
    /// Maximum waiting time of a request; more than 0s (Q1).
    pub queue_timeout: Length,
    /// Interval of health probes of a ready engine; 50ms or more.
    pub heartbeat: Length,
    /// Time limit of a health probe; at most `heartbeat`.
    pub heartbeat_timeout: Length,
    /// Consecutive failed health probes after which an idle engine counts as dead, 1 to 100.
    pub heartbeat_misses: u32,
    /// Time without a token, or without a token and a health response, after which a busy engine counts as dead.
    pub stall_after: Length,
    /// The same limit while all requests of the engine still wait for their first token; at least `stall_after`.
    pub first_token_after: Length,
    /// Idle time after which a ready engine is sent a request for one token; `off`: never.
    pub idle_probe: IdleProbe,
    /// Handling of request fields that a model's engine is not known to support: `refuse` returns 400 with the nearest name, `drop`
    /// removes them and lists them in `x-model-pool-ignored`, `pass` forwards them to the engine. A CommandEngine, a RemoteEngine
    /// and a RayServeEngine receive every field, unless their model file sets `pool_config.unknown_fields`.
    pub unknown_fields: UnknownFields,
    /// Handling of engines that are still running when the service ends without stopping them (D2): `adopt` keeps ready engines for
    /// the next service, `stop` ends them immediately.
    pub on_restart: OnRestart,
    /// Time that engines wait for the next service before they are stopped, 1s to 1d (D2).
    pub adopt_within: Length,
}

impl Default for PoolSection {
    fn default() -> PoolSection {
        PoolSection {
            keep_hot: KeepHot::For(Length::from_secs(600)),
            keep_hot_scope: KeepHotScope::Model,
            keep_hot_least: Length::from_secs(60),
            keep_hot_most: Length::from_secs(24 * 3600),
            min_resident: MinResident::Auto,
            max_turn: MaxTurn::Auto,
            policy: PoolPolicy::Adaptive,
            objective: PoolObjective::Wait,
            targets: BTreeMap::new(),
            idle_yields: IdleYields::Auto,
            preempt_drain: Length::from_secs(30),
            queue_limit: 512,
            queue_timeout: Length::from_secs(300),
            heartbeat: Length::from_secs(5),
            heartbeat_timeout: Length::from_secs(2),
            heartbeat_misses: 3,
            stall_after: Length::from_secs(60),
            first_token_after: Length::from_secs(300),
            idle_probe: IdleProbe::After(Length::from_secs(60)),
            unknown_fields: UnknownFields::Refuse,
            on_restart: OnRestart::Adopt,
            adopt_within: Length::from_secs(120),
        }
    }
}

impl PoolSection {
    /// The priority that a name in `targets` stands for. `None` if the name is not a priority.
    pub fn priority_of_target(name: &str) -> Option<Priority> {
        let number = name.parse().ok().map(Priority);
        number.filter(|priority| *priority <= Priority::MAX && priority.0.to_string() == name)
    }

    /// The targets by priority.
    pub fn targets(&self) -> BTreeMap<Priority, Span> {
        let targets = self.targets.iter();
        let known = targets
            .filter_map(|(name, target)| Some((PoolSection::priority_of_target(name)?, target.0)));
        known.collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeepHotScope {
    Model,
    Device,
}

impl From<KeepHotScope> for pool::KeepHotScope {
    fn from(scope: KeepHotScope) -> pool::KeepHotScope {
        match scope {
            KeepHotScope::Model => pool::KeepHotScope::Model,
            KeepHotScope::Device => pool::KeepHotScope::Device,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolPolicy {
    Adaptive,
    Lru,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolObjective {
    Wait,
    Balanced,
    Reload,
}

/// Handling of request fields that the model's engine is not known to support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownFields {
    /// Return 400 with the field's name.
    Refuse,
    /// Remove the field, and name it in a header of the response.
    Drop,
    /// Let the engine decide.
    Pass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    Adopt,
    Stop,
}

/// Engines that sleep in host memory instead of being stopped (L1); for models whose file sets `pool_config.sleep`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParkingSection {
    /// Maximum host memory for all sleeping engines together: a share from 0% to 90%, or a size; 0% disables sleeping.
    pub host_memory: MemoryPart,
    /// Host memory that must stay available; below it sleeping engines are stopped.
    pub reserve: MemoryPart,
    /// Time that a sleeping engine stays without demand.
    pub keep: Length,
    /// Read weights of models with likely demand into the page cache while nothing is loading.
    pub read_ahead: bool,
}

impl Default for ParkingSection {
    fn default() -> ParkingSection {
        ParkingSection {
            host_memory: MemoryPart::Share(5_000),
            reserve: MemoryPart::Share(1_000),
            keep: Length::from_secs(3600),
            read_ahead: true,
        }
    }
}

impl ParkingSection {
    /// The host memory for sleeping engines on each of `nodes` nodes that share a machine. Without `has_room`, only engines that need no
    /// memory outside their device can sleep: a device that is host memory itself has no other place for weights.
    pub fn host_reading(
        &self,
        total: Bytes,
        available: Bytes,
        nodes: usize,
        has_room: bool,
    ) -> HostReading {
        let each = |bytes: Bytes| Bytes(bytes.0 / nodes.max(1) as u64);
        HostReading {
            capacity: if has_room {
                each(self.host_memory.resolve(total))
            } else {
                Bytes::ZERO
            },
            reserve: each(self.reserve.resolve(total)),
            available: each(available),
            total: each(total),
        }
    }
}
