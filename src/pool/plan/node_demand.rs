//! Decides when to request another node instead of evicting, and when to give one back (S2). Part of `plan::next`; changes nothing.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::state::Pool;
use crate::plan::node_choice::{self, Choice};
use crate::plan::node_fit::{hold_together, holds, moves_with, successor};
use crate::plan::node_use::{fits_now, is_idle, is_wanted};
use crate::plan::{batch_nodes, node_limits, node_set};
use crate::types::decision::{Decision, NodePlan, Plan};
use crate::types::ids::{DemandId, ModelId, NodeId, Time};
use crate::types::node_demand::{NodeShape, PendingNode};
use crate::types::rank::{Class, DemandRank};
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
    let has_shapes = !pool.node_demand.shapes().is_empty();
    if !has_shapes || requirements.forced_by.is_some() || fits_now(pool, plan) {
        return None;
    }
    if let Choice::Request(shape, nodes) = choice(pool, requirements) {
        let (model, priority) = (requirements.model, requirements.priority);
        return Some(Decision::RequestNodes {
            shape,
            model,
            priority,
            nodes,
            span: requirements.nodes,
            for_batches: false,
        });
    }
    if serving(pool, requirements).next().is_none()
        && let Some(demand) = in_the_way(pool, requirements)
    {
        return Some(Decision::CancelNode { demand });
    }
    // A node for batches is given back first (B8).
    if plan.refusal.is_some() && batch_nodes::are_in_the_way(pool, requirements) {
        let demands = vec![(*rank, plan.retry)];
        return Some(Decision::Block { demands });
    }
    let awaited = awaited(pool, requirements);
    let since = awaited.iter().map(|pending| pending.since).min()?;
    let until = since + pool.limits.node_patience;
    let changes = awaited.iter();
    let changes = changes.filter_map(|pending| node_choice::changes_at(pool, pending));
    let changes = changes.chain(plan.retry).min();
    let wait = |until: Option<Time>| {
        let retry = until.into_iter().chain(changes).min();
        let demands = vec![(*rank, retry)];
        Some(Decision::Block { demands })
    };
    if pool.now < until {
        return wait(Some(until));
    }
    // The node has taken longer than the patience. If eviction is not possible either, keep waiting for the node.
    if plan.refusal.is_some() {
        return wait(None);
    }
    None
}

/// The request that a load would make or wait for, for its plan: the size's name, its cost per hour in cents, and whether the
/// request is open already.
pub(crate) fn would_request(
    pool: &Pool,
    requirements: &Requirements,
    plan: &Plan,
) -> Option<NodePlan> {
    let demand = &pool.node_demand;
    if requirements.forced_by.is_some() || fits_now(pool, plan) {
        return None;
    }
    let (shape, nodes, is_open) = match choice(pool, requirements) {
        Choice::Request(shape, nodes) => (shape, nodes, false),
        Choice::Comes | Choice::Waits => {
            // After the patience the load evicts if it can.
            let awaited = awaited(pool, requirements);
            let since = awaited.iter().map(|pending| pending.since).min()?;
            if plan.refusal.is_none() && since + pool.limits.node_patience <= pool.now {
                return None;
            }
            let open = serving(pool, requirements).next();
            match open {
                Some(open) => (open.shape, open.set.map_or(1, |set| set.requests), true),
                None => {
                    let (shape, nodes) = node_set::after_others(pool, requirements)?;
                    (shape, nodes, false)
                }
            }
        }
        Choice::Nothing => return None,
    };
    let shape = demand.shapes().get(&shape)?;
    Some(NodePlan {
        shape: shape.name.clone(),
        nodes,
        devices: shape.devices,
        cost_per_hour_cents: shape.cost_per_hour_cents,
        is_open,
    })
}

fn choice(pool: &Pool, requirements: &Requirements) -> Choice {
    if requirements.nodes > 1 {
        return node_set::choose(pool, requirements);
    }
    match successor(pool, requirements) {
        chosen @ (Choice::Request(..) | Choice::Comes) => chosen,
        Choice::Waits | Choice::Nothing => {
            node_choice::choose(pool, |shape| holds(pool, requirements, shape))
        }
    }
}

/// The open requests that bring a node for it, or the nodes that it spans.
fn serving<'a>(
    pool: &'a Pool,
    requirements: &'a Requirements,
) -> impl Iterator<Item = &'a PendingNode> {
    let shapes = pool.node_demand.shapes();
    pool.node_demand.pending().filter(move |pending| {
        let shape = shapes.get(&pending.shape);
        match requirements.nodes {
            0 | 1 => {
                let is_single = pending.set.is_none();
                is_single && shape.is_some_and(|shape| holds(pool, requirements, shape))
            }
            _ => node_set::serves(pool, requirements, pending),
        }
    })
}

/// The open requests that it waits for: they bring its nodes, or belong to sets of other replicas, which come first.
pub(crate) fn awaited<'a>(pool: &'a Pool, requirements: &'a Requirements) -> Vec<&'a PendingNode> {
    let serving: Vec<&PendingNode> = serving(pool, requirements).collect();
    if serving.is_empty() {
        node_set::behind(pool, requirements)
    } else {
        serving
    }
}

/// The open request of the lowest priority whose cancellation would let this more important demand request a node. A limit
/// forbids both.
fn in_the_way(pool: &Pool, requirements: &Requirements) -> Option<DemandId> {
    if requirements.nodes > 1 {
        return node_set::in_the_way(pool, requirements);
    }
    let demand = &pool.node_demand;
    let has_joined = |pending: &PendingNode| {
        let mut all = demand.made_with(pending).into_iter();
        all.any(|one| {
            demand
                .request_of(one)
                .is_some_and(|one| one.joined.is_some())
        })
    };
    // Requests for batches are below all others (B8).
    let key = |pending: &PendingNode| (!pending.demand.is_for_batches(), pending.priority);
    let lower = demand
        .pending()
        .filter(|pending| key(pending) < (true, requirements.priority) && !has_joined(pending));
    let lowest = lower.min_by_key(|pending| (key(pending), Reverse(pending.demand)))?;
    let ends = demand.made_with(lowest);
    let shapes = demand.shapes().values();
    let mut fitting = shapes.filter(|shape| holds(pool, requirements, shape));
    let is_open = |shape: &NodeShape| {
        let mut single = demand.pending().filter(|pending| pending.set.is_none());
        single.any(|pending| pending.shape == shape.shape)
    };
    let without = |pending: &PendingNode| ends.contains(&pending.demand);
    let helps = |shape: &NodeShape| {
        !is_open(shape)
            && node_limits::reached(pool, shape, 1).is_some()
            && node_limits::reached_without(pool, shape, 1, without).is_none()
            && !node_choice::is_refused(pool, shape, 1)
    };
    fitting.any(helps).then_some(lowest.demand)
}

/// Returns true if a node for it is on its way or can be requested.
pub(crate) fn may_serve(pool: &Pool, requirements: &Requirements) -> bool {
    if requirements.forced_by.is_some() {
        return false;
    }
    let chosen = match requirements.nodes {
        0 | 1 => node_choice::choose(pool, |shape| holds(pool, requirements, shape)),
        _ => node_set::choose(pool, requirements),
    };
    chosen != Choice::Nothing
}

/// Returns true if the number of nodes that are requested for it depends on the nodes with room.
pub(crate) fn counts_nodes(pool: &Pool, requirements: &Requirements) -> bool {
    requirements.nodes > 1 && !pool.node_demand.shapes().is_empty()
}

/// The time at which a node size that failed, and that the demand could use, may be requested again.
pub(crate) fn retry(pool: &Pool, requirements: &Requirements) -> Option<Time> {
    let failed = pool.node_demand.failed().iter();
    let usable = failed.filter(|((id, _), _)| {
        let shape = pool.node_demand.shapes().get(id);
        shape.is_some_and(|shape| holds(pool, requirements, shape))
    });
    let at = usable.map(|(_, at)| *at);
    at.filter(|at| *at > pool.now).min()
}

/// Gives up a request that does not start, before demands are decided that could use its node.
pub(crate) fn give_up(pool: &Pool) -> Option<Decision> {
    let mut open = pool.node_demand.pending();
    let Some(in_vain) = open.find(|pending| node_choice::is_in_vain(pool, pending)) else {
        return node_set::give_up(pool);
    };
    let demand = in_vain.demand;
    let why = format!("it cannot start: {}", in_vain.reason);
    Some(Decision::GiveUpNode { demand, why })
}

/// Cancels requests that no demand needs. Gives idle nodes back.
pub(crate) fn next(pool: &Pool) -> Option<Decision> {
    let demand = &pool.node_demand;
    let mut open = demand.pending().filter(|pending| pending.joined.is_none());
    if let Some(surplus) = open.find(|pending| !is_needed(pool, pending)) {
        let demand = surplus.demand;
        return Some(Decision::CancelNode { demand });
    }
    let due = |node: NodeId, since: Time| {
        let left = demand.is_left_since(node);
        let is_night = pool.service.is_night() && !batch_nodes::has_work(pool, node);
        let spent = is_night
            || pool.nodes.moves(node)
            || pool.batches.left_for(node).is_some()
            || left.is_some_and(|since| since + pool.limits.node_patience <= pool.now)
            || since + pool.limits.node_scale_down_after <= pool.now;
        let gathers = demand.set_of(node).is_some();
        spent && !gathers && is_idle(pool, node)
    };
    // A node that was ordered to end does so on its own.
    let ends = |node: NodeId| {
        let time = pool.nodes.time(node);
        demand.is_releasing(node) || time.is_some_and(|time| time.leaves.is_some())
    };
    let is_spent = |node: NodeId| {
        let known = demand.idle().get(&node).copied();
        // A node for batches may have become idle in this step.
        let since = known.or_else(|| pool.batches.left_for(node).map(|_| pool.now));
        since.is_some_and(|since| due(node, since)) && !is_wanted(pool, node)
    };
    // The cluster takes back all nodes of a lease together.
    let may_go = |node: NodeId| {
        let mut others = pool.nodes.leased_with(node).into_iter();
        is_spent(node) && others.all(|other| other == node || ends(other) || is_spent(other))
    };
    let left = pool.batches.left().map(|(node, _)| node);
    let mut idle = demand.idle().keys().copied().chain(left);
    let node = idle.find(|node| !ends(*node) && may_go(*node))?;
    Some(Decision::ReleaseNode { node })
}

/// The next time at which a decision here becomes due without an event.
pub(crate) fn wake(pool: &Pool) -> Option<Time> {
    let demand = &pool.node_demand;
    let waits = demand.idle().iter();
    let waits = waits.filter(|(node, _)| !demand.is_releasing(**node));
    let idle = waits.map(|(_, since)| *since + pool.limits.node_scale_down_after);
    let joined = demand.pending().filter_map(|pending| pending.joined);
    let joined = joined.map(|(_, at)| at + pool.limits.node_devices_within);
    let changes = demand.pending();
    let changes = changes.filter_map(|pending| node_choice::changes_at(pool, pending));
    let failed = demand.failed().values().copied();
    idle.chain(joined)
        .chain(changes)
        .chain(failed)
        .chain(node_set::changes(pool))
        .filter(|at| *at > pool.now)
        .min()
}

/// Returns true if a demand needs the node of this request: no other request that is more certain brings a node for all of them.
fn is_needed(pool: &Pool, pending: &PendingNode) -> bool {
    if let Some(set) = pending.set {
        return node_set::is_needed(pool, set);
    }
    let demand = &pool.node_demand;
    // A model may have several demands, for different numbers of devices.
    let is_for_batches = pending.demand.is_for_batches() && batch_nodes::are_allowed(pool);
    let users_of = |shape: &NodeShape| {
        let all = pool.demand_index.all().iter();
        let all = all.filter(|(rank, _)| is_for_batches || rank.class != Class::Batch);
        let all = all.map(|(_, pending)| &pending.requirements);
        let users = all.filter(|one| one.nodes < 2 && holds(pool, one, shape));
        users.collect::<Vec<_>>()
    };
    // A single node serves all demands of a model: it holds the largest.
    let models_of = |shape: &NodeShape| {
        let mut largest: BTreeMap<ModelId, &Requirements> = BTreeMap::new();
        let size = |one: &Requirements| (one.devices, one.bytes_on(shape.kind));
        for user in users_of(shape) {
            let known = largest.entry(user.model).or_insert(user);
            if size(user) > size(known) {
                *known = user;
            }
        }
        largest.into_values()
    };
    let Some(shape) = demand.shapes().get(&pending.shape) else {
        return false;
    };
    let users = users_of(shape);
    if pool.service.is_closing() || users.is_empty() {
        return false;
    }
    let own = node_choice::certainty(pool, pending);
    let replaces = |other: &PendingNode| {
        let is_better = node_choice::certainty(pool, other)
            .is_some_and(|certainty| own.is_none_or(|own| certainty < own));
        let shape = demand.shapes().get(&other.shape);
        is_better
            && other.demand != pending.demand
            && other.set.is_none()
            && shape.is_some_and(|shape| {
                let serves = |user: &&Requirements| {
                    holds(pool, user, shape) && hold_together(pool, &moves_with(pool, user), shape)
                };
                users.iter().all(serves) && hold_together(pool, models_of(shape), shape)
            })
    };
    !demand.pending().any(replaces)
}

/// The refusal, with the reasons why no node is requested for it.
pub(crate) fn explained(pool: &Pool, requirements: &Requirements, refusal: Refusal) -> Refusal {
    let shapes = pool.node_demand.shapes().values();
    let fitting = shapes.filter(|shape| holds(pool, requirements, shape));
    let (mut why, mut retry) = (Vec::new(), None);
    for shape in fitting.take(SIZES_EXPLAINED_MAX) {
        let wanted = match requirements.nodes {
            0 | 1 => 1,
            _ => node_set::missing(pool, requirements, shape),
        };
        let unavailable = match requirements.nodes {
            0 | 1 => node_choice::unavailable(pool, shape, 1),
            _ => node_set::unavailable(pool, requirements, shape),
        };
        let Some((reason, until)) = unavailable else {
            continue;
        };
        retry = retry.into_iter().chain(until).min();
        let what = match wanted {
            1 => String::from("no node"),
            _ => format!("no {wanted} nodes"),
        };
        why.push(format!("{what} of size {}: {reason}", shape.name));
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
