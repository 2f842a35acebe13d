//! What this controller knows of the streams of earlier ones, which may go on after it has started.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::seats_taken::{SeatsTaken, guests_of};
use pool::{ReplicaId, Time};

/// Clones share what is reported.
#[derive(Clone, Debug)]
pub struct EarlierSeats {
    /// As the processes on this machine have last reported them.
    reported: Arc<Mutex<Vec<SeatsTaken>>>,
    /// No stream that is reported lasts longer.
    until: Time,
    /// Until then there may be streams of a process on another machine, which reports nothing here.
    unseen_until: Time,
}

impl EarlierSeats {
    pub fn new(reported: Vec<SeatsTaken>, until: Time, unseen_until: Time) -> EarlierSeats {
        EarlierSeats {
            reported: Arc::new(Mutex::new(reported)),
            until,
            unseen_until,
        }
    }

    /// Whether an earlier process may still stream from this replica.
    pub fn may_stream(&self, replica: ReplicaId, now: Time) -> bool {
        let is_reported = now < self.until && guests_of(replica, &self.lock()) > 0;
        is_reported || now < self.unseen_until
    }

    pub(super) fn reported(&self) -> Vec<SeatsTaken> {
        self.lock().clone()
    }

    /// No newer report comes before `take` returns: what a gate is given here must not take the place of that one.
    pub(super) fn with_reported<T>(&self, take: impl FnOnce(&[SeatsTaken]) -> T) -> T {
        take(&self.lock())
    }

    /// `count` gives them to the gates that there are.
    pub(super) fn report(&self, seats: &[SeatsTaken], count: impl FnOnce()) {
        let mut reported = self.lock();
        *reported = seats.to_vec();
        count();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SeatsTaken>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: Time = Time(10_000);
    const REPLICA: ReplicaId = ReplicaId(7);

    fn seats(in_flight: u32) -> Vec<SeatsTaken> {
        vec![SeatsTaken {
            replica: REPLICA,
            in_flight,
            last_end: None,
        }]
    }

    #[test]
    fn streams_that_are_reported_count_until_they_have_ended_or_are_cut() {
        let earlier = EarlierSeats::new(seats(1), UNTIL, Time(0));
        assert!(earlier.may_stream(REPLICA, Time(9_999)));
        assert!(!earlier.may_stream(REPLICA, UNTIL), "it is cut by then");
        assert!(!earlier.may_stream(ReplicaId(8), Time(0)));
        earlier.clone().report(&seats(0), || {});
        assert!(!earlier.may_stream(REPLICA, Time(0)));
    }

    #[test]
    fn no_other_report_comes_before_one_is_at_the_gates() {
        let earlier = EarlierSeats::new(seats(1), UNTIL, Time(0));
        let is_held = || earlier.reported.try_lock().is_err();
        assert!(earlier.with_reported(|reported| is_held() && reported == seats(1)));
        let mut was_held = false;
        earlier.report(&seats(0), || was_held = is_held());
        assert!(was_held && !is_held());
    }

    #[test]
    fn of_a_process_that_reports_nothing_every_replica_may_have_streams_for_a_while() {
        let earlier = EarlierSeats::new(Vec::new(), UNTIL, Time(5_000));
        assert!(earlier.may_stream(REPLICA, Time(4_999)));
        assert!(!earlier.may_stream(REPLICA, Time(5_000)));
    }
}
