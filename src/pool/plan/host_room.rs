//! The host memory of loads that keep a part of their model there (M3): the memory that a node's host has left for them, and the
//! replicas that leave for it. A load is placed by its devices; this file adds victims where the host lacks memory, and bars the nodes
//! whose host cannot get enough. Part of `plan`; changes nothing.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::cheapest::{Domain, cheapest};
use crate::plan::claim::Claim;
use crate::plan::victims;
use crate::types::choice::Evictable;
use crate::types::decision::Plan;
use crate::types::ids::{Bytes, DeviceId, NodeId, ReplicaId, Span};
use crate::types::replica::{Planned, Replica};
use crate::types::share::Share;

/// Stands for the host among the devices of a search for victims.
const HOST: DeviceId = DeviceId(u32::MAX);
/// The usual time between readings of a host.
pub(crate) const HOST_READ_EVERY: Span = Span::from_secs(1);

/// The host memory that the claim lacks on a node even if every replica leaves that may. `None` if there is enough.
pub(crate) fn lacks(pool: &Pool, claim: &Claim, node: NodeId) -> Option<Bytes> {
    let needs = needs(pool, claim.model, node)?;
    let soon = soon(pool, node, None);
    if soon >= needs {
        return None;
    }
    let others = evictable(pool, claim, node, &BTreeSet::new());
    let freed: Bytes = others.iter().map(|victim| victim.shares[0].bytes).sum();
    let lacks = needs.saturating_sub(soon + freed);
    (lacks > Bytes::ZERO).then_some(lacks)
}

/// The memory of an empty host, if the model never fits there.
pub(crate) fn never(pool: &Pool, model: &Model, node: &BTreeSet<DeviceId>) -> Option<Bytes> {
    let node = pool.devices[node.first()?].node;
    let needs = needs(pool, model, node)?;
    let host = pool.nodes.host(node)?;
    let most = host.total.saturating_sub(host.reserve);
    (host.total > Bytes::ZERO && most < needs).then_some(most)
}

/// Adds the victims of a placement whose node's host lacks memory.
pub(crate) fn add_victims(pool: &Pool, claim: &Claim, plan: &mut Plan) {
    let Some(share) = plan.placement.first().filter(|_| plan.wakes.is_none()) else {
        return;
    };
    let node = pool.devices[&share.device].node;
    let Some(needs) = needs(pool, claim.model, node) else {
        return;
    };
    let known: BTreeSet<ReplicaId> = plan.victims.iter().map(|victim| victim.replica).collect();
    let freed: Bytes = known.iter().map(|id| held(pool, *id)).sum();
    let lacks = needs.saturating_sub(soon(pool, node, None) + freed);
    if lacks > Bytes::ZERO {
        let domain = Domain {
            devices: vec![HOST],
            needs: vec![lacks],
        };
        let others = evictable(pool, claim, node, &known);
        if let Some((cost, victims)) = cheapest(&domain, &[Bytes::ZERO], others) {
            plan.cost.highest_priority = plan.cost.highest_priority.max(cost.highest_priority);
            plan.cost.busy += cost.busy;
            plan.cost.loss = plan.cost.loss.saturating_add(cost.loss);
            plan.cost.bytes = plan.cost.bytes + cost.bytes;
            plan.victims
                .extend(victims.iter().map(|victim| victim.describe(pool)));
        }
    }
    plan.must_wait |= now(pool, node, None) < needs;
}

/// Returns true if the host has memory for a planned load now.
pub(crate) fn is_free(pool: &Pool, load: ReplicaId) -> bool {
    of_planned(pool, load).is_none_or(|(node, needs)| now(pool, node, Some(load)) >= needs)
}

/// Returns true if the host will have memory for a planned load once everything has left that is leaving.
pub(crate) fn is_coming(pool: &Pool, load: ReplicaId) -> bool {
    of_planned(pool, load).is_none_or(|(node, needs)| soon(pool, node, Some(load)) >= needs)
}

/// Host memory of planned and new loads on a node that its reading does not show yet, without the part of `load`.
pub(crate) fn unseen(pool: &Pool, node: NodeId, load: Option<ReplicaId>) -> Bytes {
    let planned = pool.planned.iter();
    let planned = planned.filter(|(id, planned)| Some(**id) != load && is_on(pool, planned, node));
    let promised: Bytes = planned.map(|(_, planned)| part(pool, planned)).sum();
    let host = pool.nodes.host(node);
    let is_new = |replica: &&Replica| host.is_some_and(|host| !host.shows(replica.launched));
    let new: Bytes = on_node(pool, node)
        .map(|(_, replica)| replica)
        .filter(is_new)
        .filter(|replica| replica.parked.is_none())
        .map(|replica| pool.models[&replica.model].spec.host_bytes)
        .sum();
    promised + new
}

/// The host memory that a model needs on a node. `None` if it needs none, or if the node's host is unknown.
fn needs(pool: &Pool, model: &Model, node: NodeId) -> Option<Bytes> {
    let bytes = model.spec.host_bytes;
    (bytes > Bytes::ZERO && pool.nodes.host(node).is_some()).then_some(bytes)
}

fn of_planned(pool: &Pool, load: ReplicaId) -> Option<(NodeId, Bytes)> {
    let planned = &pool.planned[&load];
    let node = pool.devices[&planned.shares.first()?.device].node;
    let needs = needs(pool, &pool.models[&planned.model], node)?;
    (!planned.wakes).then_some((node, needs))
}

fn is_on(pool: &Pool, planned: &Planned, node: NodeId) -> bool {
    let first = planned.shares.first();
    first.is_some_and(|share| pool.devices[&share.device].node == node)
}

/// The part of a planned load on the host. A sleeper that wakes has its part already.
fn part(pool: &Pool, planned: &Planned) -> Bytes {
    if planned.wakes {
        Bytes::ZERO
    } else {
        pool.models[&planned.model].spec.host_bytes
    }
}

/// The memory that a load can take now.
fn now(pool: &Pool, node: NodeId, load: Option<ReplicaId>) -> Bytes {
    let Some(host) = pool.nodes.host(node) else {
        return Bytes(u64::MAX);
    };
    // Sleepers that are being ended have not returned their memory yet.
    let left = host.left().saturating_sub(host.returning);
    left.saturating_sub(host.reserve)
        .saturating_sub(unseen(pool, node, load))
}

/// The same once every replica has left that is leaving.
fn soon(pool: &Pool, node: NodeId, load: Option<ReplicaId>) -> Bytes {
    let leaving = on_node(pool, node).filter(|(_, replica)| replica.is_leaving());
    let returned: Bytes = leaving.map(|(id, _)| held(pool, id)).sum();
    now(pool, node, load) + returned
}

/// The replicas and planned loads that may leave for the claim, each with its part of the host as its only share.
fn evictable(
    pool: &Pool,
    claim: &Claim,
    node: NodeId,
    without: &BTreeSet<ReplicaId>,
) -> Vec<Evictable> {
    let planned = pool.planned.iter();
    let planned = planned.filter(|(_, planned)| is_on(pool, planned, node));
    let ids = on_node(pool, node).map(|(id, _)| id);
    let ids: BTreeSet<ReplicaId> = ids.chain(planned.map(|(id, _)| *id)).collect();
    ids.difference(without)
        .filter(|id| held(pool, **id) > Bytes::ZERO)
        .filter_map(|id| victims::evictable(pool, claim, *id).ok())
        .map(|victim| Evictable {
            shares: vec![Share {
                device: HOST,
                bytes: held(pool, victim.replica),
            }],
            ..victim
        })
        .collect()
}

/// The host memory that returns when the replica or the planned load leaves.
fn held(pool: &Pool, id: ReplicaId) -> Bytes {
    match (pool.planned.get(&id), pool.replicas.get(&id)) {
        (_, Some(replica)) => match &replica.parked {
            Some(parked) => parked.host,
            None => pool.models[&replica.model].spec.host_bytes,
        },
        (Some(planned), None) => part(pool, planned),
        (None, None) => Bytes::ZERO,
    }
}

/// The replicas of a node. Visits only its devices and the sleepers, because there may be a thousand nodes.
fn on_node(pool: &Pool, node: NodeId) -> impl Iterator<Item = (ReplicaId, &Replica)> {
    let devices = pool.nodes.devices_of(node);
    let devices = devices.filter_map(|id| pool.devices.get(id));
    let holders = devices.flat_map(|device| device.holders.iter().copied());
    let sleepers = pool.replicas.asleep().iter().copied();
    let sleepers = sleepers.filter(|id| pool.node_of(&pool.replicas[id]) == node);
    let ids: BTreeSet<ReplicaId> = holders.chain(sleepers).collect();
    ids.into_iter()
        .filter_map(|id| Some((id, pool.replicas.get(&id)?)))
}
