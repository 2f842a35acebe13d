//! A way to place one replica, and who leaves for it.

use alloc::vec::Vec;

use crate::types::ids::{DeviceId, ModelId, Priority, ReplicaId};
use crate::types::rank::{PlaceRank, VictimRank};
use crate::types::share::Share;

/// A way to place the replica.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub rank: PlaceRank,
    pub devices: Vec<DeviceId>,
    pub victims: Vec<Evictable>,
    /// A sleeper of the model itself, which has all else that it needs there.
    pub wakes: Option<ReplicaId>,
}

/// A replica, or a load not started yet, that may leave for the one that asks.
#[derive(Clone, Debug)]
pub(crate) struct Evictable {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub priority: Priority,
    pub rank: VictimRank,
    pub loss: u64,
    pub shares: Vec<Share>,
    /// A load that is only promised: nothing is stopped, it is decided anew.
    pub planned: bool,
}
