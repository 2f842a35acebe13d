//! The requirements of a replica that is to be placed.

use alloc::vec::Vec;

use crate::types::batch::BatchRoom;
use crate::types::ids::{Bytes, KindId, ModelId, OrderId, Priority, Time};
use crate::types::key_seats::LeastServed;
use crate::types::objective::EvictsFrom;

/// The requirements for placing a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirements {
    pub model: ModelId,
    pub priority: Priority,
    /// The number of devices, on all nodes together.
    pub devices: u32,
    /// The number of nodes over which the devices are spread evenly (M8). At least 1.
    pub nodes: u32,
    /// The bytes on each of them, unless `by_kind` has a figure.
    pub bytes: Bytes,
    /// The bytes measured on kinds of devices.
    pub by_kind: Vec<(KindId, Bytes)>,
    /// The order that forces it past models of equal priority and always-hot models (P4).
    pub forced_by: Option<OrderId>,
    /// It takes no room from models of equal priority (S1).
    pub is_gentle: bool,
    /// The memory that it may take, if only batches call for it (B4).
    pub(crate) batch: Option<BatchRoom>,
    /// Idle replicas of equal priority leave for it even if their next request is near, because the others are busy (P3).
    pub past_idle: bool,
    /// The binary logarithm of the number of waiting requests: the more wait, the sooner idle replicas leave (P3).
    pub crowd: u32,
    /// The waiting key that has been served least. Replicas whose keys have been served more leave sooner (P9).
    pub(crate) least_served: Option<LeastServed>,
    /// The times before which no replica of equal priority leaves for it, because the load is not worthwhile yet (`Objective`).
    pub(crate) evicts_from: EvictsFrom,
    /// The time the wait began. A replica with an earlier waiting request is not evicted for it (P5).
    pub since: Time,
}

impl Requirements {
    /// The number of devices on each node.
    pub(crate) fn devices_per_node(&self) -> u32 {
        self.devices / self.nodes.max(1)
    }

    /// The part of the replica on a single node.
    pub(crate) fn of_one_node(&self) -> Requirements {
        Requirements {
            devices: self.devices_per_node(),
            nodes: 1,
            ..self.clone()
        }
    }
}
