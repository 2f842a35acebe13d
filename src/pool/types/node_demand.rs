//! Nodes that can be requested, and open requests. Plain data.

use alloc::string::String;
use core::fmt;

use crate::types::ids::{Bytes, DemandId, KindId, ModelId, NodeId, Priority, ShapeId, Time};
use crate::types::reason::plural;

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

/// The room of a cluster that cannot grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRoom {
    /// The number of further nodes of the size that the cluster can bring.
    pub nodes: u32,
    /// The reason why it can bring no more.
    pub why: String,
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

/// Requests made together, for a replica that spans several nodes (M8): all of them bring their nodes, or none is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSet {
    /// The first of the requests.
    pub id: DemandId,
    /// The number of requests. Nodes that existed are not requested.
    pub requests: u32,
    /// The number of nodes over which the replica is spread.
    pub nodes: u32,
}

/// An open request for a node. Each size has at most one, and at most one set for replicas that span several nodes.
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
    /// The node that has joined for it, and when. Its devices are still to come, or the other nodes of its set.
    pub joined: Option<(NodeId, Time)>,
    /// The set that it belongs to.
    pub set: Option<NodeSet>,
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
    /// The part of the day by nodes that were requested for batches (B8).
    pub batch_day: NodeUse,
}

/// The limits for nodes that are requested for batches (B8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNodes {
    /// The number of nodes that the pool may hold or request for batches at a time.
    pub nodes_max: u32,
    /// Their use per day.
    pub day: NodeAmounts,
}

/// The limit that keeps a size from being requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeLimit {
    Nodes {
        most: u32,
        count: NodeCount,
    },
    OfSize {
        most: u32,
        count: NodeCount,
    },
    /// With what open requests reserve, and all requested nodes but one.
    GpuTime {
        period: &'static str,
        used: u64,
        most: u64,
        wanted: u32,
    },
    /// With what open requests reserve, and all requested nodes but one.
    Cost {
        period: &'static str,
        used: u64,
        most: u64,
        wanted: u32,
    },
    /// Nodes for batches (B8).
    BatchNodes {
        most: u32,
    },
    BatchGpuTime {
        used: u64,
        most: u64,
    },
    BatchCost {
        used: u64,
        most: u64,
    },
}

/// The nodes that are held or requested, and the number of further nodes that are needed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeCount {
    pub held: u32,
    pub wanted: u32,
}

impl NodeCount {
    /// Describes the limit that forbids the further nodes.
    fn describe(self, f: &mut fmt::Formatter<'_>, most: u32, what: &str, key: &str) -> fmt::Result {
        let NodeCount { held, wanted } = self;
        if wanted > 1 {
            write!(
                f,
                "{wanted} more are needed together, and {held} of at most {most} {what} are held or requested ({key})"
            )
        } else {
            write!(f, "the limit of {most} {what} is reached ({key})")
        }
    }
}

/// Names the nodes whose use counts although they are not requested yet.
fn with_nodes(wanted: u32) -> String {
    match wanted {
        0 | 1 => String::new(),
        _ => format!(
            "with {} of the {wanted} nodes needed together, ",
            wanted - 1
        ),
    }
}

/// Hours with two decimals.
fn hours(seconds: u64) -> String {
    format!("{}.{:02}", seconds / 3600, seconds % 3600 / 36)
}

/// An amount of money with two decimals.
fn amount(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

impl fmt::Display for NodeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeLimit::Nodes { most, count } => {
                count.describe(f, *most, "nodes", "cluster.max_nodes")
            }
            NodeLimit::OfSize { most, count } => {
                let key = "max_nodes in cluster.shapes";
                count.describe(f, *most, "nodes of this size", key)
            }
            NodeLimit::GpuTime {
                period,
                used,
                most,
                wanted,
            } => {
                let (used, most) = (hours(*used), hours(*most));
                write!(
                    f,
                    "{}{used} of {most} GPU hours of this {period} are used (cluster.budget.gpu_hours_per_{period})",
                    with_nodes(*wanted)
                )
            }
            NodeLimit::Cost {
                period,
                used,
                most,
                wanted,
            } => {
                let (used, most) = (amount(*used), amount(*most));
                write!(
                    f,
                    "{}{used} of {most} of this {period}'s cost is used (cluster.budget.cost_per_{period})",
                    with_nodes(*wanted)
                )
            }
            NodeLimit::BatchNodes { most } => {
                let plural = plural(*most);
                write!(
                    f,
                    "the limit of {most} node{plural} for batches is reached (batch.nodes.max)"
                )
            }
            NodeLimit::BatchGpuTime { used, most } => write!(
                f,
                "batches have used {} of {} GPU hours of this day (batch.nodes.gpu_hours_per_day)",
                hours(*used),
                hours(*most)
            ),
            NodeLimit::BatchCost { used, most } => write!(
                f,
                "batches have used {} of {} of this day's cost (batch.nodes.cost_per_day)",
                amount(*used),
                amount(*most)
            ),
        }
    }
}
