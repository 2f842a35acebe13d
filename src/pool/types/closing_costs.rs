//! The cost so far of ending turns early, and the bound that the pool keeps by switching between closing gates and keeping them
//! open. Arithmetic only; `types/lead.rs` has the proof.

use crate::types::ids::Span;

/// Milliseconds of waiting, summed over all affected requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosingCosts {
    /// The cost if every gate that pressure would have closed had closed early.
    pub closed: Span,
    /// The cost if all of them had stayed open.
    pub open: Span,
    /// The cost of what the pool did.
    pub followed: Span,
    /// The number of early ends of turns that were judged, made or not.
    pub judged: u64,
    pub changes: u64,
    /// The number of early ends that were decided before the lead changed and judged after it.
    pub late: u64,
    /// The largest loss that was required for a change, and the largest actual or hypothetical cost of an early end.
    pub change_max: Span,
    pub one_max: Span,
}

/// A judged early end of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// The cost of closing the gate, and the cost of keeping it open.
    pub closed: Span,
    pub open: Span,
    /// True if the gate was closed.
    pub was_made: bool,
    /// True if the lead was for closing when this was judged.
    pub closing_led: bool,
    /// The loss after which the lead changes, and whether it has changed now.
    pub change: Span,
    pub changed: bool,
}

impl ClosingCosts {
    pub(crate) fn add(&mut self, judged: Judged) {
        self.closed = self.closed + judged.closed;
        self.open = self.open + judged.open;
        self.followed = self.followed
            + if judged.was_made {
                judged.closed
            } else {
                judged.open
            };
        self.judged += 1;
        self.changes += u64::from(judged.changed);
        self.late += u64::from(judged.was_made != judged.closing_led);
        self.change_max = self.change_max.max(judged.change);
        self.one_max = self.one_max.max(judged.closed).max(judged.open);
    }

    /// Upper bound of `followed`: the better of both alternatives, plus the required loss and one early end for each change of the
    /// lead, plus the required loss of the next change, plus the early ends decided before a change and judged after it.
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
    fn the_cost_of_early_ends_stays_within_the_bound_for_any_number_waiting_and_any_delay() {
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
                // The alternative that was chosen is expensive and the other costs nothing, with varying numbers of waiting
                // requests.
                let dear = Span(1 + scattered(nth) % 500);
                let (closed, open) = if was_made {
                    (dear, Span::ZERO)
                } else {
                    (Span::ZERO, dear)
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
