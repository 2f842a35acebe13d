//! The referee's check of the cost of following the better of two rules for victims (P5). The costs are the pool's own sums of
//! estimates; the referee checks them against the bound stated in docs/internals/policy.md.

use super::Referee;
use pool::ShadowCosts;

impl Referee {
    /// After each step: the bound holds at all times.
    pub fn better_rule_is_followed(&mut self, shadows: &ShadowCosts) {
        if shadows.followed > shadows.bound() {
            self.broken.push(format!(
                "P5: following the better rule for victims has cost {}, more than {}: {shadows:?}",
                shadows.followed,
                shadows.bound()
            ));
        }
    }
}
