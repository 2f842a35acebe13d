//! The core's description of a model, and the limits of the pool. Plain data, filled by the catalogue and the
//! configuration.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::ids::{Bytes, DeviceId, LoaderId, Priority, Span, Time};
use crate::types::objective::Objective;
use crate::types::policy::Policy;

/// One model, as the catalogue describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    pub name: String,
    /// From the model's own file, `model_reference.json`, or 0 (P1). An administrator's override
    /// is kept beside it, not in it.
    pub priority: Priority,
    /// Devices per replica, all of one node (M5). At least 1.
    pub devices_per_replica: u32,
    /// The most devices over which its engine spreads a replica. At least 1.
    pub devices_max: u32,
    /// What one replica reserves on each of its devices (M1, M3).
    pub bytes_per_device: Bytes,
    /// An administrator gave the figure: neither a measurement nor a failure changes it (M1).
    pub need_is_fixed: bool,
    /// Other numbers of devices, fewest first, should the first not fit into an empty pool (M5).
    pub wider: Vec<Layout>,
    /// The only devices it may use; `None`: all.
    pub allowed: Option<BTreeSet<DeviceId>>,
    /// How long a replica stays after its last request ended (L2).
    pub keep_hot: Span,
    /// The bounds if the time is chosen from the model's gaps instead.
    pub adaptive_keep_hot: Option<KeepHotBounds>,
    /// Equals do not evict an idle replica that is younger than this; `None`: it leaves at once, unless its next request
    /// is near (P3).
    pub min_resident: Option<Span>,
    /// How long a busy replica keeps its turn against equals; `None`: three times the swap time or eight of its requests,
    /// from when a request waits for its place (P3).
    pub max_turn: Option<Span>,
    /// Requests that may wait for the model (Q1).
    pub queue_limit: u32,
    /// The longest wait of a request (Q1).
    pub queue_timeout: Span,
    /// Concurrent requests per replica. At least 1.
    pub seats_per_replica: u32,
    /// The longest time of a load (L3).
    pub load_deadline: Span,
    /// The expected time of a load: measured last time, or estimated from size and source.
    pub reload: Span,
    /// What a load reads from, and for how long; loads that share it run one after another.
    pub loader: Option<Loader>,
    /// Between SIGTERM and SIGKILL (L5).
    pub stop_grace: Span,
    /// The most replicas that an order may ask for, of a model whose memory the pool does not see; `None`: memory bounds
    /// them.
    pub replicas_max: Option<u32>,
    /// Scales with its requests; `None`: it has one replica, or as many as an administrator orders.
    pub scaling: Option<Box<crate::types::autoscaling::Scaling>>,
    /// Stands for its engine's settings: a replica that was started with other settings is drained, and demand for the
    /// model gets a new one.
    pub started_with: u64,
    /// Changes with the files that it is loaded from: what failed before may go well now.
    pub files_mark: u64,
    /// Its engine can sleep, with its weights in the host's memory, instead of being ended (L1).
    pub parking: Option<Parking>,
    /// Its weights are not on this machine, or damaged: they are fetched, or looked at again, before it is placed.
    pub absent: bool,
    /// What is wrong with the weights that are on this machine.
    pub damage: Option<String>,
    /// The reason its engine's program cannot be started, on a pool of one machine.
    pub no_program: Option<String>,
}

/// The host memory that a sleeping engine takes, and how soon it is awake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    /// Host memory of one replica in total.
    pub host: Bytes,
    /// What stays on each of its devices.
    pub resident_per_device: Bytes,
    /// An estimate, used until waking has been measured.
    pub wakes_in: Span,
}

/// A number of devices, and what one replica reserves on each of them.
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

/// A disk or link from which weights are read, one load at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loader {
    pub loader: LoaderId,
    /// How long the reading takes; the rest of a load does not delay others.
    pub takes: Span,
}

/// Where weights come from, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The host's memory, where the engine itself keeps them while it sleeps.
    Asleep,
    /// The host's memory, as files that were read before.
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

/// A small model of one device with default limits, for tests and replays.
impl ModelSpec {
    /// The same for a world in which nothing has to be fetched.
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
            devices_max: u32::MAX,
            bytes_per_device: Bytes(Bytes::GIB),
            need_is_fixed: false,
            wider: Vec::new(),
            allowed: None,
            keep_hot: Span::from_secs(600),
            adaptive_keep_hot: None,
            min_resident: None,
            max_turn: None,
            queue_limit: 512,
            queue_timeout: Span::from_secs(300),
            seats_per_replica: 8,
            load_deadline: Span::from_secs(600),
            reload: Span::from_secs(10),
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
    /// A lease, by the machine's clock: when it ends the override is dropped. Until then keep-hot does not unload the model (L2).
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
    /// Replaces all of it.
    pub fn replace_all(over: Override) -> OverrideChange {
        OverrideChange {
            priority: Some(over.priority),
            keep_hot: Some(over.keep_hot),
            expires: Some(over.expires),
        }
    }

    /// The override with the change on top. A lease ends with the last of its settings, unless the change is of the lease
    /// too: by itself it keeps the model loaded.
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
    /// A cleanup that began then does not end it: the administrator has ordered the load since (E3).
    pub fn outlives(&self, cleanup: Time) -> bool {
        self.since > cleanup
    }
}

/// Why a device takes nothing new, and until when that is expected to last (M7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cordon {
    pub reason: String,
    pub since: Time,
    /// When it is expected to be over. Only shown; it takes an `uncordon` to end it.
    pub until: Option<Time>,
    /// The device itself reported the failure: nothing on it can be saved.
    pub failed: bool,
}

/// The pool's own limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a replica of strictly lower priority may drain before it is cut (P2).
    pub preempt_drain: Span,
    /// How long an unload waits for the requests in flight.
    pub unload_drain: Span,
    /// First cool-down after a failed load; doubles each time (L3).
    pub cooldown_first: Span,
    pub cooldown_max: Span,
    /// Failed loads in a row until the model is quarantined (L3).
    pub failures_max: u32,
    /// A replica that crashes after being ready this long has not failed to load.
    pub healthy_after: Span,
    /// How long memory may take to be returned after a stop before plans use what is measured (M4).
    pub release_wait: Span,
    /// How long an engine may take to fall asleep before it is stopped instead.
    pub sleep_deadline: Span,
    /// The shortest deadline for an engine to wake.
    pub wake_deadline: Span,
    /// How long a sleeper without demand stays.
    pub keep_asleep: Span,
    /// Nodes other than the controller's own machine may join: a wish that fits nowhere now waits for them (N3).
    pub nodes_may_join: bool,
    /// How long a requested node may take before the pool evicts instead (S2).
    pub node_patience: Span,
    /// How long a requested node stays with nothing loaded (S2).
    pub node_scale_down_after: Span,
    /// How long a size of node that failed is not requested again (S2).
    pub node_retry: Span,
    /// Within this time after a requested node has joined, all its devices are reported (S2).
    pub node_devices_within: Span,
    /// How long before the end of a node its models move; `None`: as long as that is expected to take (N7).
    pub node_renew_before: Option<Span>,
    /// How long a model whose replicas are on a silent node waits for it before it is loaded on another (N2).
    pub silent_grace: Span,
    /// When an idle replica of higher priority leaves for a lower one (P6).
    pub idle_yields: IdleYields,
    pub policy: Policy,
    /// What a second of loading counts beside the seconds of waiting (P3).
    pub objective: Objective,
}

/// When an idle replica below always-hot leaves for a model of lower priority that is waited for (P6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleYields {
    /// After three times its own reload time, and at least 30 s.
    #[default]
    Auto,
    /// When it has been idle for this long.
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
            node_retry: Span::from_secs(300),
            node_devices_within: Span::from_secs(30),
            node_renew_before: None,
            silent_grace: Span::from_secs(15),
            idle_yields: IdleYields::Auto,
            policy: Policy::ADAPTIVE,
            objective: Objective::WAIT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_with_the_last_of_its_settings_and_alone_it_stays() {
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
