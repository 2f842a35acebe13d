//! What it has cost so far to end turns early, and the bound that the pool's change between closing gates and keeping them
//! open keeps. Arithmetic only; `types/lead.rs` has the argument.

use crate::types::ids::Span;

/// Milliseconds of waiting, of all requests that were concerned together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosingCosts {
    /// Had every gate closed early that pressure would have closed.
    pub closed: Span,
    /// Had all of them stayed open.
    pub open: Span,
    /// As the pool did it.
    pub followed: Span,
    /// Early ends of turns that were judged, made or not.
    pub judged: u64,
    pub changes: u64,
    /// Those of them that were decided before the lead changed, and judged after it.
    pub late: u64,
    /// The most that had to be lost for a change, and the most that one early end cost or would have.
    pub change_max: Span,
    pub one_max: Span,
}

/// One early end of a turn, judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// What it costs to close the gate, and to keep it open.
    pub closed: Span,
    pub open: Span,
    /// The gate was closed.
    pub was_made: bool,
    /// The lead was for closing when it was judged.
    pub closing_led: bool,
    /// What has to be lost until the lead changes, and whether it has now.
    pub change: Span,
    pub changed: bool,
}

impl ClosingCosts {
    pub(crate) fn add(&mut self, it: Judged) {
        self.closed = self.closed + it.closed;
        self.open = self.open + it.open;
        self.followed = self.followed + if it.was_made { it.closed } else { it.open };
        self.judged += 1;
        self.changes += u64::from(it.changed);
        self.late += u64::from(it.was_made != it.closing_led);
        self.change_max = self.change_max.max(it.change);
        self.one_max = self.one_max.max(it.closed).max(it.open);
    }

    /// The most that the pool's way may cost: the better of both, for each change of the lead what had to be lost for it and
    /// the early end with which it changed, as much for the change that has not come yet, and those that were decided
    /// before a change and judged after it.
    pub fn bound(&self) -> Span {
        let lost = self.change_max.0.saturating_mul(self.changes + 1);
        let single = self.one_max.0.saturating_mul(self.changes + self.late);
        self.closed.min(self.open) + Span(lost) + Span(single)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::Time;
    use crate::types::lead::Lead;

    #[test]
    fn judging_early_ends_stays_within_the_bound_however_many_wait_and_however_late_it_is() {
        let scattered = |nth: u64| nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        for delay in [0, 1, 3] {
            let (mut lead, mut costs) = (Lead::default(), ClosingCosts::default());
            let mut decided = [true; 4];
            for nth in 0..5_000_u64 {
                let closing_led = lead.simple_since().is_none();
                let was_made = match delay {
                    0 => closing_led,
                    _ => core::mem::replace(&mut decided[(nth % delay) as usize], closing_led),
                };
                // What was done costs, and what was not costs nothing; few or many wait.
                let dear = Span(1 + scattered(nth) % 500);
                let (closed, open) = match was_made {
                    true => (dear, Span::ZERO),
                    false => (Span::ZERO, dear),
                };
                let change = Span(8 * (1 + scattered(nth + 9_000) % 100));
                let changed = lead.paid(closed, open, change, Time(nth));
                costs.add(Judged {
                    closed,
                    open,
                    was_made,
                    closing_led,
                    change,
                    changed,
                });
                assert!(costs.followed <= costs.bound(), "{costs:?}");
            }
            assert!(costs.changes > 100, "{costs:?}");
        }
    }
}
