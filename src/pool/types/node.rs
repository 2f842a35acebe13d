//! What is known of one node. Plain data.

use alloc::string::String;

use crate::types::ids::{DemandId, Time};

/// A node that has joined at least once. The machine of the controller does not join: it is always there.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub name: String,
    pub presence: Presence,
    /// Since when it has been so.
    pub since: Time,
    /// The request of the pool that brought it.
    pub demand: Option<DemandId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Joined,
    /// Nothing is heard of it. Unknown is not absent: it keeps what it holds (N2).
    Silent,
    /// N3.
    Gone,
}

impl Node {
    pub fn is_joined(&self) -> bool {
        self.presence == Presence::Joined
    }
}

/// Why nothing is placed on a device for now, although it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    Silent,
    /// The node has engines that the pool has given up; what they hold is unknown (N4).
    EndsOthers,
    /// The pool gives the node back (S2).
    Released,
}
