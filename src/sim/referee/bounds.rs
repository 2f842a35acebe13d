//! The referee's check of the cost of following the better of two rules (P3, P5). The costs are the pool's own sums of estimates;
//! the referee checks them against the bounds stated in docs/internals/policy.md.

use super::Referee;
use pool::{ClosingCosts, ShadowCosts};

impl Referee {
    /// After each step: the bounds hold at all times.
    pub fn better_rules_are_followed(&mut self, shadows: &ShadowCosts, closings: &ClosingCosts) {
        if shadows.followed > shadows.bound() {
            self.broken.push(format!(
                "P5: following the better rule for victims has cost {}, more than {}: {shadows:?}",
                shadows.followed,
                shadows.bound()
            ));
        }
        if closings.followed > closings.bound() {
            self.broken.push(format!(
                "P3: ending turns early has cost {} of waiting, more than {}: {closings:?}",
                closings.followed,
                closings.bound()
            ));
        }
    }
}
