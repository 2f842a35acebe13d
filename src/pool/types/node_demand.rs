//! Nodes that can be requested, and the open request. Plain data.

use alloc::string::String;
use core::fmt;

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
    /// The number of nodes of this size that the pool may hold or request at a time.
    pub nodes_max: Option<u32>,
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

/// Limits for what requested nodes may use in a period; `None` without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeAmounts {
    pub gpu_seconds: Option<u64>,
    pub cents: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeBudget {
    pub day: NodeAmounts,
    pub month: NodeAmounts,
}

/// The use by requested nodes in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUse {
    pub gpu_seconds: u64,
    pub cents: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodesSpent {
    pub day: NodeUse,
    pub month: NodeUse,
}

/// The limit that keeps a size from being requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeLimit {
    Nodes {
        most: u32,
    },
    OfSize {
        most: u32,
    },
    GpuTime {
        period: &'static str,
        used: u64,
        most: u64,
    },
    Cost {
        period: &'static str,
        used: u64,
        most: u64,
    },
}

impl fmt::Display for NodeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeLimit::Nodes { most } => {
                write!(
                    f,
                    "the limit of {most} nodes is reached (cluster.max_nodes)"
                )
            }
            NodeLimit::OfSize { most } => write!(
                f,
                "the limit of {most} nodes of this size is reached (max_nodes in cluster.shapes)"
            ),
            NodeLimit::GpuTime { period, used, most } => {
                let tenths = |seconds: &u64| (seconds / 3600, seconds % 3600 / 360);
                let ((hours, tenth), (most, of_most)) = (tenths(used), tenths(most));
                write!(
                    f,
                    "{hours}.{tenth} of {most}.{of_most} GPU hours of this {period} are used (cluster.budget.gpu_hours_per_{period})"
                )
            }
            NodeLimit::Cost { period, used, most } => write!(
                f,
                "{}.{:02} of {}.{:02} of this {period}'s cost is used (cluster.budget.cost_per_{period})",
                used / 100,
                used % 100,
                most / 100,
                most % 100
            ),
        }
    }
}
