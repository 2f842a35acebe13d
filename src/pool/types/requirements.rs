//! One replica that is to be placed.

use alloc::vec::Vec;

use crate::types::ids::{Bytes, KindId, ModelId, OrderId, Priority, Time};
use crate::types::objective::EvictsFrom;

/// What one replica needs to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirements {
    pub model: ModelId,
    pub priority: Priority,
    /// Devices of one node.
    pub devices: u32,
    /// On each of them, unless `by_kind` has a figure.
    pub bytes: Bytes,
    /// What was measured on kinds of devices.
    pub by_kind: Vec<(KindId, Bytes)>,
    /// The order that forces it past equals and always-hot models (P4).
    pub forced_by: Option<OrderId>,
    /// It takes no room from models of equal priority (S1).
    pub is_gentle: bool,
    /// Idle replicas of equal priority leave for it even if their next request is near: the others are busy (P3).
    pub past_idle: bool,
    /// How often the number of requests that wait for it can be halved: the more wait, the sooner idle replicas leave (P3).
    pub crowd: u32,
    /// Before these times no replica of equal priority leaves for it: the load is not worth it yet (`Objective`).
    pub(crate) evicts_from: EvictsFrom,
    /// When the wait began: a replica with an earlier waiting request is not evicted for it (P5).
    pub since: Time,
}
