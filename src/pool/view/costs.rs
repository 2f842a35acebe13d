//! The costs of rules compared with their alternatives (P3, P5).

use crate::facts::state::Pool;
use crate::types::shadow_costs::ShadowCosts;

impl Pool {
    /// The cost that both rules would have had; zero while least recent use is configured.
    pub fn shadow_costs(&self) -> ShadowCosts {
        self.shadows.costs
    }
}
