//! Reports the cost of following the better of two rules to the referee, as the pool reports it or with a planted fault.

use super::{Fault, Play};
use pool::Span;

impl Play {
    pub(super) fn costs_are_shown(&mut self) {
        let pool = &self.world.pool;
        let (mut shadows, mut closings) = (pool.shadow_costs(), pool.closing_costs());
        self.report.rule_changes = shadows.changes + closings.changes;
        self.report.early_ends = closings.judged;
        match self.fault {
            Some(Fault::ChangesUncounted) => {
                let loads = shadows.own.0 / shadows.load_max.0.max(1);
                let swaps = Span(shadows.swap_max.0.saturating_mul(loads));
                shadows.followed = shadows.followed + swaps;
            }
            Some(Fault::ClosingsUnjudged) => {
                let waited = Span::from_secs(self.report.granted);
                closings.followed = closings.followed + waited;
            }
            _ => {}
        }
        self.referee.better_rules_are_followed(&shadows, &closings);
    }
}
