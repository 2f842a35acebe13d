//! Limits of requests for nodes: the number of nodes, of each size too, and the budget (S2); both for batches, too (B8). Changes
//! nothing.

use crate::facts::state::Pool;
use crate::types::ids::{DemandId, NodeId, ShapeId};
use crate::types::node::{Node, Presence};
use crate::types::node_demand::{
    BatchNodes, NodeAmounts, NodeCount, NodeLimit, NodeShape, NodeUse, PendingNode,
};

/// The limit that forbids this many further nodes of this size now, if any. Open requests count as nodes.
pub(crate) fn reached(pool: &Pool, shape: &NodeShape, wanted: u32) -> Option<NodeLimit> {
    reached_without(pool, shape, wanted, |_| false)
}

/// The same if the open requests `without` were cancelled.
pub(crate) fn reached_without(
    pool: &Pool,
    shape: &NodeShape,
    wanted: u32,
    without: impl Fn(&PendingNode) -> bool + Copy,
) -> Option<NodeLimit> {
    let held = |of: Option<ShapeId>| held_without(pool, of, without);
    reached_with(pool, shape, wanted, without, held)
}

/// Returns true if only open requests for batches, and the nodes for batches that make place, keep this many further nodes of this
/// size from being requested (B8).
pub(crate) fn reached_by_batches(
    pool: &Pool,
    shape: &NodeShape,
    wanted: u32,
    makes_place: impl Fn(NodeId) -> bool,
) -> bool {
    let without = |pending: &PendingNode| pending.demand.is_for_batches();
    let held = |of: Option<ShapeId>| {
        let making_place = present_for_batches(pool, of, &makes_place);
        held_without(pool, of, without).saturating_sub(making_place)
    };
    reached(pool, shape, wanted).is_some()
        && reached_with(pool, shape, wanted, without, held).is_none()
}

fn reached_with(
    pool: &Pool,
    shape: &NodeShape,
    wanted: u32,
    without: impl Fn(&PendingNode) -> bool + Copy,
    held: impl Fn(Option<ShapeId>) -> u32,
) -> Option<NodeLimit> {
    let limits = &pool.limits;
    let count = |of: Option<ShapeId>, most: u32| {
        let held = held(of);
        (held.saturating_add(wanted) > most).then_some(NodeCount { held, wanted })
    };
    if let Some(most) = limits.nodes_max
        && let Some(count) = count(None, most)
    {
        return Some(NodeLimit::Nodes { most, count });
    }
    if let Some(most) = shape.nodes_max
        && let Some(count) = count(Some(shape.shape), most)
    {
        return Some(NodeLimit::OfSize { most, count });
    }
    let (budget, spent) = (&limits.node_budget, pool.node_demand.spent());
    // The last of the nodes is requested as long as the budget is not used up.
    let mut reserved = reserved(pool, without);
    let least = least_use(pool, shape);
    for _ in 1..wanted {
        reserved = plus(reserved, least);
    }
    over("day", &budget.day, &plus(spent.day, reserved), wanted)
        .or_else(|| over("month", &budget.month, &plus(spent.month, reserved), wanted))
}

fn over(
    period: &'static str,
    budget: &NodeAmounts,
    used: &NodeUse,
    wanted: u32,
) -> Option<NodeLimit> {
    if let Some(most) = budget.gpu_seconds.filter(|most| used.gpu_seconds >= *most) {
        return Some(NodeLimit::GpuTime {
            period,
            used: used.gpu_seconds,
            most,
            wanted,
        });
    }
    let most = budget.cents.filter(|most| used.cents >= *most)?;
    Some(NodeLimit::Cost {
        period,
        used: used.cents,
        most,
        wanted,
    })
}

/// The least that the nodes of open requests will use.
fn reserved(pool: &Pool, without: impl Fn(&PendingNode) -> bool + Copy) -> NodeUse {
    let shapes = pool.node_demand.shapes();
    let of_open = open(pool, without).filter_map(|pending| shapes.get(&pending.shape));
    of_open.fold(NodeUse::default(), |all, shape| {
        plus(all, least_use(pool, shape))
    })
}

/// The least that a node will use: it is given back only after it has been idle for this long.
fn least_use(pool: &Pool, shape: &NodeShape) -> NodeUse {
    let seconds = pool.limits.node_scale_down_after.0 / 1000;
    let cents = u64::from(shape.cost_per_hour_cents.unwrap_or(0));
    NodeUse {
        gpu_seconds: u64::from(shape.devices) * seconds,
        cents: cents * seconds / 3600,
    }
}

fn plus(one: NodeUse, other: NodeUse) -> NodeUse {
    NodeUse {
        gpu_seconds: one.gpu_seconds.saturating_add(other.gpu_seconds),
        cents: one.cents.saturating_add(other.cents),
    }
}

/// Requests whose node has not joined.
fn open(
    pool: &Pool,
    without: impl Fn(&PendingNode) -> bool + Copy,
) -> impl Iterator<Item = &PendingNode> {
    let pending = pool.node_demand.pending();
    pending.filter(move |pending| pending.joined.is_none() && !without(pending))
}

/// The number of requested nodes that are not gone, of one size or of all, with open requests. A node that is expected back
/// after a restart may have been requested and counts, of any size (N8).
pub(crate) fn held(pool: &Pool, shape: Option<ShapeId>) -> u32 {
    held_without(pool, shape, |_| false)
}

fn held_without(
    pool: &Pool,
    shape: Option<ShapeId>,
    without: impl Fn(&PendingNode) -> bool + Copy,
) -> u32 {
    let counts = |node: &Node| {
        let is_ours = node.demand.is_some() && is_of(node, shape);
        node.presence != Presence::Gone && (is_ours || is_expected(node))
    };
    let nodes = pool.nodes.all_known();
    let present = nodes.values().filter(|node| counts(node)).count();
    let opens = open(pool, without);
    let opens = opens.filter(|pending| shape.is_none_or(|shape| pending.shape == shape));
    u32::try_from(present + opens.count()).unwrap_or(u32::MAX)
}

/// A node that is expected back after a restart may have been requested.
fn is_expected(node: &Node) -> bool {
    node.presence == Presence::Silent && node.demand.is_none()
}

/// Returns true if the node may be of this size.
fn is_of(node: &Node, shape: Option<ShapeId>) -> bool {
    shape.is_none_or(|shape| node.shape.is_none_or(|of| of == shape))
}

/// The number of these nodes that were requested for batches and are not gone, of one size or of all.
fn present_for_batches(pool: &Pool, shape: Option<ShapeId>, of: impl Fn(NodeId) -> bool) -> u32 {
    let counts = |(id, node): &(&NodeId, &Node)| {
        let is_for_batches = node.demand.is_some_and(DemandId::is_for_batches);
        node.presence != Presence::Gone && is_for_batches && is_of(node, shape) && of(**id)
    };
    let present = pool.nodes.all_known().iter().filter(counts).count();
    u32::try_from(present).unwrap_or(u32::MAX)
}

/// The limit of nodes for batches that forbids another one now, if any (B8). A node that is expected back after a restart may be
/// for batches and counts.
pub(crate) fn reached_for_batches(pool: &Pool, limits: &BatchNodes) -> Option<NodeLimit> {
    let open = open(pool, |_| false).filter(|pending| pending.demand.is_for_batches());
    let nodes = pool.nodes.all_known().values();
    let others = open.count() + nodes.filter(|node| is_expected(node)).count();
    let others = u32::try_from(others).unwrap_or(u32::MAX);
    let held = present_for_batches(pool, None, |_| true).saturating_add(others);
    if held >= limits.nodes_max {
        let most = limits.nodes_max;
        return Some(NodeLimit::BatchNodes { most });
    }
    used_up_by_batches(pool, limits)
}

/// The budget for nodes for batches that is used up, if any.
pub(crate) fn used_up_by_batches(pool: &Pool, limits: &BatchNodes) -> Option<NodeLimit> {
    let NodeUse { gpu_seconds, cents } = pool.node_demand.spent().batch_day;
    if let Some(most) = limits.day.gpu_seconds.filter(|most| gpu_seconds >= *most) {
        let used = gpu_seconds;
        return Some(NodeLimit::BatchGpuTime { used, most });
    }
    let most = limits.day.cents.filter(|most| cents >= *most)?;
    Some(NodeLimit::BatchCost { used: cents, most })
}
