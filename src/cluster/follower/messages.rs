//! What the loop and the follower say to each other.

/// What the pool has decided, or knows, about nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterOrder {
    /// One more node of this shape. There is at most one open request.
    Request { demand: u64, shape: String },
    /// The request is not wanted any more.
    Cancel { demand: u64 },
    /// The node of this name is given back.
    Release { node: String },
    /// The node of this name takes part.
    Joined { node: String },
    /// It has been ordered to end, which may be because of its time limit.
    Leaves { node: String },
    /// It does not any more.
    Gone { node: String },
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterNews {
    /// Why the node is not there yet.
    Pending { demand: u64, reason: String },
    /// There will be none.
    Refused { demand: u64, why: String },
    /// The node of this name will come for it.
    Named { demand: u64, node: String },
    /// The lease of this node ends then at the latest, in seconds since 1970.
    Ends { node: String, unix: u64 },
}
