//! A possible placement of a replica, and its victims.

use alloc::vec::Vec;

use crate::types::ids::{DeviceId, ModelId, Priority, ReplicaId};
use crate::types::rank::{PlaceRank, VictimRank};
use crate::types::share::Share;

/// A possible placement of the replica.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub rank: PlaceRank,
    pub devices: Vec<DeviceId>,
    pub victims: Vec<Evictable>,
    /// A sleeper of the model itself, which already has everything else it needs there.
    pub wakes: Option<ReplicaId>,
}

/// A replica, or a load that has not started, that may leave for another load.
#[derive(Clone, Debug)]
pub(crate) struct Evictable {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub priority: Priority,
    pub rank: VictimRank,
    pub loss: u64,
    pub shares: Vec<Share>,
    /// A load that is only promised: nothing is stopped, and it is planned again.
    pub planned: bool,
}
