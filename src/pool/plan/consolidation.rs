//! Chooses a requested node whose models fit into cheaper places, and decides when its replicas close (S3). An empty node is given
//! back. Part of `plan::next`; changes nothing.
//!
//! Only replicas that have been ready for `cluster.scale_down_after` move, one node is emptied at a time, and each node is chosen at
//! most once in that time. A model therefore moves at most once per `scale_down_after`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::state::Pool;
use crate::plan::keep_hot::keep_hot_ends;
use crate::plan::moving::has_moved;
use crate::plan::node_use::is_idle;
use crate::plan::place::place;
use crate::types::decision::{Decision, Drain};
use crate::types::ids::{Bytes, DeviceId, NodeId, ReplicaId, Span, Time};
use crate::types::node::Node;
use crate::types::reason::StopReason;
use crate::types::replica::{Phase, Replica};
use crate::types::requirements::Requirements;

/// The cents per hour that a device counts where the configuration gives no cost.
const CENTS_PER_DEVICE: u64 = 100;

/// Starts to empty a node, or keeps the node that is being emptied.
pub(crate) fn next(pool: &Pool) -> Option<Decision> {
    if let Some((node, since)) = pool.consolidation.current() {
        let why = obstacle(pool, node, since)?;
        return Some(Decision::KeepNode { node, why });
    }
    if pool.consolidation.looks_at() > pool.now || !may_look(pool) {
        return None;
    }
    let node = dearest_first(pool)
        .into_iter()
        .find(|node| pays_off(pool, *node));
    Some(Decision::Consolidate { node })
}

/// The next time at which a decision here becomes due without an event.
pub(crate) fn wake(pool: &Pool) -> Option<Time> {
    match pool.consolidation.current() {
        Some((_, since)) => Some(since + pool.limits.node_scale_down_after),
        None if may_look(pool) => Some(pool.consolidation.looks_at()),
        None => None,
    }
}

/// A replica on the emptied node drains when its successor is ready.
pub(crate) fn leaves(pool: &Pool, id: ReplicaId) -> Option<Decision> {
    let replica = &pool.replicas[&id];
    let node = pool.node_of(replica);
    let leaves = matches!(replica.phase, Phase::Ready { .. }) && has_moved(pool, replica);
    leaves.then(|| {
        Decision::Drain(Drain {
            replica: id,
            deadline: Some(pool.now + pool.limits.unload_drain),
            reason: StopReason::Consolidated {
                node: pool.node_name(node),
            },
            only_if_idle: false,
            for_load: None,
        })
    })
}

/// Returns true if nodes may be emptied, a requested one holds something, and the pool is not about to end or to be emptied.
fn may_look(pool: &Pool) -> bool {
    let nodes = pool.nodes.all_known();
    let rests = pool.service.is_night() || pool.service.is_closing();
    pool.limits.node_consolidates
        && !rests
        && nodes.iter().any(|(id, node)| is_held(pool, *id, node))
}

fn is_held(pool: &Pool, id: NodeId, node: &Node) -> bool {
    node.demand.is_some() && node.is_joined() && !is_idle(pool, id)
}

fn dearest_first(pool: &Pool) -> Vec<NodeId> {
    let nodes = pool.nodes.all_known().iter();
    let held = nodes.filter(|(id, node)| is_held(pool, **id, node));
    let mut held: Vec<NodeId> = held.map(|(id, _)| *id).collect();
    held.sort_by_key(|id| (Reverse(rate(pool, *id)), *id));
    held
}

/// The cost of the node in cents per hour.
fn rate(pool: &Pool, node: NodeId) -> u64 {
    let shape = pool.nodes.known(node).and_then(|known| known.shape);
    let shape = shape.and_then(|shape| pool.node_demand.shapes().get(&shape));
    let configured = shape.and_then(|shape| shape.cost_per_hour_cents);
    let devices = pool.nodes.devices_of(node).count() as u64;
    configured.map_or(devices * CENTS_PER_DEVICE, u64::from)
}

/// Returns true if all models of the node have a cheaper place, and what is saved within `scale_down_after` exceeds the cost of
/// the node while they load.
fn pays_off(pool: &Pool, node: NodeId) -> bool {
    let within = pool.limits.node_scale_down_after;
    let chosen = pool.consolidation.chosen_at(node);
    let rested = chosen.is_none_or(|at| at + within <= pool.now);
    let waits = pool.demand_index.before_batches().next().is_some();
    let is_settled = !waits && pool.planned.is_empty();
    // An empty node of a lease of several would stay until the others are empty.
    let is_single = pool.nodes.leased_with(node).len() == 1;
    if !rested || !is_settled || !is_single || !stays(pool, node) {
        return false;
    }
    let devices = pool.nodes.devices_of(node);
    let on = devices.flat_map(|id| pool.devices[id].holders.iter().copied());
    let on: BTreeSet<ReplicaId> = on.collect();
    if !on.iter().all(|id| may_move(pool, *id)) {
        return false;
    }
    let models = on.iter().map(|id| pool.replicas[id].model);
    let loads = models.clone().map(|model| pool.comes_back_in(model));
    let takes = loads.fold(Span::ZERO, |all, one| all + one);
    let all = models.map(|model| Requirements::new(pool, model, pool.now));
    let Some(idle_rate) = rate_of_places(pool, node, all.collect()) else {
        return false;
    };
    let rate = rate(pool, node);
    let (left, saved) = (
        within.0.saturating_sub(takes.0),
        rate.saturating_sub(idle_rate),
    );
    left > 0 && saved > 0 && saved.saturating_mul(left) >= rate.saturating_mul(takes.0)
}

/// Returns true if the node neither ends soon nor drains.
fn stays(pool: &Pool, node: NodeId) -> bool {
    let until = pool.now + pool.limits.node_scale_down_after;
    let time = pool.nodes.time(node);
    let is_drained = pool.nodes.drain(&pool.node_name(node)).is_some();
    !is_drained && pool.away(node).is_none() && time.is_none_or(|time| time.moves > until)
}

/// Returns true if the model has no other replica, and this one is on a single node, has been ready for `scale_down_after` and would
/// stay for as long.
fn may_move(pool: &Pool, id: ReplicaId) -> bool {
    let within = pool.limits.node_scale_down_after;
    let Some(replica) = pool.replicas.get(&id) else {
        return false;
    };
    let model = &pool.models[&replica.model];
    let is_old = |since: &Time| *since + within <= pool.now;
    let is_only = model.replicas.len() == 1 && pool.scaled_to(replica.model) <= 1;
    let changes = model.removed || pool.is_outdated(id) || !model.queue.is_empty();
    let lasts = keep_hot_ends(pool, id).is_none_or(|at| at > pool.now + within);
    let fails = model.cooling_until.is_some() || pool.is_quarantined(model);
    let lacks = model.spec.absent || model.spec.no_program.is_some();
    let leaves = replica.leaves_with.is_some() || replica.leave_when_served.is_some();
    let ordered = pool.unfinished_load(replica.model).is_some();
    matches!(&replica.phase, Phase::Ready { since } if is_old(since))
        && is_only
        && replica.gang.is_none()
        && lasts
        && !(changes || fails || lacks || leaves || ordered)
}

/// The cost of the dearest idle node that has room for any of the models; 0 if all places are on nodes that stay anyway. `None` if a
/// model has no free place, or one on a node that ends soon.
fn rate_of_places(pool: &Pool, node: NodeId, mut all: Vec<Requirements>) -> Option<u64> {
    all.sort_by_key(|requirements| Reverse((requirements.devices, requirements.bytes)));
    let mut taken: BTreeMap<DeviceId, Bytes> = BTreeMap::new();
    let mut dearest = 0;
    for requirements in &all {
        let mut tightest: Option<Vec<(Bytes, DeviceId, Bytes)>> = None;
        for other in pool.nodes.with_devices().filter(|other| *other != node) {
            let Some(room) = room_on(pool, other, requirements, &taken) else {
                continue;
            };
            if !stays(pool, other) {
                return None;
            }
            let known = pool.nodes.known(other);
            if known.is_some_and(|known| known.demand.is_some()) && is_idle(pool, other) {
                dearest = dearest.max(rate(pool, other));
            }
            if tightest.as_ref().is_none_or(|tightest| room < *tightest) {
                tightest = Some(room);
            }
        }
        for (_, device, needs) in tightest? {
            let all = taken.entry(device).or_default();
            *all = *all + needs;
        }
    }
    Some(dearest)
}

/// The devices of a node that hold the model without an eviction: the memory left over, the device, and the memory needed.
fn room_on(
    pool: &Pool,
    node: NodeId,
    requirements: &Requirements,
    taken: &BTreeMap<DeviceId, Bytes>,
) -> Option<Vec<(Bytes, DeviceId, Bytes)>> {
    let fits = |id: &DeviceId| {
        let device = &pool.devices[id];
        let needs = requirements.needs_on(pool, *id).ok()?;
        let (later, overrun) = pool.free_and_overrun(device);
        let taken = taken.get(id).copied().unwrap_or_default();
        let free = later.min(device.free_now()).saturating_sub(taken);
        let has_room = free >= needs + overrun;
        has_room.then(|| (free.saturating_sub(needs), *id, needs))
    };
    let mut room: Vec<_> = pool.nodes.devices_of(node).filter_map(fits).collect();
    room.sort_unstable();
    let count = requirements.devices as usize;
    room.truncate(count);
    (room.len() == count).then_some(room)
}

/// The reason why the node is not emptied any longer.
fn obstacle(pool: &Pool, node: NodeId, since: Time) -> Option<String> {
    if pool.node_demand.is_releasing(node) {
        return None;
    }
    if !pool.nodes.known(node).is_some_and(Node::is_joined) {
        return Some("it does not respond".into());
    }
    if !pool.limits.node_consolidates {
        return Some("cluster.consolidate is false now".into());
    }
    let within = pool.limits.node_scale_down_after;
    if since + within <= pool.now {
        return Some(format!("its models have not moved within {within}"));
    }
    let is_on = |replica: &&Replica| pool.node_of(replica) == node;
    let on = pool.replicas.values().filter(is_on);
    let movers: BTreeSet<_> = on
        .filter(|replica| matches!(replica.phase, Phase::Ready { .. }))
        .map(|replica| replica.model)
        .collect();
    let is_free = |requirements: &Requirements| {
        let plan = place(pool, requirements);
        plan.refusal.is_none() && plan.victims.is_empty()
    };
    for &model in &movers {
        let known = &pool.models[&model];
        let comes = pool.staying(known) + known.planned.len() > 0;
        let fails =
            known.cooling_until.is_some_and(|until| until > pool.now) || pool.is_quarantined(known);
        let one = Requirements::new(pool, model, pool.now);
        if !comes && (fails || !is_free(&one)) {
            let name = &known.spec.name;
            return Some(format!("{name} has no other place any more"));
        }
    }
    let mut waiting = pool.demand_index.before_batches();
    let lacks = waiting.find(|(rank, pending)| {
        let requirements = &pending.requirements;
        !movers.contains(&rank.model) && !is_free(requirements)
    });
    lacks.map(|(rank, _)| format!("{} waits for memory", pool.name(rank.model)))
}
