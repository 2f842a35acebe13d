//! What the pool minimises: the seconds that requests wait. Loads matter because requests wait for them; an objective above
//! zero counts each second of loading in addition, as so many seconds of waiting. Arithmetic only.
//!
//! A load that would evict an equal can wait for more requests, so that one load serves them all. It begins once
//!
//! ```text
//! Σ over the requests that wait (time waited so far)  ≥  objective × load time
//! ```
//!
//! that is, once waiting has cost as much as the load would. One who knows the future pays at least half of what such a
//! rule pays for both (Dooly, Goldman, Scott, J. ACM 2001, for acknowledgments of packets; here the evicted model may
//! have to be loaded again, so it is no more than the reason for the rule).

use crate::types::ids::{Span, Time};

/// How many seconds of waiting a second of loading counts as, in addition to the waits that it causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Objective(pub u32);

impl Objective {
    /// The waits alone: a load begins as soon as the rules allow.
    pub const WAIT: Objective = Objective(0);
    pub const BALANCED: Objective = Objective(2);
    pub const RELOAD: Objective = Objective(8);

    /// From when equals may leave for requests that wait since these moments. The start of time: they may already.
    pub(crate) fn evicts_from(
        self,
        load: Span,
        since: impl Iterator<Item = Time>,
        now: Time,
    ) -> Time {
        let worth = load.0.saturating_mul(u64::from(self.0));
        let (mut waited, mut requests) = (0_u64, 0_u64);
        // Requests that have waited long enough already: of a long queue only the first are looked at.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Span = Span(10_000);

    fn from(objective: Objective, since: &[u64], now: u64) -> Time {
        let since = since.iter().map(|at| Time(*at));
        objective.evicts_from(LOAD, since, Time(now))
    }

    #[test]
    fn for_the_waits_alone_nothing_is_delayed() {
        assert_eq!(from(Objective::WAIT, &[100_000], 100_000), Time(0));
        assert_eq!(from(Objective::RELOAD, &[], 100_000), Time(0));
    }

    #[test]
    fn a_load_begins_when_its_requests_have_waited_as_long_as_it_is_worth() {
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
    fn the_largest_times_do_not_overflow() {
        let far = Objective(u32::MAX).evicts_from(
            Span(u64::MAX),
            [Time(u64::MAX)].into_iter(),
            Time(u64::MAX),
        );
        assert_eq!(far, Time(u64::MAX));
    }
}
