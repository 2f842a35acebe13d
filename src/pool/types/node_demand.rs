//! Nodes that can be requested, and the open request. Plain data.

use alloc::string::String;

use crate::types::ids::{Bytes, DemandId, KindId, ModelId, NodeId, Priority, ShapeId, Time};

/// A size of node that a cluster can bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShape {
    pub shape: ShapeId,
    /// The name shown to administrators.
    pub name: String,
    pub devices: u32,
    /// The bytes that replicas may hold on each device.
    pub bytes_per_device: Bytes,
    pub kind: KindId,
    pub cost_per_hour_cents: Option<u32>,
}

/// The open request for a node. There is at most one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingNode {
    pub demand: DemandId,
    pub shape: ShapeId,
    /// The name of the size.
    pub shape_name: String,
    /// The model that it was first made for, and its priority at the time.
    pub model: ModelId,
    pub priority: Priority,
    pub since: Time,
    /// The cluster's status text.
    pub reason: String,
    /// The node that has joined for it, and when. Its devices are still to come.
    pub joined: Option<(NodeId, Time)>,
}
