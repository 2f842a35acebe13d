//! Decides when to request another node instead of evicting, and when to give one back (S2). Part of `plan::next`; changes nothing.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::state::Pool;
use crate::plan::node_limits;
use crate::plan::place::place;
use crate::types::decision::{Decision, Plan};
use crate::types::ids::{Bytes, DeviceId, ModelId, NodeId, ShapeId, Time};
use crate::types::node_demand::NodeShape;
use crate::types::rank::DemandRank;
use crate::types::reason::Refusal;
use crate::types::requirements::Requirements;

/// The number of sizes that a refusal explains.
const SIZES_EXPLAINED_MAX: usize = 4;

/// The decision for a demand that would have to evict or fits nowhere. `None` if it is planned without another node.
pub(crate) fn instead(
    pool: &Pool,
    rank: &DemandRank,
    requirements: &Requirements,
    plan: &Plan,
) -> Option<Decision> {
    let demand = &pool.node_demand;
    let fits_now = plan.refusal.is_none() && plan.victims.is_empty();
    if demand.shapes().is_empty() || requirements.forced_by.is_some() || fits_now {
        return None;
    }
    let wait = |until: Option<Time>| {
        let retry = until.into_iter().chain(plan.retry).min();
        let demands = vec![(*rank, retry)];
        Some(Decision::Block { demands })
    };
    let patience = pool.limits.node_patience;
    let shape = successor(pool, requirements).or_else(|| cheapest_shape(pool, requirements));
    let Some(pending) = demand.pending() else {
        let (model, priority) = (requirements.model, requirements.priority);
        return shape.map(|shape| Decision::RequestNode {
            shape,
            model,
            priority,
        });
    };
    let served = demand.shapes().get(&pending.shape);
    let served = served.is_some_and(|shape| holds(pool, requirements, shape));
    if !served && shape.is_none() {
        return None;
    }
    // One request at a time, for the highest priority first.
    if !served && requirements.priority > pending.priority && pending.joined.is_none() {
        return Some(Decision::CancelNode);
    }
    let since = if served {
        pending.since
    } else {
        requirements.since.max(pending.since)
    };
    let until = since + patience;
    if pool.now < until {
        return wait(Some(until));
    }
    // The node has taken longer than the patience. If eviction is not possible either, keep waiting for the node.
    if plan.refusal.is_some() {
        return wait(None);
    }
    None
}

/// Returns true if a node for it is on its way or can be requested.
pub(crate) fn may_serve(pool: &Pool, requirements: &Requirements) -> bool {
    let demand = &pool.node_demand;
    let comes = demand.pending().into_iter().any(|pending| {
        let shape = demand.shapes().get(&pending.shape);
        shape.is_some_and(|shape| holds(pool, requirements, shape))
    });
    comes || cheapest_shape(pool, requirements).is_some()
}

/// The time at which a node size that failed, and that the demand could use, may be requested again.
pub(crate) fn retry(pool: &Pool, requirements: &Requirements) -> Option<Time> {
    let failed = pool.node_demand.failed().iter();
    let usable = failed.filter(|(id, _)| {
        let shape = pool.node_demand.shapes().get(id);
        shape.is_some_and(|shape| holds(pool, requirements, shape))
    });
    let at = usable.map(|(_, at)| *at);
    at.filter(|at| *at > pool.now).min()
}

/// Cancels the request if no demand could use the node any more. Gives idle nodes back.
pub(crate) fn next(pool: &Pool) -> Option<Decision> {
    let demand = &pool.node_demand;
    if let Some(pending) = demand.pending().filter(|pending| pending.joined.is_none()) {
        let shape = demand.shapes().get(&pending.shape);
        let uses = |shape: &NodeShape| {
            let mut all = pool.demand_index.all().values();
            all.any(|pending| holds(pool, &pending.requirements, shape))
        };
        if pool.service.is_closing() || !shape.is_some_and(uses) {
            return Some(Decision::CancelNode);
        }
    }
    let due = |(node, since): &(&NodeId, &Time)| {
        let spent = pool.service.is_night()
            || pool.nodes.moves(**node)
            || **since + pool.limits.node_scale_down_after <= pool.now;
        // A node that was ordered to end does so on its own.
        let ends = pool
            .nodes
            .time(**node)
            .is_some_and(|time| time.leaves.is_some());
        spent && !ends && !demand.is_releasing(**node) && is_idle(pool, **node)
    };
    // A node that a waiting demand could use is kept. A demand that waits for larger nodes does not count: it would keep this node
    // forever.
    let is_wanted = |node: NodeId| {
        let mut all = pool.demand_index.all().values();
        let may_use = !pool.service.is_closing() && !pool.nodes.moves(node);
        may_use && all.any(|pending| could_use(pool, &pending.requirements, node))
    };
    let mut spent = demand.idle().iter().filter(due);
    let (&node, _) = spent.find(|(node, _)| !is_wanted(**node))?;
    Some(Decision::ReleaseNode { node })
}

/// The next time at which a decision here becomes due without an event.
pub(crate) fn wake(pool: &Pool) -> Option<Time> {
    let demand = &pool.node_demand;
    let waits = demand.idle().iter();
    let waits = waits.filter(|(node, _)| !demand.is_releasing(**node));
    let idle = waits.map(|(_, since)| *since + pool.limits.node_scale_down_after);
    let joined = demand
        .pending()
        .into_iter()
        .filter_map(|pending| pending.joined);
    let joined = joined.map(|(_, at)| at + pool.limits.node_devices_within);
    let failed = demand.failed().values().copied();
    idle.chain(joined)
        .chain(failed)
        .filter(|at| *at > pool.now)
        .min()
}

/// Returns true if the pool requested the node and nothing is loaded or planned on it.
pub(crate) fn is_idle(pool: &Pool, node: NodeId) -> bool {
    let known = pool.nodes.known(node);
    let ours = known.is_some_and(|known| known.demand.is_some() && known.is_joined());
    let devices = pool.nodes.devices_of(node);
    let mut devices = devices.map(|id| &pool.devices[id]);
    ours && devices.all(|device| device.holders.is_empty()) && pool.engines_given_up(node) == 0
}

/// For a model that moves because its node ends: the cheapest size that holds everything that has to move from there and has no
/// free place (N7). This requests one node for all of them instead of one after another.
fn successor(pool: &Pool, requirements: &Requirements) -> Option<ShapeId> {
    let (node, _) = pool.moves_from(requirements.model)?;
    if pool.moves_lacking(requirements.model) == 0 {
        return None;
    }
    let models: BTreeSet<ModelId> = pool
        .replicas_on(node)
        .iter()
        .map(|id| pool.replicas[id].model)
        .collect();
    let mut all = Vec::new();
    for model in models {
        let since = pool.models[&model].since;
        let lacking = pool.moves_lacking(model);
        let coming = pool.models[&model].planned.len();
        for _ in coming..lacking {
            let one = Requirements::new(pool, model, since);
            let plan = place(pool, &one);
            if plan.refusal.is_some() || !plan.victims.is_empty() {
                all.push(one);
            }
        }
    }
    cheapest(pool, |shape| {
        hold_together(pool, &all, shape) && holds(pool, requirements, shape)
    })
}

/// The cheapest size that holds it.
fn cheapest_shape(pool: &Pool, requirements: &Requirements) -> Option<ShapeId> {
    cheapest(pool, |shape| holds(pool, requirements, shape))
}

/// The cheapest size that fits, excluding sizes that failed recently and larger ones of the same kind.
fn cheapest(pool: &Pool, fits: impl Fn(&NodeShape) -> bool) -> Option<ShapeId> {
    let demand = &pool.node_demand;
    let may = |shape: &NodeShape| {
        failure(pool, shape).is_none() && node_limits::reached(pool, shape).is_none()
    };
    let fitting = demand.shapes().values();
    let fitting = fitting.filter(|shape| fits(shape) && may(shape));
    let best = fitting.min_by_key(|shape| {
        let cost = shape.cost_per_hour_cents.unwrap_or(u32::MAX);
        (cost, shape.devices, shape.bytes_per_device, shape.shape)
    });
    best.map(|shape| shape.shape)
}

/// The failure that keeps this size from being requested now, of the size itself or of a smaller size of its kind, and the end of the
/// pause.
fn failure(pool: &Pool, shape: &NodeShape) -> Option<(ShapeId, Time)> {
    let demand = &pool.node_demand;
    let stops = |id: &ShapeId| {
        let smaller = demand.shapes().get(id);
        smaller
            .is_some_and(|smaller| smaller.kind == shape.kind && smaller.devices <= shape.devices)
    };
    let mut failed = demand.failed().iter();
    let found = failed.find(|(id, until)| **until > pool.now && stops(id));
    found.map(|(id, until)| (*id, *until))
}

/// The refusal, with the reasons why no node is requested for it.
pub(crate) fn explained(pool: &Pool, requirements: &Requirements, refusal: Refusal) -> Refusal {
    let demand = &pool.node_demand;
    let shapes = demand.shapes().values();
    let fitting = shapes.filter(|shape| holds(pool, requirements, shape));
    let (mut why, mut retry) = (Vec::new(), None);
    for shape in fitting.take(SIZES_EXPLAINED_MAX) {
        let failed = failure(pool, shape);
        let reason = match (node_limits::reached(pool, shape), failed) {
            (Some(limit), _) => limit.to_string(),
            (None, Some((id, _))) => demand.reason(id).to_owned(),
            (None, None) => continue,
        };
        retry = retry
            .into_iter()
            .chain(failed.map(|(_, until)| until))
            .min();
        why.push(format!("no node of size {}: {reason}", shape.name));
    }
    if why.is_empty() {
        return refusal;
    }
    Refusal::NoNode {
        refusal: Box::new(refusal),
        why: why.join("; "),
        retry: retry.map(|at| at.since(pool.now)),
    }
}

/// Returns true if an empty node of this kind could hold it.
fn could_use(pool: &Pool, requirements: &Requirements, node: NodeId) -> bool {
    let allowed = pool.models[&requirements.model].spec.allowed.as_ref();
    let fits = |id: &&DeviceId| {
        let device = &pool.devices[*id];
        let may = allowed.is_none_or(|allowed| allowed.contains(*id));
        may && requirements.bytes_on(device.kind) <= device.capacity()
    };
    let devices = pool.nodes.devices_of(node);
    devices.filter(fits).count() >= requirements.devices as usize
}

/// Returns true if an empty node of this size holds all of them. Places the largest first, each where it fits best.
fn hold_together(pool: &Pool, all: &[Requirements], shape: &NodeShape) -> bool {
    let mut free: Vec<Bytes> = (0..shape.devices).map(|_| shape.bytes_per_device).collect();
    let mut order: Vec<&Requirements> = all.iter().collect();
    order.sort_by_key(|requirements| {
        Reverse((
            requirements.devices,
            requirements.bytes_on(shape.kind),
            requirements.model,
        ))
    });
    for requirements in order {
        let bytes = requirements.bytes_on(shape.kind);
        free.sort();
        let first = free.partition_point(|device| *device < bytes);
        let last = first + requirements.devices as usize;
        if last > free.len() || !holds(pool, requirements, shape) {
            return false;
        }
        for device in &mut free[first..last] {
            *device = device.saturating_sub(bytes);
        }
    }
    true
}

fn holds(pool: &Pool, requirements: &Requirements, shape: &NodeShape) -> bool {
    let model = &pool.models[&requirements.model];
    // A new node has none of the devices that a model's file names.
    model.spec.allowed.is_none()
        && requirements.devices <= shape.devices
        && requirements.bytes_on(shape.kind) <= shape.bytes_per_device
}
