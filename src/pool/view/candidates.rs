//! The candidates of a plan as text, for the history and for administrators.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::state::Pool;
use crate::types::decision::{CANDIDATES_MAX, Plan, Verdict, blocked};

impl Pool {
    /// The candidates of the plan as text, the chosen one first.
    pub fn candidates(&self, plan: &Plan) -> Vec<String> {
        let mut order: Vec<usize> = (0..plan.candidates.len()).collect();
        order.sort_by_key(|nth| Reverse(plan.refusal.is_none() && *nth == plan.chosen));
        let line = |nth: usize| {
            let candidate = &plan.candidates[nth];
            let mark = if plan.refusal.is_none() && nth == plan.chosen {
                "chosen: "
            } else {
                ""
            };
            let names: Vec<String> = candidate
                .devices
                .iter()
                .map(|device| self.device_name(*device))
                .collect();
            let device = match candidate.wakes {
                Some(sleeper) => format!("{} (wakes {sleeper})", names.join(" + ")),
                None => names.join(" + "),
            };
            match &candidate.verdict {
                Verdict::Free { left_over } => {
                    format!("{mark}{device}: free, {left_over} left over")
                }
                Verdict::Evicts { victims, cost } => {
                    let names: Vec<String> = victims
                        .iter()
                        .map(|id| match self.replicas.get(id) {
                            Some(replica) => format!("{} ({id})", self.name(replica.model)),
                            None => id.to_string(),
                        })
                        .collect();
                    format!(
                        "{mark}{device}: evicts {}, {} in all",
                        names.join(", "),
                        cost.bytes
                    )
                }
                Verdict::Blocked { obstacles } => {
                    format!("{device}: {}", blocked(obstacles, plan.devices, plan.nodes))
                }
                Verdict::Unfit(unfit) => format!("{device}: {unfit}"),
            }
        };
        order.into_iter().take(CANDIDATES_MAX).map(line).collect()
    }
}
