//! The key `batch.nodes`: nodes of a cluster for batches, and their limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;
use pool::{BatchNodes, NodeAmounts};

/// Limits for the nodes that the pool requests for batches. They count towards the limits of `cluster`, too. The day follows the
/// controller's time zone. After an amount is used up, these nodes are given back. Null: no limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchNodesSection {
    /// Maximum number of nodes that the pool holds or requests for batches at a time, 1 to 1024.
    pub max: u32,
    /// GPUs of these nodes multiplied by the hours that they are held, per day; above 0.
    pub gpu_hours_per_day: Option<f64>,
    /// Their cost per day by `cost_per_hour` of the shapes, in their currency; above 0.
    pub cost_per_day: Option<f64>,
}

impl Default for BatchNodesSection {
    fn default() -> BatchNodesSection {
        BatchNodesSection {
            max: 1,
            gpu_hours_per_day: None,
            cost_per_day: None,
        }
    }
}

/// The controller accepts no more nodes.
const NODES_MAX: u32 = 1024;
/// A larger amount is a mistake.
const AMOUNT_MAX: f64 = 1e9;

impl BatchNodesSection {
    /// The limits for the core.
    pub(crate) fn limits(&self) -> BatchNodes {
        let scaled =
            |amount: Option<f64>, by: f64| amount.map(|amount| (amount * by).ceil() as u64);
        BatchNodes {
            nodes_max: self.max,
            day: NodeAmounts {
                gpu_seconds: scaled(self.gpu_hours_per_day, 3600.0),
                cents: scaled(self.cost_per_day, 100.0),
            },
        }
    }

    /// All problems of this key alone.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(1..=NODES_MAX).contains(&self.max) {
            let message = format!(
                "is {}; allowed: 1 to {NODES_MAX}. For no nodes, write batch.nodes: null",
                self.max
            );
            problems.push(Problem::new("batch.nodes.max", message));
        }
        for (key, amount) in [
            ("gpu_hours_per_day", self.gpu_hours_per_day),
            ("cost_per_day", self.cost_per_day),
        ] {
            if let Some(amount) = amount
                && !(f64::MIN_POSITIVE..=AMOUNT_MAX).contains(&amount)
            {
                let message = format!(
                    "is {amount}; allowed: more than 0, up to {AMOUNT_MAX}, or null for no limit"
                );
                problems.push(Problem::new(format!("batch.nodes.{key}"), message));
            }
        }
        problems
    }
}
