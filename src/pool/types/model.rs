//! The core's description of a model, and the limits of the pool. Plain data, filled by the catalogue and the
//! configuration.
//! One file because every plan reads a model's description together with the pool's limits.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::ids::{Bytes, DeviceId, LoaderId, Priority, ShapeId, Span, Time};
use crate::types::node_demand::{BatchNodes, NodeBudget};
use crate::types::objective::Objective;
use crate::types::policy::Policy;

/// A model as the catalogue describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    pub name: String,
    /// From the model's own file, `model_reference.json`, or 0 (P1). An administrator's override is stored separately.
    pub priority: Priority,
    /// Devices per replica (M5). At least 1.
    pub devices_per_replica: u32,
    /// The nodes over which the devices of a replica are spread (M8).
    pub nodes: NodeSpan,
    /// The maximum number of devices over which its engine spreads a replica. At least 1.
    pub devices_max: u32,
    /// The bytes that a replica reserves on each of its devices (M1, M3).
    pub bytes_per_device: Bytes,
    /// The bytes of a replica in its node's host memory, in addition to its devices.
    pub host_bytes: Bytes,
    /// The part of `host_bytes` that is mapped from a file. The system reads its pages again if they do not fit.
    pub host_mapped: Bytes,
    /// The figure was given by an administrator: neither measurements nor failures change it (M1).
    pub need_is_fixed: bool,
    /// Other numbers of devices, fewest first, for when the first does not fit into an empty pool (M5).
    pub wider: Vec<Layout>,
    /// The only devices it may use; `None` for all.
    pub allowed: Option<BTreeSet<DeviceId>>,
    /// The keys of the model's file that restrict `allowed`, for messages.
    pub allowed_by: String,
    /// The only sizes of requested nodes that it may use. `None`: all if `allowed` is `None`, otherwise none.
    pub allowed_shapes: Option<BTreeSet<ShapeId>>,
    /// The time a replica stays after its last request ended (L2).
    pub keep_hot: Span,
    /// The bounds, if the time is chosen from the model's gaps instead.
    pub adaptive_keep_hot: Option<KeepHotBounds>,
    /// The requests that restart the keep-hot time (L2).
    pub keep_hot_scope: KeepHotScope,
    /// Models of equal priority do not evict an idle replica younger than this. `None`: it leaves immediately, unless its next
    /// request is near (P3).
    pub min_resident: Option<Span>,
    /// The length of a busy replica's turn against models of equal priority. `None`: three times the swap time or sixteen of its
    /// requests, from the time a request waits for its place (P3).
    pub max_turn: Option<Span>,
    /// The maximum number of requests that may wait for the model (Q1).
    pub queue_limit: u32,
    /// The longest wait of a request (Q1).
    pub queue_timeout: Span,
    /// Concurrent requests per replica. At least 1.
    pub seats_per_replica: u32,
    /// The longest time of a load (L3).
    pub load_deadline: Span,
    /// The expected time of a load: measured last time, or estimated from size and source.
    pub reload: Span,
    /// `reload` is estimated from the size alone. Loads of other models with the same engine say more.
    pub reload_is_guess: bool,
    /// The engine's name.
    pub engine: &'static str,
    /// The source that a load reads from, and for how long. Loads that share it run one after another.
    pub loader: Option<Loader>,
    /// Between SIGTERM and SIGKILL (L5).
    pub stop_grace: Span,
    /// The maximum number of replicas that an order may request, for a model whose memory the pool does not see; `None` if memory
    /// bounds them.
    pub replicas_max: Option<u32>,
    /// Scales with its requests. `None`: a single replica, or as many as an administrator orders.
    pub scaling: Option<Box<crate::types::autoscaling::Scaling>>,
    /// A fingerprint of its engine's settings. A replica started with other settings is drained, and demand for the model gets a
    /// new one.
    pub started_with: u64,
    /// Changes with the files that it is loaded from: a load that failed before may then succeed.
    pub files_mark: u64,
    /// Its engine can sleep with its weights in host memory instead of being ended (L1).
    pub parking: Option<Parking>,
    /// Its weights are missing on this machine or damaged. They are fetched or checked again before it is placed.
    pub absent: bool,
    /// The damage of the weights on this machine.
    pub damage: Option<String>,
    /// The reason its engine's program cannot be started, on a pool of one machine.
    pub no_program: Option<String>,
}

/// The host memory that a sleeping engine takes, and the time until it is awake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    /// The total host memory of a replica.
    pub host: Bytes,
    /// The memory that stays on each of its devices.
    pub resident_per_device: Bytes,
    /// An estimate, used until waking has been measured.
    pub wakes_in: Span,
}

/// The number of nodes of a replica. A replica on several nodes has the same number of devices on each of them (M8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeSpan {
    #[default]
    One,
    /// One node, or the fewest nodes that have enough devices.
    AsNeeded,
    Exactly(u32),
}

/// A number of devices, and the bytes that a replica reserves on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub devices: u32,
    pub bytes_per_device: Bytes,
}

/// The bounds of an adaptive keep-hot time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepHotBounds {
    pub least: Span,
    pub most: Span,
}

/// The requests that restart the keep-hot time of an idle replica (L2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepHotScope {
    /// Requests for its own model.
    #[default]
    Model,
    /// Requests for any model on its devices. Idle models then leave together: an empty device saves more than one still in use.
    Device,
}

/// The keep-hot time of a model that stays until another load needs its memory.
pub const UNTIL_NEEDED: Span = Span(u64::MAX);

/// A disk or link from which weights are read, one load at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loader {
    pub loader: LoaderId,
    /// The duration of the reading. The rest of a load does not delay others.
    pub takes: Span,
}

/// The source of weights, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Host memory, where the engine itself keeps them while it sleeps.
    Asleep,
    /// Host memory, as files that were read before.
    PageCache,
    Disk,
    Network,
}

impl Tier {
    pub const ALL: [Tier; 4] = [Tier::Asleep, Tier::PageCache, Tier::Disk, Tier::Network];

    pub fn name(self) -> &'static str {
        match self {
            Tier::Asleep => "asleep",
            Tier::PageCache => "page-cache",
            Tier::Disk => "disk",
            Tier::Network => "network",
        }
    }
}

/// A small single-device model with default limits, for tests and replays.
impl ModelSpec {
    /// The part on the host that must fit there. The system can drop the pages of mapped weights.
    pub fn host_unmapped(&self) -> Bytes {
        self.host_bytes.saturating_sub(self.host_mapped)
    }

    /// The same for simulations in which nothing has to be fetched.
    pub fn with_its_weights(self) -> ModelSpec {
        ModelSpec {
            absent: false,
            damage: None,
            ..self
        }
    }
}

impl Default for ModelSpec {
    fn default() -> ModelSpec {
        ModelSpec {
            name: String::new(),
            priority: Priority(0),
            devices_per_replica: 1,
            nodes: NodeSpan::One,
            devices_max: u32::MAX,
            bytes_per_device: Bytes(Bytes::GIB),
            host_bytes: Bytes::ZERO,
            host_mapped: Bytes::ZERO,
            need_is_fixed: false,
            wider: Vec::new(),
            allowed: None,
            allowed_by: String::new(),
            allowed_shapes: None,
            keep_hot: Span::from_secs(600),
            adaptive_keep_hot: None,
            keep_hot_scope: KeepHotScope::Model,
            min_resident: None,
            max_turn: None,
            queue_limit: 512,
            queue_timeout: Span::from_secs(300),
            seats_per_replica: 8,
            load_deadline: Span::from_secs(600),
            reload: Span::from_secs(10),
            reload_is_guess: false,
            engine: "",
            loader: None,
            stop_grace: Span::from_secs(10),
            replicas_max: None,
            scaling: None,
            started_with: 0,
            files_mark: 0,
            parking: None,
            absent: false,
            damage: None,
            no_program: None,
        }
    }
}

/// An administrator's settings for one model. Kept in the store (D1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    pub priority: Option<Priority>,
    pub keep_hot: Option<Span>,
    /// A lease by the machine's clock. The override is dropped when it ends; keep-hot does not unload the model before (L2).
    pub expires: Option<Time>,
}

impl Override {
    pub fn is_empty(&self) -> bool {
        *self == Override::default()
    }

    fn has_settings(&self) -> bool {
        self.priority.is_some() || self.keep_hot.is_some()
    }
}

/// An order's changes of an override. A field that is `None` stays as it is; an inner `None` restores the catalogue's
/// value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverrideChange {
    pub priority: Option<Option<Priority>>,
    pub keep_hot: Option<Option<Span>>,
    pub expires: Option<Option<Time>>,
}

impl OverrideChange {
    /// Replaces the complete override.
    pub fn replace_all(over: Override) -> OverrideChange {
        OverrideChange {
            priority: Some(over.priority),
            keep_hot: Some(over.keep_hot),
            expires: Some(over.expires),
        }
    }

    /// The override after the change. A lease ends with the last of its settings, unless the change sets a lease too: a lease alone
    /// keeps the model loaded.
    pub fn on(&self, over: &Override) -> Override {
        let mut changed = Override {
            priority: self.priority.unwrap_or(over.priority),
            keep_hot: self.keep_hot.unwrap_or(over.keep_hot),
            expires: self.expires.unwrap_or(over.expires),
        };
        if self.expires.is_none() && over.has_settings() && !changed.has_settings() {
            changed.expires = None;
        }
        changed
    }
}

/// An administrator's wish that a model be loaded. Kept in the store until the model leaves (D1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadWish {
    pub replicas: u32,
    /// Overrides `ModelSpec::devices_per_replica` for these replicas.
    pub devices: Option<u32>,
    pub since: Time,
}

impl LoadWish {
    /// Returns true if a cleanup that began at this time does not end the wish, because the administrator ordered the load later
    /// (E3).
    pub fn outlives(&self, cleanup: Time) -> bool {
        self.since > cleanup
    }
}

/// The reason why a device takes nothing new, and the expected end (M7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cordon {
    pub reason: String,
    pub since: Time,
    /// The expected end. Only displayed; it takes an `uncordon` to end the cordon.
    pub until: Option<Time>,
    /// The device itself reported the failure, so nothing on it can be saved.
    pub failed: bool,
}

/// The pool's own limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum drain time of a replica of strictly lower priority before it is cut (P2).
    pub preempt_drain: Span,
    /// The time an unload waits for the requests in flight.
    pub unload_drain: Span,
    /// The first cool-down after a failed load; doubles each time (L3).
    pub cooldown_first: Span,
    pub cooldown_max: Span,
    /// The number of consecutive failed loads after which the model is quarantined (L3).
    pub failures_max: u32,
    /// A replica that was ready for this long before it crashed has not failed to load.
    pub healthy_after: Span,
    /// The time memory may take to be returned after a stop before plans use the measured figures (M4).
    pub release_wait: Span,
    /// The time an engine may take to fall asleep before it is stopped instead.
    pub sleep_deadline: Span,
    /// The shortest deadline for an engine to wake.
    pub wake_deadline: Span,
    /// The time a sleeper without demand stays.
    pub keep_asleep: Span,
    /// Nodes other than the controller's own machine may join. A wish that fits nowhere now waits for them (N3).
    pub nodes_may_join: bool,
    /// The time a requested node may take before the pool evicts instead (S2).
    pub node_patience: Span,
    /// The time a requested node stays with nothing loaded (S2).
    pub node_scale_down_after: Span,
    /// The models of a requested node move to cheaper places (S3).
    pub node_consolidates: bool,
    /// The time for which a node size that failed is not requested again (S2).
    pub node_retry: Span,
    /// The number of nodes that the pool may hold or request at a time (S2).
    pub nodes_max: Option<u32>,
    /// The limits for the use of requested nodes per day and month (S2).
    pub node_budget: NodeBudget,
    /// The limits for nodes that are requested for batches; `None`: none is requested (B8).
    pub batch_nodes: Option<BatchNodes>,
    /// The time within which all devices of a requested node must be reported after it has joined (S2).
    pub node_devices_within: Span,
    /// The time before the end of a node at which its models move; `None` for the expected duration (N7).
    pub node_renew_before: Option<Span>,
    /// The time a model whose replicas are on a silent node waits for it before it is loaded on another node (N2).
    pub silent_grace: Span,
    /// The rule by which an idle replica of higher priority leaves for a lower one (P6).
    pub idle_yields: IdleYields,
    pub policy: Policy,
    /// The weight of a second of loading relative to a second of waiting (P3).
    pub objective: Objective,
    /// The time to the first token that requests for models of a priority should have (P3).
    pub targets: BTreeMap<Priority, Span>,
}

/// The rule by which an idle replica below always-hot leaves for a requested model of lower priority (P6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleYields {
    /// After three times the measured time to stop it and to load it again.
    #[default]
    Auto,
    /// After it has been idle for this long.
    After(Span),
    Never,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            preempt_drain: Span::from_secs(30),
            unload_drain: Span::from_secs(600),
            cooldown_first: Span::from_secs(10),
            cooldown_max: Span::from_secs(300),
            failures_max: 5,
            healthy_after: Span::from_secs(60),
            release_wait: Span::from_secs(10),
            sleep_deadline: Span::from_secs(120),
            wake_deadline: Span::from_secs(60),
            keep_asleep: Span::from_secs(3600),
            nodes_may_join: false,
            node_patience: Span::from_secs(180),
            node_scale_down_after: Span::from_secs(1200),
            node_consolidates: true,
            node_retry: Span::from_secs(300),
            nodes_max: None,
            node_budget: NodeBudget::default(),
            batch_nodes: None,
            node_devices_within: Span::from_secs(30),
            node_renew_before: None,
            silent_grace: Span::from_secs(15),
            idle_yields: IdleYields::Auto,
            policy: Policy::ADAPTIVE,
            objective: Objective::WAIT,
            targets: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_when_its_last_setting_is_removed_and_a_lease_without_settings_stays() {
        let leased = Override {
            priority: Some(Priority(1)),
            keep_hot: Some(Span(3_000)),
            expires: Some(Time(9)),
        };
        let no_priority = OverrideChange {
            priority: Some(None),
            ..OverrideChange::default()
        };
        let no_keep_hot = OverrideChange {
            keep_hot: Some(None),
            ..OverrideChange::default()
        };
        let rest = no_priority.on(&leased);
        assert_eq!(rest.expires, leased.expires);
        assert_eq!(no_keep_hot.on(&rest), Override::default());
        let alone = Override {
            expires: Some(Time(9)),
            ..Override::default()
        };
        assert_eq!(OverrideChange::replace_all(alone.clone()).on(&rest), alone);
        assert_eq!(no_priority.on(&alone), alone);
    }
}
