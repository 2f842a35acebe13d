//! Defines what the pool minimises: the seconds that requests wait. Loads matter because requests wait for them. An objective above
//! zero also counts each second of loading as this many seconds of waiting. Arithmetic only.
//!
//! A load that would evict a model of equal priority can wait for more requests and then serve them all. It begins once
//!
//! ```text
//! Σ over the requests that wait (time waited so far)  ≥  objective × load time
//! ```
//!
//! that is, once waiting has cost as much as the load would. With full knowledge of the future the total of both costs is at least
//! half of what this rule pays (Dooly, Goldman, Scott, J. ACM 2001, for acknowledgments of packets). Here the evicted model may
//! have to be loaded again, so the result only motivates the rule.

use crate::types::ids::{Span, Time};

/// The number of seconds of waiting that a second of loading counts as, in addition to the waits that it causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Objective(pub u32);

impl Objective {
    /// Counts only waits: a load begins as soon as the rules allow.
    pub const WAIT: Objective = Objective(0);
    pub const BALANCED: Objective = Objective(2);
    pub const RELOAD: Objective = Objective(8);

    /// The time from which a load is worthwhile for requests that wait since these times. `Time(0)` if it already is.
    pub(crate) fn worth_from(
        self,
        load: Span,
        since: impl Iterator<Item = Time>,
        now: Time,
    ) -> Time {
        let worth = load.0.saturating_mul(u64::from(self.0));
        let (mut waited, mut requests) = (0_u64, 0_u64);
        // Stops once the requests have waited long enough: of a long queue only the first are visited.
        for since in since {
            if waited >= worth {
                break;
            }
            waited = waited.saturating_add(now.since(since).0);
            requests += 1;
        }
        if waited >= worth || requests == 0 {
            return Time(0);
        }
        now + Span((worth - waited).div_ceil(requests))
    }
}

/// The time from which models of equal priority leave for a load. It differs per victim: a victim that takes longer to stop leaves
/// earlier, to keep the load in time for its requests. The default `Time(0)` means immediately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvictsFrom {
    worth: Time,
    latest: Time,
}

impl EvictsFrom {
    /// Once the load is worthwhile, and no later than `latest`, which applies to a victim that stops immediately.
    pub(crate) fn new(worth: Time, latest: Time) -> EvictsFrom {
        EvictsFrom {
            // Equivalent for every victim, but changes less while requests arrive.
            worth: worth.min(latest),
            latest,
        }
    }

    /// The time for a victim that takes this long to stop. `latest` lies after half of the time that can be waited, so half of the
    /// stop is subtracted.
    pub(crate) fn of_victim(self, stops_in: Span) -> Time {
        let latest = self.latest.0.saturating_sub(stops_in.0 / 2);
        self.worth.min(Time(latest))
    }

    /// Returns true if every victim leaves for this load at least as early as for the other.
    pub(crate) fn is_no_later_than(self, other: EvictsFrom) -> bool {
        self.worth <= other.worth && self.latest <= other.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Span = Span(10_000);

    fn from(objective: Objective, since: &[u64], now: u64) -> Time {
        let since = since.iter().map(|at| Time(*at));
        objective.worth_from(LOAD, since, Time(now))
    }

    #[test]
    fn no_load_is_delayed_if_only_waits_count() {
        assert_eq!(from(Objective::WAIT, &[100_000], 100_000), Time(0));
        assert_eq!(from(Objective::RELOAD, &[], 100_000), Time(0));
    }

    #[test]
    fn a_load_begins_once_the_accumulated_wait_is_worth_it() {
        let one = from(Objective::BALANCED, &[100_000], 100_000);
        assert_eq!(one, Time(120_000));
        let later = from(Objective::BALANCED, &[100_000], 113_000);
        assert_eq!(later, one, "the moment does not move while nothing changes");
        let two = from(Objective::BALANCED, &[100_000, 110_000], 110_000);
        assert_eq!(two, Time(115_000), "the more wait, the sooner");
        assert_eq!(
            from(Objective::BALANCED, &[100_000, 110_000], 115_000),
            Time(0)
        );
    }

    #[test]
    fn a_victim_that_stops_slowly_is_evicted_earlier() {
        let from = EvictsFrom::new(Time(120_000), Time(130_000));
        assert_eq!(from.of_victim(Span::ZERO), Time(120_000));
        assert_eq!(from.of_victim(Span(20_000)), Time(120_000));
        assert_eq!(from.of_victim(Span(40_000)), Time(110_000));
        assert_eq!(from.of_victim(Span(u64::MAX)), Time(0));
        let late = EvictsFrom::new(Time(400_000), Time(130_000));
        assert_eq!(late.of_victim(Span::ZERO), Time(130_000));
    }

    #[test]
    fn is_no_later_than_holds_for_every_victim() {
        let times = [0, 5, 10, 20].map(Time);
        let all = times.map(|worth| times.map(|latest| EvictsFrom::new(worth, latest)));
        for one in all.as_flattened() {
            for other in all.as_flattened() {
                let for_all = (0..50).all(|stops_in| {
                    let stops_in = Span(stops_in);
                    one.of_victim(stops_in) <= other.of_victim(stops_in)
                });
                assert!(
                    for_all || !one.is_no_later_than(*other),
                    "{one:?} {other:?}"
                );
            }
        }
        assert!(EvictsFrom::default().is_no_later_than(EvictsFrom::default()));
    }

    #[test]
    fn the_largest_times_do_not_overflow() {
        let far = Objective(u32::MAX).worth_from(
            Span(u64::MAX),
            [Time(u64::MAX)].into_iter(),
            Time(u64::MAX),
        );
        assert_eq!(far, Time(u64::MAX));
    }
}
