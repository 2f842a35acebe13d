//! What the core must know of a model, and the limits of the whole pool. Plain data, filled by the
//! catalogue and the configuration; nothing here changes by itself.

use super::ids::{Bytes, Priority, Span, Time};

/// One model, as the catalogue describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    pub name: String,
    /// From the model's own file, `model_reference.json`, or 0 (P1). An administrator's override
    /// is kept beside it, not in it.
    pub priority: Priority,
    /// Devices that one replica holds, all of one node (M5). At least 1.
    pub devices_per_replica: u32,
    /// What one replica reserves on each of its devices (M1, M3).
    pub bytes_per_device: Bytes,
    /// How long a replica stays after its last request ended (L2).
    pub keep_hot: Span,
    /// An idle replica younger than this is not evicted by equals (P3).
    pub min_resident: Span,
    /// How long a busy replica keeps its turn against equals; `None`: three times the swap time,
    /// between 5 s and 60 s (P3).
    pub max_turn: Option<Span>,
    /// Requests that may wait for the model (Q1).
    pub queue_limit: u32,
    /// How long a request waits at most (Q1).
    pub queue_timeout: Span,
    /// Requests that one replica takes at once. At least 1.
    pub seats_per_replica: u32,
    /// How long a load may take (L3).
    pub load_deadline: Span,
    /// How long a load is expected to take: measured last time, or guessed from the size.
    pub reload: Span,
    /// Between SIGTERM and SIGKILL (L5).
    pub stop_grace: Span,
}

/// What an administrator has said about one model. Kept in the store (D1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    pub priority: Option<Priority>,
    pub keep_hot: Option<Span>,
    /// A lease: when it ends the override is dropped. Until then keep-hot does not unload the model.
    pub expires: Option<Time>,
}

impl Override {
    pub fn is_empty(&self) -> bool {
        *self == Override::default()
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
        }
    }
}
