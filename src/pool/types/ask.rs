//! One replica that is to be placed.

use alloc::vec::Vec;

use crate::types::ids::{Bytes, KindId, ModelId, OrderId, Priority, Time};

/// What is asked for: one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub model: ModelId,
    pub priority: Priority,
    /// Devices of one node.
    pub devices: u32,
    /// On each of them, unless `by_kind` knows better.
    pub bytes: Bytes,
    /// What was learned of single kinds of devices.
    pub by_kind: Vec<(KindId, Bytes)>,
    /// The order that forces it past equals and always-hot models (P4).
    pub forced_by: Option<OrderId>,
    /// It takes room from nobody of equal priority (S1).
    pub is_gentle: bool,
    /// Since when somebody waits: who came earlier is not evicted for it (P5).
    pub since: Time,
}
