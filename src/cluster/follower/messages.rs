//! Messages between the pool's loop and the follower.

use std::collections::BTreeMap;

use crate::{Outlook, ShapeRoom, Spending};

/// The pool's decisions and knowledge about nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterOrder {
    /// Requests a node of this shape for each of `demands`. Several are a set: the pool withdraws all of them if one is refused. At
    /// most one request of each shape and one set of each shape is open.
    Request { demands: Vec<u64>, shape: String },
    /// Withdraws the request, with the other requests of its lease.
    Cancel { demand: u64 },
    /// Gives back the node of this name, with the other nodes of its lease.
    Release { node: String },
    /// The node of this name has joined.
    Joined { node: String },
    /// The node was ordered to end, possibly because of its time limit.
    Leaves { node: String },
    /// The node of this name does not respond, or has not returned since the controller's start.
    Silent { node: String },
    /// The node of this name has left.
    Gone { node: String },
}

/// The progress of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterNews {
    /// The reason why the node has not joined yet.
    Pending {
        demand: u64,
        reason: String,
        outlook: Outlook,
    },
    /// The shapes of which the cluster can bring only some nodes at present.
    Closed { shapes: BTreeMap<String, ShapeRoom> },
    /// The request failed.
    Refused { demand: u64, why: String },
    /// The name with which the node for the request will join.
    Named { demand: u64, node: String },
    /// The latest end of the node's lease, in seconds since 1970.
    Ends { node: String, unix: u64 },
    /// The shape of a requested node that has joined. Nodes of one lease, which end together, have the same `set`.
    Sized {
        node: String,
        shape: String,
        set: Option<u64>,
    },
    /// The use by the pool's nodes until now.
    Spent(Spending),
    /// The lease of a silent node has ended.
    Ended { node: String, why: String },
}
