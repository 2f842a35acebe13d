//! The names of reasons without their figures, by which records of the history are counted and filtered. They are part of the API
//! and of stored rows.

use crate::types::reason::{LoadReason, StopReason};

impl LoadReason {
    pub fn name(&self) -> &'static str {
        match self {
            LoadReason::Requests { .. } => "requests",
            LoadReason::Order { .. } => "order",
            LoadReason::Wish => "wish",
            LoadReason::AlwaysHot { .. } => "always_hot",
            LoadReason::Growth { .. } => "growth",
            LoadReason::Adopted => "adopted",
            LoadReason::Moves { .. } => "moves",
            LoadReason::Consolidates { .. } => "consolidates",
            LoadReason::Batch { .. } => "batch",
        }
    }
}

impl StopReason {
    pub fn name(&self) -> &'static str {
        match self {
            StopReason::KeepHot { .. } => "keep_hot",
            StopReason::Preempted { .. } => "preempted",
            StopReason::TurnEnded { .. } => "turn_ended",
            StopReason::Yielded { .. } => "yielded",
            StopReason::BatchYielded { .. } => "batch_yielded",
            StopReason::BatchNode { .. } => "batch_node",
            StopReason::Forced { .. } => "forced",
            StopReason::Unload { .. } => "unload",
            StopReason::Cleanup { .. } => "cleanup",
            StopReason::Reset { .. } => "reset",
            StopReason::Shutdown => "shutdown",
            StopReason::Removed => "removed",
            StopReason::Changed => "changed",
            StopReason::Surplus => "surplus",
            StopReason::Unwanted => "unwanted",
            StopReason::LoadTimedOut { .. } => "load_timed_out",
            StopReason::DidNotWake { .. } => "did_not_wake",
            StopReason::SleptLong { .. } => "slept_long",
            StopReason::HostPressure { .. } => "host_pressure",
            StopReason::HostFor { .. } => "host_for",
            StopReason::SleeperDropped { .. } => "sleeper_dropped",
            StopReason::Cordoned { .. } => "cordoned",
            StopReason::DeviceFailed { .. } => "device_failed",
            StopReason::NodeDrained { .. } => "node_drained",
            StopReason::NodeEnds { .. } => "node_ends",
            StopReason::Consolidated { .. } => "consolidated",
            StopReason::NodeLost { .. } => "node_lost",
            StopReason::NotAdopted { .. } => "not_adopted",
            StopReason::Crashed { .. } => "crashed",
            StopReason::MemberEnded { .. } => "member_ended",
        }
    }
}
