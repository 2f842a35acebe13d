//! The cost so far of the shadows of the two eviction rules, and the bound that the pool keeps by switching between them.
//! Arithmetic only; `types/lead.rs` has the proof.

use crate::types::ids::Span;

/// Seconds of loading that the two rules would have spent on the same uses, and the seconds of the rule that was followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowCosts {
    /// The cost of the pool's own estimate.
    pub own: Span,
    /// The cost of least recent use.
    pub simple: Span,
    /// The cost of the rule followed at the time, plus a full swap for each change.
    pub followed: Span,
    pub changes: u64,
    /// The longest time it would have taken to reload everything, and the longest load.
    pub swap_max: Span,
    pub load_max: Span,
}

impl ShadowCosts {
    /// The lag after which the lead changes: half of what replacing everything that is loaded costs at most. With all of it, the worst
    /// traces lost to least recent use what the shadows were there to save; with a quarter, the lead changes three times as often.
    pub(crate) fn lag_max(swap: Span) -> Span {
        Span(swap.0 / 2)
    }

    /// Records a use that both rules have served, and what each paid for it.
    pub(crate) fn paid(&mut self, paid: [Span; 2], simple_led: bool, changed: bool, swap: Span) {
        let [own, simple] = paid;
        self.own = self.own + own;
        self.simple = self.simple + simple;
        self.followed = self.followed + if simple_led { simple } else { own };
        self.swap_max = self.swap_max.max(swap);
        self.load_max = self.load_max.max(own).max(simple);
        if changed {
            self.followed = self.followed + swap;
            self.changes += 1;
        }
    }

    /// The cost of the better rule.
    pub fn better(&self) -> Span {
        self.own.min(self.simple)
    }

    /// Upper bound of `followed`: for each change of the lead one and a half full swaps and the load with which it changed, plus one
    /// swap for the next change.
    pub fn bound(&self) -> Span {
        let halves = self.changes.saturating_mul(3).saturating_add(2);
        let regret = self.swap_max.0.saturating_mul(halves).div_ceil(2);
        let overshoot = self.load_max.0.saturating_mul(self.changes);
        self.better() + Span(regret) + Span(overshoot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::Time;
    use crate::types::lead::Lead;

    #[test]
    fn following_the_lead_stays_within_the_bound_if_an_adversary_shrinks_the_swap_cost() {
        let (mut lead, mut costs) = (Lead::default(), ShadowCosts::default());
        for nth in 0..5_000 {
            let simple_led = lead.simple_since().is_some();
            // The followed rule pays, and a swap that would have cost little hides it.
            let (followed, other, swap) = match nth % 2 {
                0 => (Span(80), Span::ZERO, Span(100)),
                _ => (Span::ZERO, Span(1), Span(10)),
            };
            let paid = if simple_led {
                [other, followed]
            } else {
                [followed, other]
            };
            let changed = lead.paid(paid[0], paid[1], ShadowCosts::lag_max(swap), Time(nth));
            costs.paid(paid, simple_led, changed, swap);
            assert!(costs.followed <= costs.bound(), "{costs:?}");
        }
        assert!(costs.changes > 0, "{costs:?}");
    }

    #[test]
    fn following_the_lead_stays_within_the_bound_while_the_swap_cost_grows() {
        for period in [1, 7, 40, 300] {
            let (mut lead, mut costs) = (Lead::default(), ShadowCosts::default());
            for nth in 0..5_000 {
                let paid = match nth / period % 2 {
                    0 => [Span(50), Span(20)],
                    _ => [Span(20), Span(50)],
                };
                let swap = Span(100 + nth / 50);
                let simple_led = lead.simple_since().is_some();
                let changed = lead.paid(paid[0], paid[1], ShadowCosts::lag_max(swap), Time(nth));
                costs.paid(paid, simple_led, changed, swap);
            }
            assert!(costs.followed <= costs.bound(), "{costs:?}");
        }
    }
}
