//! Nodes that can be requested, and open requests. Plain data.

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

/// The cluster's forecast for an open request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOutlook {
    /// The cluster has not considered the request yet, or does not respond.
    #[default]
    Unknown,
    /// The request waits for machines that others use, until this time if the cluster gives one.
    Waits { starts: Option<Time> },
    /// No machine comes unless the pool itself gives one back.
    Stuck,
    /// The request can never start, or a limit of the account is reached.
    Never,
    /// The request has its machine.
    Starts,
}

/// An open request for a node. Each size has at most one.
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
    pub outlook: NodeOutlook,
    /// The time since which the outlook is of this kind.
    pub outlook_since: Time,
    /// The node that has joined for it, and when. Its devices are still to come.
    pub joined: Option<(NodeId, Time)>,
}

/// A node size as administrators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShapeView {
    pub shape: NodeShape,
    /// The nodes of this size that count towards the limits, with open requests.
    pub held: u32,
    /// The reason why no node of this size is requested now.
    pub unavailable: Option<String>,
    /// The time after which it may be requested again, if that depends on time alone.
    pub retry: Option<Time>,
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
    /// With what open requests reserve.
    GpuTime {
        period: &'static str,
        used: u64,
        most: u64,
    },
    /// With what open requests reserve.
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
