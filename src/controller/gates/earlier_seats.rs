//! Streams of earlier controllers, which may continue after this one has started.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::seat_counts::{SeatCounts, guests_of};
use pool::{ReplicaId, Time};

/// Clones share the reports.
#[derive(Clone, Debug)]
pub struct EarlierSeats {
    /// The last reports of the processes on this machine.
    reported: Arc<Mutex<Vec<SeatCounts>>>,
    /// The latest end of any reported stream.
    until: Time,
    /// The latest end of streams served by a process on another machine, which sends no reports here.
    unseen_until: Time,
}

impl EarlierSeats {
    pub fn new(reported: Vec<SeatCounts>, until: Time, unseen_until: Time) -> EarlierSeats {
        EarlierSeats {
            reported: Arc::new(Mutex::new(reported)),
            until,
            unseen_until,
        }
    }

    /// Returns true if an earlier process may still stream from this replica.
    pub fn may_stream(&self, replica: ReplicaId, now: Time) -> bool {
        let is_reported = now < self.until && guests_of(replica, &self.lock()) > 0;
        is_reported || now < self.unseen_until
    }

    pub(crate) fn reported(&self) -> Vec<SeatCounts> {
        self.lock().clone()
    }

    /// Holds back newer reports until `take` returns: a gate must never be set to an older count than the reported one.
    pub(crate) fn with_reported<T>(&self, take: impl FnOnce(&[SeatCounts]) -> T) -> T {
        take(&self.lock())
    }

    /// Records the reports. `count` passes them to the existing gates.
    pub(crate) fn report(&self, seats: &[SeatCounts], count: impl FnOnce()) {
        let mut reported = self.lock();
        *reported = seats.to_vec();
        count();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SeatCounts>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: Time = Time(10_000);
    const REPLICA: ReplicaId = ReplicaId(7);

    fn seats(in_flight: u32) -> Vec<SeatCounts> {
        vec![SeatCounts {
            replica: REPLICA,
            in_flight,
            last_end: None,
        }]
    }

    #[test]
    fn reported_streams_count_until_they_end_or_reach_the_limit() {
        let earlier = EarlierSeats::new(seats(1), UNTIL, Time(0));
        assert!(earlier.may_stream(REPLICA, Time(9_999)));
        assert!(
            !earlier.may_stream(REPLICA, UNTIL),
            "streams end at the limit"
        );
        assert!(!earlier.may_stream(ReplicaId(8), Time(0)));
        earlier.clone().report(&seats(0), || {});
        assert!(!earlier.may_stream(REPLICA, Time(0)));
    }

    #[test]
    fn reports_are_applied_one_at_a_time() {
        let earlier = EarlierSeats::new(seats(1), UNTIL, Time(0));
        let is_held = || earlier.reported.try_lock().is_err();
        assert!(earlier.with_reported(|reported| is_held() && reported == seats(1)));
        let mut was_held = false;
        earlier.report(&seats(0), || was_held = is_held());
        assert!(was_held && !is_held());
    }

    #[test]
    fn every_replica_may_stream_for_a_while_if_the_earlier_process_reports_nothing() {
        let earlier = EarlierSeats::new(Vec::new(), UNTIL, Time(5_000));
        assert!(earlier.may_stream(REPLICA, Time(4_999)));
        assert!(!earlier.may_stream(REPLICA, Time(5_000)));
    }
}
