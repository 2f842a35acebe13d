//! Chooses the nodes to request together for a replica that spans several nodes (S2, M8): nodes of one size, all or nothing. Nodes
//! that exist and are alike count. Changes nothing.
//!
//! Two replicas never each hold a part of the nodes they need: sets for different replicas are open one after another, in the order
//! of their demands. Sets of several sizes may be open for one replica; once a node of a set has its machine, the others are
//! withdrawn.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::state::Pool;
use crate::plan::node_choice::{self, Choice, Cost};
use crate::plan::node_fit::holds;
use crate::plan::{gang, group, node_limits};
use crate::types::decision::Decision;
use crate::types::gang::GangReach;
use crate::types::ids::{DemandId, DeviceId, KindId, NodeId, ShapeId, Time};
use crate::types::node::Node;
use crate::types::node_demand::{NodeSet, NodeShape, PendingNode};
use crate::types::obstacle::OldNode;
use crate::types::requirements::Requirements;

/// The open requests of a set.
struct OpenSet<'a> {
    set: NodeSet,
    requests: Vec<&'a PendingNode>,
}

impl OpenSet<'_> {
    fn shape(&self) -> ShapeId {
        self.requests[0].shape
    }

    /// Returns true if its nodes are enough for the replica.
    fn serves(&self, pool: &Pool, requirements: &Requirements) -> bool {
        let shape = pool.node_demand.shapes().get(&self.shape());
        requirements.nodes > 1
            && self.set.nodes >= requirements.nodes
            && shape.is_some_and(|shape| holds(pool, requirements, shape))
    }

    /// Returns true if it was requested for another model, or does not serve the replica.
    fn is_of_another(&self, pool: &Pool, requirements: &Requirements) -> bool {
        self.requests[0].model != requirements.model || !self.serves(pool, requirements)
    }

    fn has_machine(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|pending| node_choice::has_machine(pending))
    }

    fn last_join(&self) -> Option<Time> {
        let joined = self.requests.iter().filter_map(|pending| pending.joined);
        joined.map(|(_, at)| at).max()
    }

    /// The order in which open sets win; `None` if it is not certain enough to replace another.
    fn certainty(&self, pool: &Pool) -> Option<(u8, Cost, DemandId)> {
        let mut missing = self.requests.iter();
        let class = if self.last_join().is_some() {
            0
        } else if self.has_machine() {
            1
        } else if missing.all(|pending| node_choice::starts_soon(pool, pending)) {
            2
        } else {
            return None;
        };
        let shape = pool.node_demand.shapes().get(&self.shape())?;
        Some((class, node_choice::cost(shape), self.set.id))
    }
}

fn open_sets(pool: &Pool) -> Vec<OpenSet<'_>> {
    let mut all: BTreeMap<DemandId, OpenSet> = BTreeMap::new();
    for pending in pool.node_demand.pending() {
        let Some(set) = pending.set else {
            continue;
        };
        let requests = Vec::new();
        let open = all.entry(set.id).or_insert(OpenSet { set, requests });
        open.requests.push(pending);
    }
    all.into_values().collect()
}

/// The sizes of which each node holds a part, the cheapest first.
fn fitting<'a>(pool: &'a Pool, requirements: &Requirements) -> Vec<&'a NodeShape> {
    let shapes = pool.node_demand.shapes().values();
    let mut fitting: Vec<&NodeShape> = shapes
        .filter(|shape| holds(pool, requirements, shape))
        .collect();
    fitting.sort_by_key(|shape| node_choice::cost(shape));
    fitting
}

/// The nodes to request for the replica, all of them or none.
pub(crate) fn choose(pool: &Pool, requirements: &Requirements) -> Choice {
    let sets = open_sets(pool);
    if sets.iter().any(|set| set.certainty(pool).is_some()) {
        return Choice::Comes;
    }
    let is_behind = sets.iter().any(|set| set.is_of_another(pool, requirements));
    let mut waits = is_behind;
    for shape in fitting(pool, requirements) {
        let open = sets.iter().find(|set| set.shape() == shape.shape);
        let is_promising = |pending: &&PendingNode| node_choice::is_promising(pool, pending);
        match open {
            Some(set) if set.requests.iter().all(is_promising) => return Choice::Comes,
            Some(_) => waits = true,
            None if is_behind || unavailable(pool, requirements, shape).is_some() => {}
            None => return Choice::Request(shape.shape, missing(pool, requirements, shape)),
        }
    }
    if waits {
        Choice::Waits
    } else {
        Choice::Nothing
    }
}

/// Returns true if the request belongs to a set whose nodes are enough for the replica.
pub(crate) fn serves(pool: &Pool, requirements: &Requirements, pending: &PendingNode) -> bool {
    let set = pending.set.map(|set| OpenSet {
        set,
        requests: vec![pending],
    });
    set.is_some_and(|set| set.serves(pool, requirements))
}

/// The number of nodes of this size that the replica lacks. Nodes with room count if they are alike to a node of this size.
pub(crate) fn missing(pool: &Pool, requirements: &Requirements, shape: &NodeShape) -> u32 {
    let part = requirements.of_one_node();
    let is_of_size = |devices: &&BTreeSet<DeviceId>| {
        let known = node_of(pool, devices).and_then(|node| pool.nodes.known(node));
        // The size of a node from before a restart may not be known yet.
        known.is_some_and(|node| match node.shape {
            Some(of) => of == shape.shape,
            None => node.demand.is_some() && devices.len() == shape.devices as usize,
        })
    };
    let has_room = |devices: &&&BTreeSet<DeviceId>| group::has_room_on(pool, &part, devices);
    let alike = gang::alike(pool, 1).into_values();
    let alike = alike.filter(|nodes| nodes.iter().any(is_of_size));
    let present = alike
        .map(|nodes| nodes.iter().filter(has_room).count())
        .max();
    let present = u32::try_from(present.unwrap_or_default()).unwrap_or(u32::MAX);
    requirements.nodes.saturating_sub(present).max(1)
}

fn node_of(pool: &Pool, devices: &BTreeSet<DeviceId>) -> Option<NodeId> {
    devices.first().map(|device| pool.devices[device].node)
}

/// The reason why the nodes that the replica lacks are not requested now, and the time after which they may be if that depends on
/// time alone.
pub(crate) fn unavailable(
    pool: &Pool,
    requirements: &Requirements,
    shape: &NodeShape,
) -> Option<(String, Option<Time>)> {
    if let Some(why) = unlike(pool, shape) {
        return Some((why, None));
    }
    node_choice::unavailable(pool, shape, missing(pool, requirements, shape))
}

/// The reason why nodes of this size hold no replica together, as the nodes that have joined show.
fn unlike(pool: &Pool, shape: &NodeShape) -> Option<String> {
    let nodes = pool.nodes.all_known().iter();
    let of_size = nodes.filter(|(_, node)| node.shape == Some(shape.shape) && node.is_joined());
    let mut first: Option<(&Node, Vec<KindId>)> = None;
    for (id, node) in of_size {
        if let GangReach::Alone { version } = &node.reach {
            let (node, version) = (node.name.clone(), version.clone());
            return Some(OldNode { node, version }.to_string());
        }
        let mut kinds: Vec<KindId> = pool
            .nodes
            .devices_of(*id)
            .map(|device| pool.devices[device].kind)
            .collect();
        kinds.sort();
        kinds.dedup();
        match &first {
            _ if kinds.is_empty() => {}
            None => first = Some((node, kinds)),
            Some((other, of_other)) if other.reach != node.reach || *of_other != kinds => {
                return Some(format!(
                    "its nodes {} and {} are not alike, or do not reach each other (M8)",
                    other.name, node.name
                ));
            }
            Some(_) => {}
        }
    }
    None
}

/// The open requests of sets for other replicas, after which the nodes for this one are requested.
pub(crate) fn behind<'a>(pool: &'a Pool, requirements: &Requirements) -> Vec<&'a PendingNode> {
    if requirements.nodes < 2 || fitting(pool, requirements).is_empty() {
        return Vec::new();
    }
    let open = pool.node_demand.pending();
    open.filter(|pending| pending.set.is_some()).collect()
}

/// The cheapest size of which nodes would be requested for it after the open sets, and their number.
pub(crate) fn after_others(pool: &Pool, requirements: &Requirements) -> Option<(ShapeId, u32)> {
    let fitting = fitting(pool, requirements);
    let shape = fitting.first()?;
    Some((shape.shape, missing(pool, requirements, shape)))
}

/// The request of the lowest priority that keeps this more important replica from its nodes, because of a limit or because its set
/// is open. Requests whose nodes have joined stay, with their sets.
pub(crate) fn in_the_way(pool: &Pool, requirements: &Requirements) -> Option<DemandId> {
    let sets = open_sets(pool);
    let has_joined = |pending: &PendingNode| match pending.set {
        Some(set) => pool
            .node_demand
            .members(set.id)
            .any(|one| one.joined.is_some()),
        None => pending.joined.is_some(),
    };
    // Requests for batches are below all others (B8).
    let is_below = |pending: &PendingNode| {
        pending.priority < requirements.priority || pending.demand.is_for_batches()
    };
    let yields = |pending: &PendingNode| is_below(pending) && !has_joined(pending);
    if sets.iter().any(|set| !yields(set.requests[0])) {
        return None;
    }
    let lowest = |of_sets: bool| {
        let open = pool.node_demand.pending();
        let yielding =
            open.filter(|pending| yields(pending) && (pending.set.is_some() || !of_sets));
        yielding.min_by_key(|pending| {
            let for_batches = pending.demand.is_for_batches();
            (!for_batches, pending.priority, Reverse(pending.demand))
        })
    };
    let may_come = |shape: &&&NodeShape| {
        let wanted = missing(pool, requirements, shape);
        unlike(pool, shape).is_none()
            && !node_choice::is_refused(pool, shape, wanted)
            && node_limits::reached_without(pool, shape, wanted, yields).is_none()
    };
    let fitting = fitting(pool, requirements);
    let shape = fitting.iter().find(may_come)?;
    let is_limited =
        node_limits::reached(pool, shape, missing(pool, requirements, shape)).is_some();
    lowest(!is_limited).map(|pending| pending.demand)
}

/// Returns true if a replica needs the set: no other set is certain to come first.
pub(crate) fn is_needed(pool: &Pool, set: NodeSet) -> bool {
    let waiting = pool.demand_index.before_batches();
    let waiting = waiting.map(|(_, pending)| &pending.requirements);
    let users = |open: &OpenSet| {
        let served = waiting.clone().filter(|one| open.serves(pool, one));
        served.collect::<Vec<_>>()
    };
    let sets = open_sets(pool);
    let Some(own) = sets.iter().find(|open| open.set.id == set.id) else {
        return false;
    };
    let of_own = users(own);
    if pool.service.is_closing() || of_own.is_empty() {
        return false;
    }
    let certainty = own.certainty(pool);
    let replaces = |other: &OpenSet| {
        let is_better = other
            .certainty(pool)
            .is_some_and(|better| certainty.is_none_or(|own| better < own));
        let serves_all = || of_own.iter().all(|user| other.serves(pool, user));
        other.set.id != set.id
            && is_better
            && !users(other).is_empty()
            && (other.has_machine() || serves_all())
    };
    !sets.iter().any(replaces)
}

/// Ends a set of which a request has failed, and a set whose other nodes do not come within the patience after the last one.
pub(crate) fn give_up(pool: &Pool) -> Option<Decision> {
    for open in open_sets(pool) {
        if open.requests.len() < open.set.requests as usize {
            let demand = open.requests[0].demand;
            return Some(Decision::CancelNode { demand });
        }
        let patience = pool.limits.node_patience;
        let Some(late) = late_at(pool, &open).filter(|at| *at <= pool.now) else {
            continue;
        };
        let mut requests = open.requests.iter();
        if let Some(missing) = requests.find(|pending| is_missing(pool, pending)) {
            let here = open.requests.iter().filter(|one| !is_missing(pool, one));
            let why = format!(
                "{} of the {} nodes requested together are here, and the others are not {} after the last one",
                here.count(),
                open.set.requests,
                patience + pool.now.since(late)
            );
            let demand = missing.demand;
            return Some(Decision::GiveUpNode { demand, why });
        }
    }
    None
}

/// The time from which the nodes that have joined no longer wait for the others.
fn late_at(pool: &Pool, open: &OpenSet) -> Option<Time> {
    Some(open.last_join()? + pool.limits.node_patience)
}

/// Returns true if its node has neither a machine nor joined, or does not respond.
fn is_missing(pool: &Pool, pending: &PendingNode) -> bool {
    match pending.joined {
        Some((node, _)) => !pool.nodes.known(node).is_some_and(Node::is_joined),
        None => !node_choice::has_machine(pending),
    }
}

/// The times at which a set is given up, and a node that is left of one is given back.
pub(crate) fn changes(pool: &Pool) -> Vec<Time> {
    let sets = open_sets(pool);
    let late = sets.iter().filter_map(|open| late_at(pool, open));
    let idle = pool.node_demand.idle().keys();
    let left = idle.filter_map(|node| pool.node_demand.is_left_since(*node));
    let left = left.map(|since| since + pool.limits.node_patience);
    late.chain(left).collect()
}

/// Returns true if the replica could use an idle node together with others: they are there, or come with a set.
pub(crate) fn could_use(pool: &Pool, requirements: &Requirements, node: NodeId) -> bool {
    let shape = pool.nodes.known(node).and_then(|known| known.shape);
    let mut open = pool.node_demand.pending();
    if open.any(|pending| Some(pending.shape) == shape && serves(pool, requirements, pending)) {
        return true;
    }
    let mut alike = gang::alike(pool, requirements.nodes).into_values();
    let with_it = alike.find(|nodes| {
        let mut nodes = nodes.iter();
        nodes.any(|devices| node_of(pool, devices) == Some(node))
    });
    let enough = requirements.devices_per_node() as usize;
    let serves_it = |device: &&DeviceId| requirements.needs_on(pool, **device).is_ok();
    let fits = |devices: &&&BTreeSet<DeviceId>| devices.iter().filter(serves_it).count() >= enough;
    with_it.is_some_and(|nodes| nodes.iter().filter(fits).count() >= requirements.nodes as usize)
}
