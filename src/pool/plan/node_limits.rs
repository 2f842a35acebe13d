//! Limits of requests for nodes (S2): the number of nodes, of each size too, and the budget. Changes nothing.

use crate::facts::state::Pool;
use crate::types::ids::ShapeId;
use crate::types::node::{Node, Presence};
use crate::types::node_demand::{NodeAmounts, NodeLimit, NodeShape, NodeUse};

/// The limit that forbids one more node of this size now, if any. An open request counts as a node.
pub(crate) fn reached(pool: &Pool, shape: &NodeShape) -> Option<NodeLimit> {
    let limits = &pool.limits;
    if let Some(most) = limits.nodes_max
        && held(pool, None) >= most
    {
        return Some(NodeLimit::Nodes { most });
    }
    if let Some(most) = shape.nodes_max
        && held(pool, Some(shape.shape)) >= most
    {
        return Some(NodeLimit::OfSize { most });
    }
    let (budget, spent) = (&limits.node_budget, pool.node_demand.spent());
    over("day", &budget.day, &spent.day).or_else(|| over("month", &budget.month, &spent.month))
}

fn over(period: &'static str, budget: &NodeAmounts, used: &NodeUse) -> Option<NodeLimit> {
    if let Some(most) = budget.gpu_seconds.filter(|most| used.gpu_seconds >= *most) {
        let used = used.gpu_seconds;
        return Some(NodeLimit::GpuTime { period, used, most });
    }
    let most = budget.cents.filter(|most| used.cents >= *most)?;
    let used = used.cents;
    Some(NodeLimit::Cost { period, used, most })
}

/// The number of requested nodes that are not gone, of one size or of all, with the open request. A node that is expected back
/// after a restart may have been requested and counts, of any size (N8).
fn held(pool: &Pool, shape: Option<ShapeId>) -> u32 {
    let is_expected = |node: &Node| node.presence == Presence::Silent && node.demand.is_none();
    let counts = |node: &Node| {
        let is_ours = node.demand.is_some()
            && shape.is_none_or(|shape| node.shape.is_none_or(|of| of == shape));
        node.presence != Presence::Gone && (is_ours || is_expected(node))
    };
    let nodes = pool.nodes.all_known();
    let present = nodes.values().filter(|node| counts(node)).count();
    let pending = pool.node_demand.pending();
    let opens = pending.is_some_and(|pending| {
        pending.joined.is_none() && shape.is_none_or(|shape| pending.shape == shape)
    });
    u32::try_from(present)
        .unwrap_or(u32::MAX)
        .saturating_add(u32::from(opens))
}
