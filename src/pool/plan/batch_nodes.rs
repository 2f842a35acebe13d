//! Decides about nodes for batches (B8): when to request one, within the limits of the configuration, and when it is given back. Part
//! of `plan::next`; changes nothing.
//!
//! ```text
//!  fits nowhere ──▶ requested ── joins ──▶ in use ── work or budget ends, or its place is needed ──▶ left ── empty ──▶ released
//!                       └─ the same ──▶ cancelled
//! ```

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::facts::demand_index::PendingReplica;
use crate::facts::state::Pool;
use crate::plan::node_choice;
use crate::plan::node_fit::holds;
use crate::plan::node_use::{could_use, is_idle, is_wanted};
use crate::plan::place::place;
use crate::plan::{node_limits, node_set};
use crate::types::decision::{Decision, Drain};
use crate::types::ids::{ModelId, NodeId, ReplicaId};
use crate::types::node::Node;
use crate::types::node_demand::NodeShape;
use crate::types::rank::Class;
use crate::types::reason::StopReason;
use crate::types::replica::Phase;
use crate::types::requirements::Requirements;

pub(crate) fn next(pool: &Pool) -> Option<Decision> {
    ends(pool)
        .or_else(|| replica_leaves(pool))
        .or_else(|| request(pool))
}

/// Returns true if nodes for batches are configured and their budget is not used up.
pub(crate) fn are_allowed(pool: &Pool) -> bool {
    disallowed(pool).is_none()
}

/// The reason why batches may have no node at present, if they may not.
fn disallowed(pool: &Pool) -> Option<String> {
    match &pool.limits.batch_nodes {
        None => Some("batch.nodes is not set".to_owned()),
        Some(limits) => {
            let used_up = node_limits::used_up_by_batches(pool, limits)?;
            Some(used_up.to_string())
        }
    }
}

/// The request of a node for the first batches that fit nowhere.
fn request(pool: &Pool) -> Option<Decision> {
    let limits = pool.limits.batch_nodes?;
    let is_ready = !pool.batches.is_empty()
        && !pool.node_demand.shapes().is_empty()
        && !pool.service.is_closing()
        && !pool.batch_loads_wait()
        && pool.nodes_return_by().is_none();
    if !is_ready || node_limits::reached_for_batches(pool, &limits).is_some() {
        return None;
    }
    let all = pool.demand_index.all().iter();
    let mut waiting = all.filter(|(rank, pending)| rank.class == Class::Batch && waits(pending));
    waiting.find_map(|(rank, pending)| {
        let requirements = &pending.requirements;
        let (model, priority) = (rank.model, requirements.priority);
        let shape = choose(pool, requirements)?.shape;
        place(pool, requirements)
            .refusal
            .is_some()
            .then_some(Decision::RequestNodes {
                shape,
                model,
                priority,
                nodes: 1,
                span: 1,
                for_batches: true,
            })
    })
}

/// Returns true if the demand found no place when it was examined last.
fn waits(pending: &PendingReplica) -> bool {
    pending.blocked.is_some_and(|blocked| !blocked.postponed)
}

/// The size of node to request for the batches of a model: the cheapest that may be requested.
fn choose<'a>(pool: &'a Pool, requirements: &Requirements) -> Option<&'a NodeShape> {
    let model = &pool.models[&requirements.model];
    // A replica that spans several nodes gets none for batches.
    let is_single = requirements.nodes < 2;
    if !is_single || model.fetch.is_some() || pool.is_held_away(requirements.model) {
        return None;
    }
    let fitting = fitting(pool, requirements);
    let mut nodes = pool.nodes.with_devices();
    let is_there = |node: NodeId| {
        let is_free = is_idle(pool, node) && pool.away(node).is_none();
        is_free && could_use(pool, requirements, node)
    };
    if fitting.iter().any(|shape| is_open(pool, shape)) || nodes.any(is_there) {
        return None;
    }
    // A demand that goes before batches requests the node itself.
    let is_wanted = |shape: &NodeShape| {
        let mut others = pool.demand_index.before_batches();
        others.any(|(_, other)| holds(pool, &other.requirements, shape))
    };
    let mut fitting = fitting.into_iter();
    fitting.find(|shape| node_choice::unavailable(pool, shape, 1).is_none() && !is_wanted(shape))
}

/// The sizes that hold it, the cheapest first.
fn fitting<'a>(pool: &'a Pool, requirements: &Requirements) -> Vec<&'a NodeShape> {
    let shapes = pool.node_demand.shapes().values();
    let fitting = shapes.filter(|shape| holds(pool, requirements, shape));
    let mut fitting: Vec<&NodeShape> = fitting.collect();
    fitting.sort_by_key(|shape| node_choice::cost(shape));
    fitting
}

/// Returns true if a request for a node of this size is open.
fn is_open(pool: &Pool, shape: &NodeShape) -> bool {
    let mut open = pool.node_demand.pending();
    open.any(|pending| pending.shape == shape.shape)
}

/// The reason why no node is requested for the batches of a model that fit nowhere. `None` if they have a place or a request.
pub(crate) fn obstacle(pool: &Pool, model: ModelId) -> Option<String> {
    let limits = pool.limits.batch_nodes?;
    let mut waiting = pool.demand_index.of_model(model);
    let (_, pending) = waiting.find(|(rank, _)| rank.class == Class::Batch)?;
    let fitting = fitting(pool, &pending.requirements);
    let may_come = waits(pending) && pending.requirements.nodes < 2;
    let cheapest = fitting.first()?;
    if !may_come || fitting.iter().any(|shape| is_open(pool, shape)) {
        return None;
    }
    if let Some(limit) = node_limits::reached_for_batches(pool, &limits) {
        return Some(format!("no node is requested: {limit}"));
    }
    let may_be_requested = |shape: &&NodeShape| node_choice::unavailable(pool, shape, 1).is_none();
    if fitting.iter().any(may_be_requested) {
        return None;
    }
    let (why, _) = node_choice::unavailable(pool, cheapest, 1)?;
    let size = &cheapest.name;
    Some(format!("no node of size {size} is requested: {why}"))
}

/// The first node for batches that is given back although replicas may be on it: nothing but batches uses it.
fn ends(pool: &Pool) -> Option<Decision> {
    let nodes = pool.nodes.with_devices();
    let mut nodes = nodes
        .filter(|node| serves_only_batches(pool, *node))
        .peekable();
    nodes.peek()?;
    let disallowed = disallowed(pool);
    let yields = yields(pool);
    nodes.find_map(|node| {
        let has_ended = pool.batches.is_listed() && !has_work(pool, node);
        let why = match &disallowed {
            Some(why) => why.clone(),
            None if has_ended && !is_wanted(pool, node) => "its batches have ended".to_owned(),
            None if yields => "another load needs a node within the limits".to_owned(),
            None => return None,
        };
        Some(Decision::LeaveNode { node, why })
    })
}

/// Returns true if the node was requested for batches, is complete, and nothing else uses it.
fn serves_only_batches(pool: &Pool, node: NodeId) -> bool {
    let is_joined = pool.nodes.known(node).is_some_and(Node::is_joined);
    if !is_joined || !pool.nodes.is_for_batches(node) || pool.away(node).is_some() {
        return false;
    }
    // Its request ends once all of its devices are known.
    let mut open = pool.node_demand.pending();
    let gathers = open.any(|pending| pending.joined.is_some_and(|(joined, _)| joined == node));
    let devices = pool.nodes.devices_of(node);
    let mut holders = devices.flat_map(|id| pool.devices[id].holders.iter());
    let is_for_batches = |id: &ReplicaId| match (pool.planned.get(id), pool.replicas.get(id)) {
        (Some(planned), _) => pool.loads_only_for_batches(planned),
        (None, Some(replica)) => {
            replica.is_leaving() || pool.serves_only_batches(replica, &pool.models[&replica.model])
        }
        (None, None) => true,
    };
    !gathers && holders.all(is_for_batches)
}

/// Returns true if batches of a model use the node, which was requested for batches, or could be loaded there.
pub(crate) fn has_work(pool: &Pool, node: NodeId) -> bool {
    let is_there = |model: ModelId| {
        let Some(known) = pool.models.get(&model) else {
            return false;
        };
        let replicas = known.replicas.iter().map(|id| &pool.replicas[id]);
        let mut live = replicas.filter(|replica| replica.is_live());
        if live.any(|replica| pool.is_on(replica, node)) {
            return true;
        }
        let may_load = !known.removed && !pool.is_quarantined(known) && pool.live(known) == 0;
        let requirements = pool.batch_requirements(model).filter(|_| may_load);
        requirements.is_some_and(|one| one.nodes < 2 && could_use(pool, &one, node))
    };
    pool.nodes.is_for_batches(node) && pool.batches.models().any(is_there)
}

/// Returns true if a node for batches has to make place for a waiting demand. They leave one after another.
fn yields(pool: &Pool) -> bool {
    let mut nodes = pool.nodes.with_devices();
    let mut waiting = pool.demand_index.before_batches();
    !nodes.any(|node| is_going(pool, node))
        && waiting.any(|(_, other)| waits(other) && are_in_the_way(pool, &other.requirements))
}

/// Returns true if the node was requested for batches and is given back.
fn is_going(pool: &Pool, node: NodeId) -> bool {
    let is_left = pool.node_demand.is_releasing(node) || pool.batches.left_for(node).is_some();
    is_left && pool.nodes.is_for_batches(node)
}

/// Returns true if a node could be requested for it, were it not for nodes that nothing but batches uses.
pub(crate) fn are_in_the_way(pool: &Pool, requirements: &Requirements) -> bool {
    let fitting = fitting(pool, requirements);
    let is_in_the_way = |shape: &&NodeShape| {
        let wanted = match requirements.nodes {
            0 | 1 => 1,
            _ => node_set::missing(pool, requirements, shape),
        };
        let makes_place = |node: NodeId| is_going(pool, node) || serves_only_batches(pool, node);
        node_limits::reached_by_batches(pool, shape, wanted, makes_place)
            && !node_choice::is_refused(pool, shape, wanted)
    };
    let has_request = fitting.iter().any(|shape| is_open(pool, shape));
    requirements.forced_by.is_none() && !has_request && fitting.iter().any(is_in_the_way)
}

/// The first replica on a node that is given back for the reasons above.
fn replica_leaves(pool: &Pool) -> Option<Decision> {
    pool.batches.left().find_map(|(node, why)| {
        let devices = pool.nodes.devices_of(node);
        let mut holders = devices.flat_map(|id| pool.devices[id].holders.iter().copied());
        holders.find_map(|id| leaves(pool, id, node, why))
    })
}

fn leaves(pool: &Pool, id: ReplicaId, node: NodeId, why: &str) -> Option<Decision> {
    let replica = pool.replicas.get(&id)?;
    if pool.is_silent(replica) {
        return None;
    }
    let reason = StopReason::BatchNode {
        node: pool.node_name(node),
        why: why.to_owned(),
    };
    match replica.phase {
        Phase::Ready { .. } => Some(Decision::Drain(Drain {
            replica: id,
            deadline: Some(pool.now + pool.limits.unload_drain),
            reason,
            only_if_idle: false,
            for_load: None,
        })),
        Phase::Launching { .. } | Phase::Asleep { .. } => Some(Decision::Stop {
            replica: id,
            reason,
        }),
        Phase::Draining { .. } | Phase::Parking { .. } | Phase::Stopping { .. } => None,
    }
}
