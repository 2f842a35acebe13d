//! Chooses the node size to request for a demand: the cheapest, and the next one while the cluster lets cheaper ones wait (S2).
//! Changes nothing.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::facts::node_demand::FailedNodes;
use crate::facts::state::Pool;
use crate::plan::node_limits;
use crate::types::ids::{Bytes, DemandId, ShapeId, Span, Time};
use crate::types::node_demand::{NodeOutlook, NodeShape, NodeShapeView, PendingNode};

/// A bad outlook counts after this time. A cluster may report one while it starts a job.
const OUTLOOK_SETTLES: Span = Span::from_secs(10);
/// A request that starts within this time is waited for.
const SOON: Span = Span::from_secs(60);

/// The result of looking for a size that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Request this number of nodes of a size.
    Request(ShapeId, u32),
    /// An open request is likely to bring a node soon.
    Comes,
    /// Requests of every size that may be requested are open, and wait.
    Waits,
    Nothing,
}

pub(crate) fn choose(pool: &Pool, fits: impl Fn(&NodeShape) -> bool) -> Choice {
    let demand = &pool.node_demand;
    let mut fitting: Vec<&NodeShape> = demand
        .shapes()
        .values()
        .filter(|shape| fits(shape))
        .collect();
    fitting.sort_by_key(|shape| cost(shape));
    let open_of = |shape: &NodeShape| {
        let mut single = demand.pending().filter(|pending| pending.set.is_none());
        single.find(|pending| pending.shape == shape.shape)
    };
    if fitting
        .iter()
        .filter_map(|shape| open_of(shape))
        .any(|pending| certainty(pool, pending).is_some())
    {
        return Choice::Comes;
    }
    let mut waits = false;
    for shape in fitting {
        match open_of(shape) {
            Some(pending) if is_promising(pool, pending) => return Choice::Comes,
            Some(_) => waits = true,
            None if unavailable(pool, shape, 1).is_none() => {
                return Choice::Request(shape.shape, 1);
            }
            None => {}
        }
    }
    if waits {
        Choice::Waits
    } else {
        Choice::Nothing
    }
}

/// Sizes in the order of their cost.
pub(crate) type Cost = (u32, u32, Bytes, ShapeId);

/// Sizes compare by cost per hour, then by size.
pub(crate) fn cost(shape: &NodeShape) -> Cost {
    let cents = shape.cost_per_hour_cents.unwrap_or(u32::MAX);
    (cents, shape.devices, shape.bytes_per_device, shape.shape)
}

pub(crate) fn has_machine(pending: &PendingNode) -> bool {
    pending.joined.is_some() || pending.outlook == NodeOutlook::Starts
}

/// Returns true as long as no other size is requested for the same demand.
pub(crate) fn is_promising(pool: &Pool, pending: &PendingNode) -> bool {
    let is_new = pool.now < pending.outlook_since + OUTLOOK_SETTLES;
    has_machine(pending)
        || match pending.outlook {
            NodeOutlook::Unknown | NodeOutlook::Starts => true,
            NodeOutlook::Waits { .. } => is_new || starts_soon(pool, pending),
            NodeOutlook::Stuck => is_new,
            NodeOutlook::Never => false,
        }
}

/// Returns true if the cluster expects it to start about now.
pub(crate) fn starts_soon(pool: &Pool, pending: &PendingNode) -> bool {
    let NodeOutlook::Waits { starts: Some(at) } = pending.outlook else {
        return false;
    };
    at <= pool.now + SOON && pool.now < at + SOON
}

/// Returns true if the request has not started and will not.
pub(crate) fn is_in_vain(pool: &Pool, pending: &PendingNode) -> bool {
    pending.joined.is_none()
        && match pending.outlook {
            NodeOutlook::Never => true,
            NodeOutlook::Stuck => pending.outlook_since + OUTLOOK_SETTLES <= pool.now,
            NodeOutlook::Unknown | NodeOutlook::Waits { .. } | NodeOutlook::Starts => false,
        }
}

/// The next time at which the request looks different without a report of the cluster.
pub(crate) fn changes_at(pool: &Pool, pending: &PendingNode) -> Option<Time> {
    let settles = match pending.outlook {
        NodeOutlook::Waits { .. } | NodeOutlook::Stuck => {
            Some(pending.outlook_since + OUTLOOK_SETTLES)
        }
        NodeOutlook::Unknown | NodeOutlook::Never | NodeOutlook::Starts => None,
    };
    let starts = match pending.outlook {
        NodeOutlook::Waits { starts } => starts,
        _ => None,
    };
    let soon = starts.map(|at| Time(at.0.saturating_sub(SOON.0)));
    let late = starts.map(|at| at + SOON);
    let all = settles.into_iter().chain(soon).chain(late);
    all.filter(|at| *at > pool.now).min()
}

/// The order in which open requests of different sizes win: with a machine, then expected soon, then the cheaper one. `None` if the
/// request is not certain enough to replace another.
pub(crate) fn certainty(pool: &Pool, pending: &PendingNode) -> Option<(u8, Cost, DemandId)> {
    let class = match pending {
        pending if pending.joined.is_some() => 0,
        pending if pending.outlook == NodeOutlook::Starts => 1,
        pending if starts_soon(pool, pending) => 2,
        _ => return None,
    };
    let shape = pool.node_demand.shapes().get(&pending.shape)?;
    Some((class, cost(shape), pending.demand))
}

/// The reason why this number of nodes of this size is not requested now, and the time after which it may be if that depends on
/// time alone.
pub(crate) fn unavailable(
    pool: &Pool,
    shape: &NodeShape,
    nodes: u32,
) -> Option<(String, Option<Time>)> {
    if let Some(limit) = node_limits::reached(pool, shape, nodes) {
        return Some((limit.to_string(), None));
    }
    if let Some(why) = pool.node_demand.closed(shape.shape, nodes) {
        return Some((why.to_owned(), None));
    }
    let (failed, until) = failure(pool, shape, nodes)?;
    Some((pool.node_demand.reason(failed).to_owned(), Some(until)))
}

/// Returns true if the cluster has refused as many nodes of this size lately, or cannot bring it at present.
pub(crate) fn is_refused(pool: &Pool, shape: &NodeShape, nodes: u32) -> bool {
    pool.node_demand.closed(shape.shape, nodes).is_some() || failure(pool, shape, nodes).is_some()
}

/// The failure that keeps this number of nodes from being requested now, of at most as many nodes of the size itself or of a smaller
/// size of its kind, and the end of the pause.
fn failure(pool: &Pool, shape: &NodeShape, nodes: u32) -> Option<(FailedNodes, Time)> {
    let demand = &pool.node_demand;
    let stops = |(id, count): &FailedNodes| {
        let smaller = demand.shapes().get(id);
        *count <= nodes
            && smaller.is_some_and(|smaller| {
                smaller.kind == shape.kind && smaller.devices <= shape.devices
            })
    };
    let mut failed = demand.failed().iter();
    let found = failed.find(|(id, until)| **until > pool.now && stops(id));
    found.map(|(id, until)| (*id, *until))
}

/// All sizes, for administrators.
pub(crate) fn views(pool: &Pool) -> Vec<NodeShapeView> {
    let view = |shape: &NodeShape| {
        let unavailable = unavailable(pool, shape, 1);
        NodeShapeView {
            shape: shape.clone(),
            held: node_limits::held(pool, Some(shape.shape)),
            retry: unavailable.as_ref().and_then(|(_, retry)| *retry),
            unavailable: unavailable.map(|(why, _)| why),
        }
    };
    pool.node_demand.shapes().values().map(view).collect()
}
