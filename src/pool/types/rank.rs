//! The sort keys that hold all policy. Smallest first. The order of the fields is the policy; the last field is an id, which makes
//! the result the same on every machine.

use core::cmp::Reverse;

use crate::types::ids::{Bytes, DeviceId, ModelId, Priority, ReplicaId, Time};
use crate::types::link::Link;

/// The order in which loads are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DemandRank {
    /// A forced order goes before everything (P4).
    pub unforced: bool,
    /// Then the model's priority (Q1).
    pub priority: Reverse<Priority>,
    /// Among equals, an administrator's order before a user's request.
    pub class: Class,
    /// A demand that is due goes before the others.
    pub may_wait: bool,
    /// Among these, the demand that is due first (`plan/load_order.rs`).
    pub due: Time,
    /// Then first come; for always-hot models, the older one (P4).
    pub since: Time,
    pub model: ModelId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Order,
    Standing,
    Request,
    /// An additional replica of a model that already has some.
    Growth,
    /// Batch requests, below priority 0 (B4). The last demands of all, because their `priority` is 0.
    Batch,
}

/// The order in which victims are taken within a priority class (P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VictimRank {
    /// No request is cut or delayed if an idle victim suffices.
    pub busy: bool,
    /// Expected loss per GiB.
    pub value: u64,
    /// Among equal values the larger one, for fewer victims.
    pub bytes: Reverse<Bytes>,
    pub replica: ReplicaId,
}

/// The cost of a set of victims (P5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    pub highest_priority: Option<Priority>,
    pub busy: u32,
    /// Expected seconds lost per second, in 10⁻¹².
    pub loss: u64,
    pub bytes: Bytes,
}

/// The order of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceRank {
    /// The fewest and cheapest evictions (M5, P5).
    pub cost: Cost,
    /// Then the best connected; a single device always ranks best.
    pub link: Link,
    /// A node known to have the weights before any that must fetch them (N6).
    pub fetches: bool,
    /// Memory that is free now, on a node whose disk or link is free, before memory that must be waited for.
    pub must_wait: bool,
    /// The tightest fit, which keeps large gaps for large models.
    pub left_over: Bytes,
    pub device: DeviceId,
}

/// The order in which loads that wait for the same disk or link are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchRank {
    /// Batches read last, whatever the priority of their models (B4).
    pub only_for_batches: bool,
    pub priority: Reverse<Priority>,
    /// The time by which it has to begin for a target, or else the deadline of the oldest waiting request; orders come last.
    pub deadline: Time,
    /// The shorter load first, because it delays the others least.
    pub bytes: Bytes,
    pub load: ReplicaId,
}
