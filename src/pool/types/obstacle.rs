//! The obstacles to a load: memory that others hold, devices that cannot serve it, and the rules that protect replicas from
//! eviction. Plain data, and its texts.

use alloc::string::String;
use core::fmt;

use crate::types::ids::{Bytes, DeviceId, OrderId, Priority, ReplicaId, Span};

/// A single obstacle to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    pub device: DeviceId,
    /// The device's name as shown to administrators.
    pub name: String,
    pub bytes: Bytes,
    pub what: Blocker,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    Foreign,
    /// M4: a process has ended and its memory has not been returned yet.
    Settling,
    /// Cordoned (M7).
    Cordoned {
        reason: String,
    },
    NodeAway(NodeAway),
    Replica {
        replica: ReplicaId,
        model: String,
        priority: Priority,
        why: Protection,
    },
    /// The memory that the node's host lacks for the model's part there (M3).
    Host,
    OldNode(OldNode),
    /// A planned load that waits for memory.
    Planned {
        model: String,
        priority: Priority,
    },
}

/// The reason why a device cannot hold a replica, whatever else is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The model's file names other devices.
    NotAllowed,
    TooSmall {
        needs: Bytes,
        capacity: Bytes,
    },
    /// Cordoned (M7).
    Cordoned {
        reason: String,
    },
    NodeAway(NodeAway),
    OldNode(OldNode),
    /// The node's host lacks memory for the model's part there, and no eviction frees enough (M3).
    HostFull {
        lacks: Bytes,
    },
}

/// The temporary reason why nothing is placed on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAway {
    /// The node does not respond (N2).
    Silent { node: String, for_: Span },
    /// The pool gives it back (S2).
    Released { node: String },
    /// It waits for the other nodes that were requested with it (M8).
    Gathers { node: String, requested: u32 },
    /// Its replicas move to a cheaper place (S3).
    Emptied { node: String },
    /// Its time ends (N7).
    Ends { node: String, left: Span },
    /// It still has engines that the pool has given up (N4).
    EndsOthers { node: String, engines: u32 },
}

/// A node that runs no process of a replica on several nodes (M8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldNode {
    pub node: String,
    pub version: String,
}

/// The reason why a replica may not be evicted for a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// P4: always-hot.
    AlwaysHot,
    /// P2: of higher priority.
    HigherPriority,
    /// P3: busy, and its turn is not over.
    Turn { left: Span },
    /// P3: busy, and `pool.policy` is `lru`.
    Busy,
    /// P3: idle, and younger than `min_resident`, or its next request is near.
    Young { left: Span },
    /// P3: reloading it would cost more than the waiting for its place has cost so far (`pool.objective`).
    NotWorth { left: Span },
    /// P6: of higher priority and not idle for long enough.
    Yields { left: Span },
    /// P7: leased, and the load is not of higher priority.
    Leased { left: Span },
    /// P5: still loading.
    Loading,
    /// P5: an administrator's load of it is not finished.
    Ordered { order: OrderId },
    /// P5: an earlier request waits for it.
    Wanted,
    /// P5: the requests that waited for it have not been served.
    Unserved,
    /// It is already leaving, for another reason.
    Leaving,
    /// It serves the same model.
    Same,
    /// S1: an additional replica of a model takes no room from a model of equal priority.
    Growth,
    /// S1: nor from any model while an administrator's forced load is unfinished.
    Forced { order: OrderId },
    /// B4: the load is for batches. Some models yield to it after a time.
    Batch { left: Option<Span> },
}

impl Protection {
    /// The time until the protection ends, if it ends by time alone.
    pub(crate) fn ends_in(self) -> Option<Span> {
        match self {
            Protection::Turn { left }
            | Protection::Young { left }
            | Protection::NotWorth { left }
            | Protection::Yields { left }
            | Protection::Leased { left } => Some(left),
            Protection::Batch { left } => left,
            Protection::AlwaysHot
            | Protection::HigherPriority
            | Protection::Busy
            | Protection::Loading
            | Protection::Ordered { .. }
            | Protection::Wanted
            | Protection::Unserved
            | Protection::Leaving
            | Protection::Same
            | Protection::Growth
            | Protection::Forced { .. } => None,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.name, self.bytes, self.what)
    }
}

/// Names the holder; the text follows an amount of memory.
impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::Foreign => write!(f, "held by processes outside the pool (M2)"),
            Blocker::Settling => write!(f, "not given back yet by processes that ended (M4)"),
            Blocker::Cordoned { reason } => write!(f, "cordoned: {reason} (M7)"),
            Blocker::NodeAway(away) => write!(f, "out of reach: {away}"),
            Blocker::Host => write!(
                f,
                "missing in the machine's memory for the model's part there (M3)"
            ),
            Blocker::OldNode(old) => write!(f, "out of reach: {old}"),
            Blocker::Replica {
                replica,
                model,
                priority,
                why,
            } => write!(f, "held by {model} ({replica}, priority {priority}): {why}"),
            Blocker::Planned { model, priority } => {
                write!(f, "promised to {model} (priority {priority})")
            }
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NotAllowed => write!(f, "the model's file allows other devices only"),
            Unfit::TooSmall { needs, capacity } => {
                write!(
                    f,
                    "can give {capacity} even when empty, and {needs} is needed (M6)"
                )
            }
            Unfit::Cordoned { reason } => write!(f, "cordoned: {reason} (M7)"),
            Unfit::NodeAway(away) => write!(f, "{away}"),
            Unfit::OldNode(old) => write!(f, "{old}"),
            Unfit::HostFull { lacks } => write!(
                f,
                "{lacks} are missing in the machine's memory for the model's part there (M3)"
            ),
        }
    }
}

impl fmt::Display for NodeAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeAway::Silent { node, for_ } => {
                write!(f, "node {node} has not responded for {for_} (N2)")
            }
            NodeAway::Released { node } => write!(f, "node {node} is being given back (S2)"),
            NodeAway::Gathers { node, requested } => write!(
                f,
                "node {node} is one of {requested} nodes requested together, and waits for the others (M8)"
            ),
            NodeAway::Emptied { node } => {
                write!(
                    f,
                    "node {node} is emptied, because its models have a cheaper place (S3)"
                )
            }
            NodeAway::Ends { node, left } => {
                write!(f, "node {node} ends in {left} (N7)")
            }
            NodeAway::EndsOthers { node, engines } => write!(
                f,
                "node {node} must first end engines that the pool has given up there, {engines} in all (N4)"
            ),
        }
    }
}

impl fmt::Display for OldNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OldNode { node, version } = self;
        write!(
            f,
            "node {node} runs version {version}, which cannot run a part of a replica on several nodes: update it (M8)"
        )
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Protection::AlwaysHot => write!(f, "always-hot (P4)"),
            Protection::HigherPriority => write!(f, "of higher priority (P2)"),
            Protection::Turn { left } => write!(f, "busy, its turn has {left} left (P3)"),
            Protection::Busy => write!(f, "busy, and pool.policy is lru (P3)"),
            Protection::Young { left } => {
                write!(
                    f,
                    "idle, but expected to be used again soon: {left} left (P3)"
                )
            }
            Protection::NotWorth { left } => write!(
                f,
                "requests have not waited long enough for a load: {left} left (P3, pool.objective)"
            ),
            Protection::Yields { left } => {
                write!(f, "of higher priority and idle, yields in {left} (P6)")
            }
            Protection::Leased { left } => {
                write!(
                    f,
                    "leased for {left} more, and the load is not of higher priority (P7)"
                )
            }
            Protection::Loading => write!(f, "loading (P5)"),
            Protection::Ordered { order } => {
                write!(f, "order {order}, which loads it, is not finished (P5)")
            }
            Protection::Wanted => write!(f, "an earlier request waits for it (P5)"),
            Protection::Unserved => write!(f, "its waiters have not been served (P5)"),
            Protection::Leaving => write!(f, "leaving already"),
            Protection::Same => write!(f, "the same model"),
            Protection::Growth => write!(
                f,
                "of equal priority, and an additional replica takes no room from models of equal priority (S1)"
            ),
            Protection::Forced { order } => write!(
                f,
                "an additional replica takes no room while order {order}, a forced load, is not finished (S1)"
            ),
            Protection::Batch { left: Some(left) } => {
                write!(f, "idle, yields to batches in {left} (B4)")
            }
            Protection::Batch { left: None } => {
                write!(f, "a load for batches takes no room from it (B4)")
            }
        }
    }
}
