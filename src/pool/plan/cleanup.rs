//! Selects the replicas that a cleanup unloads (E1), and computes the remaining drain time of an interrupted cleanup.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::event::CleanupScope;
use crate::types::ids::{ReplicaId, Span, Time};
use crate::types::replica::Phase;

/// The replicas that leave in a cleanup.
pub(crate) struct Leaving {
    pub(crate) replicas: Vec<ReplicaId>,
    /// The subset that is still loading for requests. Those requests are served first.
    pub(crate) when_served: Vec<ReplicaId>,
}

/// Replicas launched after an interrupted cleanup began stay.
pub(crate) fn leaving(pool: &Pool, scope: CleanupScope, begun: Option<Time>) -> Leaving {
    let older = |launched: Time| begun.is_none_or(|begun| launched <= begun);
    let leaves = pool.replicas.iter().filter(|(_, replica)| {
        older(replica.launched) && scope.concerns(replica.phase.state(), replica.in_flight)
    });
    let replicas: Vec<ReplicaId> = leaves.map(|(&id, _)| id).collect();
    Leaving {
        when_served: awaited(pool, &replicas),
        replicas,
    }
}

/// The replicas that are still loading and that requests wait for.
pub(crate) fn awaited(pool: &Pool, replicas: &[ReplicaId]) -> Vec<ReplicaId> {
    let is_awaited = |id: &ReplicaId| {
        let replica = &pool.replicas[id];
        matches!(replica.phase, Phase::Launching { .. }) && pool.queues.wait_for(replica.model)
    };
    replicas.iter().copied().filter(is_awaited).collect()
}

/// The minimum time for the requests that are still in flight.
const REST_MIN: Span = Span::from_secs(30);

/// The remaining drain time of a cleanup that began `passed` ago.
pub(crate) fn rest_of_drain(full: Span, passed: Span) -> Span {
    Span(full.0.saturating_sub(passed.0)).max(REST_MIN.min(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_requests_get_the_rest_of_the_drain_time_and_at_least_thirty_seconds() {
        let (full, minute) = (Span::from_secs(600), Span::from_secs(60));
        assert_eq!(rest_of_drain(full, Span(0)), full);
        assert_eq!(rest_of_drain(full, minute), Span::from_secs(540));
        assert_eq!(rest_of_drain(full, Span::from_secs(3_600)), REST_MIN);
        let short = Span::from_secs(5);
        assert_eq!(rest_of_drain(short, minute), short);
    }
}
