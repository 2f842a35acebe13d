//! Chooses between two rules by the cost that each would have had. The pool's own rule leads until the simple rule has done better
//! by twice the cost of switching to it; the way back works the same. Arithmetic only.
//!
//! ```text
//! lag   ← lag + (cost of the own rule) − (cost of the simple one)
//! own   → simple   when the lag reaches + swap; until then it is kept above − swap
//! simple → own     when it reaches − swap; until then it is kept below + swap
//! ```
//!
//! `swap` is the maximum cost of replacing everything that is loaded by what the other rule would have loaded. It may differ for
//! each use. The lag is bounded only while the leading rule is the better one: its excess cost is never forgotten, even while the
//! swap is smaller for some time.
//!
//! Over any time, following the lead costs at most twice the largest swap more than the better rule for each time the better rule
//! changed, plus the cost of one use. With constant swaps it costs at most three times as much as the better rule plus two swaps,
//! whatever happens: each change of the lead costs at most one swap, and is paid for by the two swaps by which the losing rule cost
//! more than the other.

use crate::types::ids::{Span, Time};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lead {
    /// The excess cost of the own rule over the simple one, in milliseconds, as far as it counts for the next change.
    lag: i64,
    /// The time since which the simple rule is followed.
    simple_since: Option<Time>,
}

impl Lead {
    /// Records a use that both rules have served: what each paid for it, and the maximum cost of a change. Returns true if the lead
    /// changes.
    pub fn paid(&mut self, own: Span, simple: Span, swap: Span, now: Time) -> bool {
        let signed = |span: Span| i64::try_from(span.0).unwrap_or(i64::MAX);
        let most = signed(swap);
        let more = signed(own).saturating_sub(signed(simple));
        let lag = self.lag.saturating_add(more);
        let simple_leads = self.simple_since.is_some();
        let changes = if !simple_leads {
            lag >= most && more > 0
        } else {
            lag <= -most && more < 0
        };
        if changes {
            self.simple_since = (!simple_leads).then_some(now);
            self.lag = if simple_leads { -most } else { most };
        } else {
            self.lag = if simple_leads {
                lag.min(most)
            } else {
                lag.max(-most)
            };
        }
        changes
    }

    pub fn simple_since(&self) -> Option<Time> {
        self.simple_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWAP: Span = Span(100);

    /// The costs of each rule for all uses, and the cost of following the lead: the followed rule's costs plus a swap for each
    /// change of the lead.
    fn follow(costs: impl Fn(u64, bool) -> (u64, u64)) -> (u64, u64, u64, u64) {
        let mut lead = Lead::default();
        let (mut own, mut simple, mut paid, mut changes) = (0, 0, 0, 0);
        for nth in 0..5_000 {
            let follows_simple = lead.simple_since().is_some();
            let (of_own, of_simple) = costs(nth, follows_simple);
            own += of_own;
            simple += of_simple;
            paid += if follows_simple { of_simple } else { of_own };
            if lead.paid(Span(of_own), Span(of_simple), SWAP, Time(nth)) {
                paid += SWAP.0;
                changes += 1;
            }
        }
        (own, simple, paid, changes)
    }

    #[test]
    fn the_lead_pays_at_most_three_times_the_better_rule_for_any_costs() {
        let scattered = |nth: u64| nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let always_the_followed = follow(|nth, simple| {
            let costs = 1 + scattered(nth) % 90;
            if simple { (0, costs) } else { (costs, 0) }
        });
        let at_random = follow(|nth, _| (scattered(nth) % 80, scattered(nth + 7_000) % 80));
        let in_turns = follow(|nth, _| {
            if nth / 300 % 2 == 0 {
                (50, 20)
            } else {
                (20, 50)
            }
        });
        for (own, simple, paid, changes) in [always_the_followed, at_random, in_turns] {
            let better = own.min(simple);
            assert!(paid <= 3 * better + 4 * SWAP.0, "{paid} for {better}");
            let regret = (2 * changes + 2) * SWAP.0 + 90 * changes;
            assert!(paid <= better + regret, "{paid} {better} {changes}");
        }
        assert!(always_the_followed.3 > 100, "an adversary makes it change");
    }

    #[test]
    fn an_always_better_rule_takes_the_lead_after_twice_the_cost_of_a_swap() {
        let (own, simple, paid, changes) = follow(|_, _| (30, 10));
        assert_eq!(changes, 1);
        assert!(
            own > simple && paid <= simple + 3 * SWAP.0,
            "{paid} {simple}"
        );
        let (own, _, paid, changes) = follow(|_, _| (10, 30));
        assert_eq!(
            (paid, changes),
            (own, 0),
            "the own rule leads from the start"
        );
    }

    #[test]
    fn the_extra_cost_of_the_followed_rule_is_remembered_while_a_change_would_be_cheaper() {
        let mut lead = Lead::default();
        let (small, now) = (Span(10), Time(1));
        assert!(!lead.paid(Span(80), Span::ZERO, SWAP, now));
        assert!(!lead.paid(Span::ZERO, Span(1), small, now), "79 too much");
        assert!(lead.paid(Span(80), Span::ZERO, SWAP, now), "159 of 100");
        assert!(!lead.paid(Span::ZERO, Span(180), SWAP, now), "80 too much");
        assert!(!lead.paid(Span(1), Span::ZERO, small, now));
        assert!(lead.paid(Span::ZERO, Span(30), SWAP, now), "and back");
    }

    #[test]
    fn rules_with_equal_costs_do_not_change_the_lead() {
        assert_eq!(follow(|_, _| (40, 40)).3, 0);
        let mut lead = Lead::default();
        assert!(
            !lead.paid(Span::ZERO, Span::ZERO, Span::ZERO, Time(1)),
            "nothing is loaded yet"
        );
        assert_eq!(lead.simple_since(), None);
    }
}
