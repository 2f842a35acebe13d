//! Reports the cost of following the better of two rules to the referee, as the pool reports it or with a planted fault.

use super::{Fault, Play};
use pool::Span;

impl Play {
    pub(super) fn costs_are_shown(&mut self) {
        let pool = &self.world.pool;
        let mut shadows = pool.shadow_costs();
        self.report.rule_changes = shadows.changes;
        if self.fault == Some(Fault::ChangesUncounted) {
            let loads = shadows.own.0 / shadows.load_max.0.max(1);
            let swaps = Span(shadows.swap_max.0.saturating_mul(loads));
            shadows.followed = shadows.followed + swaps;
        }
        self.referee.better_rule_is_followed(&shadows);
    }
}
