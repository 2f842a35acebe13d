//! The nodes that a load would request, for display.

use serde::Serialize;
use utoipa::ToSchema;

use pool::NodePlan;

/// A request for a node, or for all nodes that a replica lacks.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PlannedNodeView {
    /// Node size, from `cluster.shapes`.
    #[schema(example = "a100x1")]
    pub shape: String,
    /// Number of nodes, which are requested together.
    #[schema(example = 1)]
    pub nodes: u32,
    /// Number of GPUs of each node.
    pub gpus: u32,
    /// Cost of each node.
    pub cost_per_hour: Option<f64>,
    /// True if they are requested already.
    pub requested: bool,
}

impl PlannedNodeView {
    pub(super) fn new(node: &NodePlan) -> PlannedNodeView {
        PlannedNodeView {
            shape: node.shape.clone(),
            nodes: node.nodes,
            gpus: node.devices,
            cost_per_hour: node
                .cost_per_hour_cents
                .map(|cents| f64::from(cents) / 100.0),
            requested: node.is_open,
        }
    }

    pub(super) fn describe(&self) -> String {
        let (size, nodes) = (&self.shape, self.nodes);
        let each = if nodes > 1 { " each" } else { "" };
        let gpus = match self.gpus {
            1 => format!("1 GPU{each}"),
            gpus => format!("{gpus} GPUs{each}"),
        };
        let cost = match self.cost_per_hour {
            Some(cost) => format!(", {cost:.2} per hour{each}"),
            None => String::new(),
        };
        let is_are = if nodes > 1 { "are" } else { "is" };
        let (one, the) = match nodes {
            1 => ("a node".to_owned(), "the node".to_owned()),
            nodes => (format!("{nodes} nodes"), format!("the {nodes} nodes")),
        };
        if self.requested {
            format!("waits for {the} of size {size} that {is_are} requested ({gpus}{cost})")
        } else {
            format!("would request {one} of size {size} ({gpus}{cost})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_the_number_of_nodes_that_it_requests() {
        let plan = |nodes, devices, is_open| {
            let node = NodePlan {
                shape: "big".to_owned(),
                nodes,
                devices,
                cost_per_hour_cents: Some(250),
                is_open,
            };
            PlannedNodeView::new(&node).describe()
        };
        assert_eq!(
            plan(1, 1, false),
            "would request a node of size big (1 GPU, 2.50 per hour)"
        );
        assert_eq!(
            plan(1, 8, true),
            "waits for the node of size big that is requested (8 GPUs, 2.50 per hour)"
        );
        assert_eq!(
            plan(2, 8, false),
            "would request 2 nodes of size big (8 GPUs each, 2.50 per hour each)"
        );
        assert_eq!(
            plan(3, 1, true),
            "waits for the 3 nodes of size big that are requested (1 GPU each, 2.50 per hour each)"
        );
    }
}
