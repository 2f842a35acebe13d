//! Requests inside engines during a hand-over, as one controller reports them to the next and to the guardian.

use pool::{ReplicaId, Time};

/// Requests inside one engine that a previous controller still serves. They end in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatCounts {
    pub replica: ReplicaId,
    pub in_flight: u32,
    /// Time at which the last request ended.
    pub last_end: Option<Time>,
}

pub(crate) fn guests_of(replica: ReplicaId, seats: &[SeatCounts]) -> u32 {
    let own = seats.iter().find(|seats| seats.replica == replica);
    own.map_or(0, |seats| seats.in_flight)
}
