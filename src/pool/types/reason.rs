//! The reason of every decision. Logs, the admin API, the store, the stories and the simulator print the same text. Rules are cited
//! by number.
//! One file because it is the list of all reasons with their texts, which keeps their wording consistent.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::types::attempts;
use crate::types::ids::{Bytes, DeviceId, NodeId, OrderId, Priority, ReplicaId, Span};
use crate::types::obstacle::Obstacle;
use crate::types::stall::StallReason;

/// The reason why a replica is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadReason {
    Requests {
        waiting: u32,
    },
    Order {
        order: OrderId,
    },
    /// An administrator's load from before a restart.
    Wish,
    AlwaysHot {
        priority: Priority,
    },
    /// Its replicas have more requests than their target (S1).
    Growth {
        wanted: u32,
    },
    /// It was running when the controller started (D2).
    Adopted,
    /// The node that has it ends soon (N7).
    Moves {
        node: String,
        left: Span,
    },
    /// A cheaper place than its node is free (S3).
    Consolidates {
        node: String,
    },
    /// Batch requests wait for it, and nothing else does (B4).
    Batch {
        lines: u64,
        /// Only a deadline allows the load to evict (B7).
        for_deadline: bool,
    },
}

/// The reason why a replica leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    KeepHot {
        /// Set if the time counts from the last use of its devices.
        devices_idle: Option<Span>,
        idle: Span,
    },
    /// A model of higher priority needs the memory (P2).
    Preempted {
        by: String,
        priority: Priority,
        own: Priority,
        /// The time until its lease would have ended (P7).
        lease: Option<Span>,
    },
    /// A model of equal priority takes its turn (P3).
    TurnEnded {
        by: String,
        ready_for: Span,
    },
    /// It is idle, and a model of equal (P3) or lower priority (P6) needs the memory.
    Yielded {
        by: String,
        idle: Span,
        own: Priority,
        priority: Priority,
    },
    /// It serves only batches, and any other load goes first (B5).
    BatchYielded {
        by: String,
    },
    /// Its node was requested for batches and is given back (B8).
    BatchNode {
        node: String,
        why: String,
    },
    /// An administrator forced a load (P4).
    Forced {
        by: String,
        order: OrderId,
        lease: Option<Span>,
    },
    Unload {
        order: OrderId,
    },
    Cleanup {
        order: OrderId,
    },
    Reset {
        order: OrderId,
    },
    Shutdown,
    /// The model was removed from the catalogue.
    Removed,
    /// The catalogue has changed how its engine is started.
    Changed,
    /// More replicas than ordered.
    Surplus,
    /// There is no longer demand for the load (Q3).
    Unwanted,
    LoadTimedOut {
        deadline: Span,
    },
    /// Its engine could not be woken, so the model is loaded again for the waiting requests.
    DidNotWake {
        message: String,
    },
    /// A sleeper that has been without demand for too long.
    SleptLong {
        slept: Span,
    },
    /// Sleepers go first when the host itself lacks memory.
    HostPressure {
        short: Bytes,
    },
    /// Another replica sleeps in its place.
    HostFor {
        by: String,
    },
    /// The device memory that a sleeper keeps is needed.
    SleeperDropped {
        by: String,
    },
    /// The device is cordoned (M7).
    Cordoned {
        device: String,
        order: OrderId,
    },
    /// The device reports a failure (M7).
    DeviceFailed {
        device: String,
        trouble: String,
    },
    /// The node drains (N5).
    NodeDrained {
        node: String,
        order: OrderId,
    },
    /// The time of its node ends (N7).
    NodeEnds {
        node: String,
        /// Another replica is ready.
        has_moved: bool,
    },
    /// It has moved to a cheaper place (S3).
    Consolidated {
        node: String,
    },
    /// Its node is gone, or came back without it (N3).
    NodeLost {
        node: String,
        why: String,
    },
    /// It was found after a restart and cannot stay (D2).
    NotAdopted {
        why: String,
    },
    /// Its engine has ended on its own, and its remains are being removed.
    Crashed {
        ready_for: Span,
    },
    /// A process of the replica has ended, which ends its processes on other nodes (M8).
    MemberEnded {
        node: String,
        rank: u32,
        /// The exit of the process.
        why: String,
        ready_for: Span,
    },
}

/// The reason why a request, order or load is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    UnknownModel,
    /// The model's queue is full (Q1).
    QueueFull {
        limit: u32,
        retry: Span,
    },
    /// The request waited for too long (Q1).
    TimedOut {
        waited: Span,
        retry: Span,
        stall: StallReason,
    },
    /// M6: not even in an empty pool.
    NeverFits {
        needs: Bytes,
        devices: u32,
        /// The number of nodes over which the devices are spread.
        nodes: u32,
        largest: Bytes,
        devices_that_fit: u32,
        /// The number of devices that the model's file allows.
        devices_allowed: u32,
        /// The keys of its file that restrict them.
        allowed_by: String,
        /// The host memory that it needs and the most that a node's host has, if only that is too little.
        host: Option<(Bytes, Bytes)>,
        /// The reasons why nodes cannot hold it together; empty without such nodes.
        apart: Vec<String>,
    },
    /// Every node has left, or none has joined yet.
    NoDevices {
        /// The node that left last, and the reason.
        last: Option<(String, String)>,
    },
    /// It does not fit, and no node is requested for it (S2).
    NoNode {
        refusal: Box<Refusal>,
        why: String,
        /// The time after which a node may be requested again.
        retry: Option<Span>,
    },
    /// No allowed eviction frees enough memory.
    NoRoom {
        needs: Bytes,
        devices: u32,
        obstacles: Vec<Obstacle>,
    },
    /// L3: the engine's last output.
    LoadFailed {
        message: String,
        retry: Span,
    },
    Cooling {
        failures: u32,
        /// The number of failures that were crashes of engines that had become ready.
        crashes: u32,
        message: String,
        retry: Span,
    },
    Quarantined {
        failures: u32,
        crashes: u32,
        message: String,
    },
    ShuttingDown,
    NoSuchReplica {
        replica: ReplicaId,
    },
    NoSuchDevice {
        device: DeviceId,
    },
    NotCordoned {
        device: String,
    },
    NoSuchNode {
        node: NodeId,
    },
    NodeServes {
        node: String,
    },
    NotLoaded,
    /// An administrator ended the fetch of its weights.
    FetchEnded {
        order: OrderId,
    },
    TooManyDevices {
        requested: u32,
        have: u32,
    },
    EngineTakesFewer {
        requested: u32,
        most: u32,
    },
    /// It is loaded, on another number of devices.
    LoadedOnOthers {
        requested: u32,
        has: u32,
    },
    /// The weights would be checked again first, and a load evicts nothing while they are damaged (L3).
    WeightsDamaged {
        message: String,
    },
    /// A load would fail, so it evicts nothing (L3).
    ProgramMissing {
        message: String,
    },
    /// An order of a group's administrator for a model of a higher priority than the group may set.
    AboveGroup {
        priority: Priority,
        most: Priority,
    },
    /// An order of a group's administrator that requests a higher priority than the group may set.
    RequestAboveGroup {
        requested: Priority,
        most: Priority,
    },
    Superseded,
    /// The order would have another effect than the planned one.
    PlanChanged,
    /// The store could not write the wish, so nothing has changed (D1).
    NotSaved {
        message: String,
    },
}

impl fmt::Display for LoadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadReason::Requests { waiting } => write!(f, "{waiting} waiting"),
            LoadReason::Order { order } => write!(f, "order {order}"),
            LoadReason::Wish => write!(f, "an administrator's load, which still stands (D1)"),
            LoadReason::AlwaysHot { priority } => write!(f, "always-hot, priority {priority} (P4)"),
            LoadReason::Growth { wanted } => {
                write!(f, "its requests call for {wanted} replicas (S1)")
            }
            LoadReason::Adopted => write!(f, "found after a restart (D2)"),
            LoadReason::Moves { node, left } => {
                write!(f, "moves: its node {node} ends in {left} (N7)")
            }
            LoadReason::Consolidates { node } => {
                write!(
                    f,
                    "moves: a cheaper place than its node {node} is free (S3)"
                )
            }
            LoadReason::Batch {
                lines,
                for_deadline,
            } => {
                write!(f, "batch requests wait for it ({lines} lines)")?;
                let deadline = ", and their deadline requires the load now (B7)";
                f.write_str(if *for_deadline { deadline } else { "" })
            }
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::KeepHot {
                idle,
                devices_idle: None,
            } => write!(f, "idle for {idle}, its keep-hot time (L2)"),
            StopReason::KeepHot {
                idle,
                devices_idle: Some(devices),
            } => write!(
                f,
                "idle for {idle}, and no model on its device was used for {devices}, the keep-hot time (L2)"
            ),
            StopReason::Preempted {
                by,
                priority,
                own,
                lease,
            } => {
                write!(f, "preempted by {by}: priority {priority} over {own} (P2)")?;
                lease.map_or(Ok(()), |left| lease_broken(f, left))
            }
            StopReason::TurnEnded { by, ready_for } => {
                write!(f, "its turn of {ready_for} is over, {by} waits (P3)")
            }
            StopReason::Yielded {
                by,
                idle,
                own,
                priority,
            } if own == priority => write!(f, "yields after {idle} idle: {by} waits (P3)"),
            StopReason::Yielded {
                by,
                idle,
                own,
                priority,
            } => write!(
                f,
                "yields after {idle} idle: {by} waits, priority {priority} under {own} (P6)"
            ),
            StopReason::BatchYielded { by } => {
                write!(f, "serves only batches, and {by} needs its memory (B5)")
            }
            StopReason::BatchNode { node, why } => {
                write!(
                    f,
                    "its node {node} was requested for batches and is given back: {why} (B8)"
                )
            }
            StopReason::Forced { by, order, lease } => {
                write!(f, "forced out by {by}, order {order} (P4)")?;
                lease.map_or(Ok(()), |left| lease_broken(f, left))
            }
            StopReason::Unload { order } => write!(f, "unloaded by order {order}"),
            StopReason::Cleanup { order } => write!(f, "cleanup, order {order} (E1)"),
            StopReason::Reset { order } => write!(f, "reset, order {order}"),
            StopReason::Shutdown => write!(f, "the pool shuts down (D2)"),
            StopReason::Removed => write!(f, "the model was removed from the catalogue"),
            StopReason::Changed => {
                write!(
                    f,
                    "its model's file was changed, and its engine is started differently now"
                )
            }
            StopReason::Surplus => write!(f, "more replicas than needed"),
            StopReason::Unwanted => write!(f, "no longer needed (Q3)"),
            StopReason::LoadTimedOut { deadline } => {
                write!(f, "did not become ready within {deadline} (L3)")
            }
            StopReason::DidNotWake { message } => write!(f, "did not wake: {message}"),
            StopReason::SleptLong { slept } => {
                write!(f, "asleep for {slept} without demand")
            }
            StopReason::HostPressure { short } => {
                write!(f, "asleep, and the host lacks {short} of memory")
            }
            StopReason::HostFor { by } => {
                write!(f, "asleep, and {by} takes its place in the host's memory")
            }
            StopReason::SleeperDropped { by } => {
                write!(f, "asleep, and {by} needs its memory on the device")
            }
            StopReason::Cordoned { device, order } => {
                write!(f, "{device} is cordoned, order {order} (M7)")
            }
            StopReason::DeviceFailed { device, trouble } => {
                write!(f, "{device} fails: {trouble} (M7)")
            }
            StopReason::NodeDrained { node, order } => {
                write!(f, "node {node} drains, order {order} (N5)")
            }
            StopReason::NodeEnds {
                node,
                has_moved: true,
            } => write!(f, "moved: the time of its node {node} ends (N7)"),
            StopReason::NodeEnds { node, .. } => {
                write!(f, "the time of its node {node} ends (N7)")
            }
            StopReason::Consolidated { node } => {
                write!(
                    f,
                    "moved to a cheaper place: its node {node} is given back (S3)"
                )
            }
            StopReason::NodeLost { node, why } => write!(f, "node {node} {why} (N3)"),
            StopReason::NotAdopted { why } => {
                write!(f, "found after a restart, and not kept: {why} (D2)")
            }
            StopReason::Crashed { ready_for } => {
                write!(
                    f,
                    "its engine exited unexpectedly after it was ready for {ready_for}"
                )
            }
            StopReason::MemberEnded {
                node, rank, why, ..
            } => {
                write!(
                    f,
                    "its process of rank {rank} on node {node} ended, and the others end with it (M8): {why}"
                )
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::UnknownModel => write!(f, "no such model"),
            Refusal::QueueFull { limit, .. } => {
                let waits = if *limit == 1 {
                    "request waits"
                } else {
                    "requests wait"
                };
                write!(f, "the model's queue is full: {limit} {waits} already (Q1)")
            }
            Refusal::TimedOut { waited, stall, .. } => {
                write!(f, "no replica became free within {waited} (Q1): {stall}")
            }
            Refusal::NeverFits {
                needs,
                devices,
                nodes,
                largest,
                devices_that_fit,
                devices_allowed,
                allowed_by,
                host,
                apart,
            } => {
                if let Some((needs, total)) = host {
                    write!(
                        f,
                        "needs {needs} of the machine's memory in addition to its devices, and the machine can give {total} even when the pool is empty (M6)"
                    )
                } else if *devices_allowed == 0 {
                    write!(
                        f,
                        "may use none of the pool's devices, by {allowed_by} in its model file (M6)"
                    )
                } else if *largest == Bytes(0) {
                    write!(
                        f,
                        "needs {needs} on a device, but the devices that it may use have no memory left after the headroom (M6)"
                    )
                } else if *devices == 1 {
                    write!(
                        f,
                        "needs {needs} on one device, and the largest device can give {largest} even when the pool is empty (M6)"
                    )
                } else if *nodes > 1 {
                    write!(
                        f,
                        "needs {devices} devices with {needs} each on {nodes} joined nodes of one kind, and at most {devices_that_fit} can give that even when the pool is empty; the largest can give {largest} (M6, M8)"
                    )?;
                    apart.iter().try_for_each(|why| write!(f, "; {why}"))
                } else {
                    write!(
                        f,
                        "needs {devices} devices of one node with {needs} each, and at most {devices_that_fit} can give that even when the pool is empty; the largest can give {largest} (M6)"
                    )
                }
            }
            Refusal::NoDevices { last: None } => {
                write!(f, "the pool has no devices: no node has joined yet")
            }
            Refusal::NoDevices {
                last: Some((node, why)),
            } => write!(f, "the pool has no devices now: node {node} {why} (N3)"),
            Refusal::NoNode {
                refusal,
                why,
                retry,
            } => {
                write!(f, "{refusal}; {why}")?;
                retry.map_or(Ok(()), |retry| {
                    write!(f, "; a node is requested again in {retry}")
                })?;
                write!(f, " (S2)")
            }
            Refusal::NoRoom {
                needs,
                devices,
                obstacles,
            } => {
                write!(
                    f,
                    "needs {needs} on {devices} device{}, and no allowed eviction frees enough",
                    plural(*devices)
                )?;
                for obstacle in obstacles {
                    write!(f, "; {obstacle}")?;
                }
                Ok(())
            }
            Refusal::LoadFailed { message, .. } => write!(f, "the load failed: {message} (L3)"),
            Refusal::Cooling {
                failures,
                crashes,
                message,
                retry,
            } => write!(
                f,
                "{}, the next try is in {retry} (L3); the reason: {message}",
                attempts::last(*failures, *crashes)
            ),
            Refusal::Quarantined {
                failures,
                crashes,
                message,
            } => write!(
                f,
                "quarantined after {} until an administrator loads it or its configuration changes (L3); the reason: {message}",
                attempts::counted(*failures, *crashes)
            ),
            Refusal::ShuttingDown => write!(f, "the pool is shutting down"),
            Refusal::NoSuchReplica { replica } => write!(f, "the model has no replica {replica}"),
            Refusal::NoSuchDevice { device } => write!(f, "there is no device {device}"),
            Refusal::NotCordoned { device } => write!(f, "{device} is not cordoned"),
            Refusal::NoSuchNode { .. } => write!(f, "the node has left the pool"),
            Refusal::NodeServes { node } => write!(f, "node {node} does not drain"),
            Refusal::NotLoaded => write!(f, "the model has no replica to unload"),
            Refusal::TooManyDevices { requested, have } => {
                write!(
                    f,
                    "{requested} devices per replica were requested, and the largest node has {have}"
                )
            }
            Refusal::EngineTakesFewer { requested, most } => {
                write!(
                    f,
                    "{requested} devices per replica were requested, and the model's engine computes on {most} as it is configured"
                )
            }
            Refusal::LoadedOnOthers { requested, has } => {
                write!(
                    f,
                    "{requested} devices per replica were requested, and the model is loaded with {has}; unload it first, or load it without a number of devices"
                )
            }
            Refusal::FetchEnded { order } => {
                write!(f, "the fetch of its weights was ended by order {order}")
            }
            Refusal::WeightsDamaged { message } => write!(f, "{message} (L3)"),
            Refusal::ProgramMissing { message } => write!(f, "{message} (L3)"),
            Refusal::AboveGroup { priority, most } => {
                write!(
                    f,
                    "its priority is {priority}, and a group administrator may load and unload models of a priority of at most {most}; request it from an administrator of the pool"
                )
            }
            Refusal::RequestAboveGroup { requested, most } => {
                write!(
                    f,
                    "priority {requested} was requested, and a group administrator may set at most {most}; request at most {most}"
                )
            }
            Refusal::Superseded => write!(f, "a later order for the same model took its place"),
            Refusal::PlanChanged => write!(
                f,
                "the pool has changed since the plan, and the effect would be another one, so nothing was done; plan again"
            ),
            Refusal::NotSaved { message } => {
                write!(
                    f,
                    "the store could not keep the order, so nothing was done (D1): {message}"
                )
            }
        }
    }
}

fn lease_broken(f: &mut fmt::Formatter<'_>, left: Span) -> fmt::Result {
    write!(f, ", although its lease had {left} left (P7)")
}

pub(crate) fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}
