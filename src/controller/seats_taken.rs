//! The requests inside engines over a hand-over, as one controller reports them to the next and to the guardian.

use engine::Use;
use pool::{GateReading, ReplicaId, Time};

/// Requests inside one engine by a controller which has handed it over: they end in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatsTaken {
    pub replica: ReplicaId,
    pub in_flight: u32,
    /// When the last one ended.
    pub last_end: Option<Time>,
}

pub(super) fn guests_of(replica: ReplicaId, seats: &[SeatsTaken]) -> u32 {
    let own = seats.iter().find(|it| it.replica == replica);
    own.map_or(0, |it| it.in_flight)
}

/// What a later controller has to know of a replica's use.
pub(super) fn use_of(reading: &GateReading) -> Use {
    Use {
        busy: reading.in_flight > 0,
        last_end_ms: reading.last_end.map(|at| at.0),
    }
}
