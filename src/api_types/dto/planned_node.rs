//! The node that a load would request, for display.

use serde::Serialize;
use utoipa::ToSchema;

use pool::NodePlan;

/// A request for a node.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PlannedNodeView {
    /// Node size, from `cluster.shapes`.
    #[schema(example = "a100x1")]
    pub shape: String,
    pub gpus: u32,
    pub cost_per_hour: Option<f64>,
    /// True if the node is requested already.
    pub requested: bool,
}

impl PlannedNodeView {
    pub(super) fn new(node: &NodePlan) -> PlannedNodeView {
        PlannedNodeView {
            shape: node.shape.clone(),
            gpus: node.devices,
            cost_per_hour: node
                .cost_per_hour_cents
                .map(|cents| f64::from(cents) / 100.0),
            requested: node.is_open,
        }
    }

    pub(super) fn describe(&self) -> String {
        let size = &self.shape;
        let gpus = match self.gpus {
            1 => "1 GPU".to_owned(),
            gpus => format!("{gpus} GPUs"),
        };
        let cost = match self.cost_per_hour {
            Some(cost) => format!(", {cost:.2} per hour"),
            None => String::new(),
        };
        if self.requested {
            format!("waits for the node of size {size} that is requested ({gpus}{cost})")
        } else {
            format!("would request a node of size {size} ({gpus}{cost})")
        }
    }
}
