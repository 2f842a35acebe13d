//! Checks that the cluster can bring the nodes of `batch.nodes` and record their use.

use super::root::Config;
use crate::cluster::ClusterKind;
use crate::problems::Problem;

/// All problems of `batch.nodes` with the section `cluster`.
pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let Some(nodes) = &config.batch.nodes else {
        return Vec::new();
    };
    let problem = |key: &str, message: String| vec![Problem::new(key, message)];
    let mut shapes = config.cluster.shapes.iter();
    match config.cluster.kind {
        ClusterKind::None => problem(
            "batch.nodes",
            "needs a cluster, and cluster.kind is none; set cluster.kind and cluster.shapes, or remove it".to_owned(),
        ),
        ClusterKind::Kubernetes => problem(
            "batch.nodes",
            "is not possible with cluster.kind kubernetes, which does not record that a node is for batches; remove it".to_owned(),
        ),
        _ if nodes.cost_per_day.is_none() => Vec::new(),
        _ => match shapes.find(|shape| shape.cost_per_hour.is_none()) {
            Some(shape) => problem(
                "batch.nodes.cost_per_day",
                format!(
                    "limits the cost of nodes, but the shape {} has no cost_per_hour; add it",
                    shape.name
                ),
            ),
            None => Vec::new(),
        },
    }
}
