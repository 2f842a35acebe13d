//! The states of a replica.

/// The state of a replica, in the order of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaState {
    /// Its load is planned: it waits for its devices and holds nothing on them.
    Planned,
    Launching,
    Ready,
    Draining,
    /// It is falling asleep.
    Parking,
    Asleep,
    Stopping,
}

impl ReplicaState {
    pub const ALL: [ReplicaState; 7] = [
        ReplicaState::Planned,
        ReplicaState::Launching,
        ReplicaState::Ready,
        ReplicaState::Draining,
        ReplicaState::Parking,
        ReplicaState::Asleep,
        ReplicaState::Stopping,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::Planned => "planned",
            ReplicaState::Launching => "launching",
            ReplicaState::Ready => "ready",
            ReplicaState::Draining => "draining",
            ReplicaState::Parking => "parking",
            ReplicaState::Asleep => "asleep",
            ReplicaState::Stopping => "stopping",
        }
    }

    /// Returns true if it is leaving and its memory will be free.
    pub fn is_leaving(self) -> bool {
        matches!(
            self,
            ReplicaState::Draining | ReplicaState::Parking | ReplicaState::Stopping
        )
    }
}
