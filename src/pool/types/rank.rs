//! The sort keys that hold all policy. Smallest first; the order of the fields is the policy, and
//! the last field is an id, so that the answer is the same on every machine.

use core::cmp::Reverse;

use crate::types::ids::{Bytes, DeviceId, ModelId, Priority, ReplicaId, Time};
use crate::types::link::Link;

/// Which load is planned first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DemandRank {
    /// A forced order goes before everything (P4).
    pub unforced: bool,
    /// Then the model's priority (Q1).
    pub priority: Reverse<Priority>,
    /// Among equals an administrator's order before a user's request.
    pub class: Class,
    /// A demand that has waited long goes before the others, first come, first served.
    pub in_time: bool,
    /// Among the others, the one whose load serves the most requests for its time.
    pub pull: Reverse<u64>,
    /// Then first come; for always-hot models: the older (P4).
    pub since: Time,
    pub model: ModelId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Order,
    Standing,
    Request,
    /// One more replica of a model that has some already.
    Growth,
}

/// Which victim is taken first within one class of priority (P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VictimRank {
    /// No request is cut or delayed if an idle victim will do.
    pub busy: bool,
    /// Expected loss per GiB.
    pub value: u64,
    /// Among equal values the larger one: fewer victims.
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

/// Which place is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceRank {
    /// The fewest and cheapest evictions (M5, P5).
    pub cost: Cost,
    /// Then the best connected; a single device always ranks best.
    pub link: Link,
    /// A node that has the weights, as far as the nodes say, before any that must fetch them (N6).
    pub fetches: bool,
    /// Memory that is free now, on a node whose disk or link is free, before any that must be waited for.
    pub must_wait: bool,
    /// Tightest fit, which keeps large holes for large models.
    pub left_over: Bytes,
    pub device: DeviceId,
}

/// Which load is started first where several wait for the same disk or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchRank {
    pub priority: Reverse<Priority>,
    /// The deadline of the oldest waiting request; orders come last.
    pub deadline: Time,
    /// The shorter load first: it delays the others least.
    pub bytes: Bytes,
    pub load: ReplicaId,
}
