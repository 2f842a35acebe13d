//! The budget for nodes of a cluster: `cluster.budget`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::section::{ClusterKind, ClusterSection};
use crate::problems::Problem;
use pool::{NodeAmounts, NodeBudget};

/// A larger amount is a mistake.
const MAX: f64 = 1e9;

/// Limits for the use of nodes that the pool requests. Days and months follow the controller's time zone. After an amount is used up,
/// no more nodes are requested; nodes that exist stay until they are idle or their time limit ends. Null: no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetSection {
    /// GPUs of nodes multiplied by the hours that they are held.
    pub gpu_hours_per_day: Option<f64>,
    /// The same for a month.
    pub gpu_hours_per_month: Option<f64>,
    /// The cost by `cost_per_hour` of the shapes, in their currency.
    pub cost_per_day: Option<f64>,
    /// The same for a month.
    pub cost_per_month: Option<f64>,
}

impl BudgetSection {
    /// The amounts for the core.
    pub fn limits(&self) -> NodeBudget {
        let scaled = |amount: Option<f64>, by: f64| amount.map(|amount| (amount * by) as u64);
        NodeBudget {
            day: NodeAmounts {
                gpu_seconds: scaled(self.gpu_hours_per_day, 3600.0),
                cents: scaled(self.cost_per_day, 100.0),
            },
            month: NodeAmounts {
                gpu_seconds: scaled(self.gpu_hours_per_month, 3600.0),
                cents: scaled(self.cost_per_month, 100.0),
            },
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        *self != BudgetSection::default()
    }
}

pub(crate) fn problems(section: &ClusterSection) -> Vec<Problem> {
    let budget = &section.budget;
    let mut problems = Vec::new();
    for (key, amount) in [
        ("gpu_hours_per_day", budget.gpu_hours_per_day),
        ("gpu_hours_per_month", budget.gpu_hours_per_month),
        ("cost_per_day", budget.cost_per_day),
        ("cost_per_month", budget.cost_per_month),
    ] {
        if let Some(amount) = amount
            && !(0.0..=MAX).contains(&amount)
        {
            let message = format!("is {amount}; allowed: 0 to {MAX}, or null for no limit");
            problems.push(Problem::new(format!("cluster.budget.{key}"), message));
        }
    }
    let counts_cost = budget.cost_per_day.is_some() || budget.cost_per_month.is_some();
    let mut shapes = section.shapes.iter();
    if counts_cost && let Some(shape) = shapes.find(|shape| shape.cost_per_hour.is_none()) {
        let message = format!(
            "limits the cost of nodes, but the shape {} has no cost_per_hour; add it",
            shape.name
        );
        problems.push(Problem::new("cluster.budget", message));
    }
    if section.kind == ClusterKind::Kubernetes && budget.is_set() {
        let message = "has no effect with Kubernetes, which reports no times of nodes; limit the replicas of the Deployments instead";
        problems.push(Problem::new("cluster.budget", message));
    }
    problems
}
