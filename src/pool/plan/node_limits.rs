//! Limits of requests for nodes (S2): the number of nodes, of each size too, and the budget. Changes nothing.

use crate::facts::state::Pool;
use crate::types::ids::{DemandId, ShapeId};
use crate::types::node::{Node, Presence};
use crate::types::node_demand::{NodeAmounts, NodeLimit, NodeShape, NodeUse, PendingNode};

/// The limit that forbids one more node of this size now, if any. Open requests count as nodes.
pub(crate) fn reached(pool: &Pool, shape: &NodeShape) -> Option<NodeLimit> {
    reached_without(pool, shape, None)
}

/// The same if the request `without` were cancelled.
pub(crate) fn reached_without(
    pool: &Pool,
    shape: &NodeShape,
    without: Option<DemandId>,
) -> Option<NodeLimit> {
    let limits = &pool.limits;
    if let Some(most) = limits.nodes_max
        && held(pool, None, without) >= most
    {
        return Some(NodeLimit::Nodes { most });
    }
    if let Some(most) = shape.nodes_max
        && held(pool, Some(shape.shape), without) >= most
    {
        return Some(NodeLimit::OfSize { most });
    }
    let (budget, spent) = (&limits.node_budget, pool.node_demand.spent());
    let reserved = reserved(pool, without);
    over("day", &budget.day, &plus(spent.day, reserved))
        .or_else(|| over("month", &budget.month, &plus(spent.month, reserved)))
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

/// The least that the nodes of open requests will use: each is given back only after it has been idle for this long.
fn reserved(pool: &Pool, without: Option<DemandId>) -> NodeUse {
    let seconds = pool.limits.node_scale_down_after.0 / 1000;
    let mut all = NodeUse::default();
    for pending in open(pool, without) {
        if let Some(shape) = pool.node_demand.shapes().get(&pending.shape) {
            let cents = u64::from(shape.cost_per_hour_cents.unwrap_or(0));
            all.gpu_seconds += u64::from(shape.devices) * seconds;
            all.cents += cents * seconds / 3600;
        }
    }
    all
}

fn plus(one: NodeUse, other: NodeUse) -> NodeUse {
    NodeUse {
        gpu_seconds: one.gpu_seconds.saturating_add(other.gpu_seconds),
        cents: one.cents.saturating_add(other.cents),
    }
}

/// Requests whose node has not joined.
fn open(pool: &Pool, without: Option<DemandId>) -> impl Iterator<Item = &PendingNode> {
    let pending = pool.node_demand.pending();
    pending.filter(move |pending| pending.joined.is_none() && Some(pending.demand) != without)
}

/// The number of requested nodes that are not gone, of one size or of all, with open requests. A node that is expected back
/// after a restart may have been requested and counts, of any size (N8).
pub(crate) fn held(pool: &Pool, shape: Option<ShapeId>, without: Option<DemandId>) -> u32 {
    let is_expected = |node: &Node| node.presence == Presence::Silent && node.demand.is_none();
    let counts = |node: &Node| {
        let is_ours = node.demand.is_some()
            && shape.is_none_or(|shape| node.shape.is_none_or(|of| of == shape));
        node.presence != Presence::Gone && (is_ours || is_expected(node))
    };
    let nodes = pool.nodes.all_known();
    let present = nodes.values().filter(|node| counts(node)).count();
    let opens = open(pool, without);
    let opens = opens.filter(|pending| shape.is_none_or(|shape| pending.shape == shape));
    u32::try_from(present + opens.count()).unwrap_or(u32::MAX)
}
