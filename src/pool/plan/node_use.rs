//! Checks if a requested node is in use, and which waiting loads could use it. Changes nothing.

use crate::facts::state::Pool;
use crate::plan::node_set;
use crate::types::decision::Plan;
use crate::types::ids::{DeviceId, NodeId};
use crate::types::requirements::Requirements;

/// Returns true if the pool requested the node and nothing is loaded or planned on it.
pub(crate) fn is_idle(pool: &Pool, node: NodeId) -> bool {
    let known = pool.nodes.known(node);
    let ours = known.is_some_and(|known| known.demand.is_some() && known.is_joined());
    let devices = pool.nodes.devices_of(node);
    let mut devices = devices.map(|id| &pool.devices[id]);
    ours && devices.all(|device| device.holders.is_empty()) && pool.engines_given_up(node) == 0
}

/// Returns true if an empty node of this kind could hold it, with others of its kind if it spans several nodes.
pub(crate) fn could_use(pool: &Pool, requirements: &Requirements, node: NodeId) -> bool {
    if requirements.nodes > 1 {
        return node_set::could_use(pool, requirements, node);
    }
    let allowed = pool.models[&requirements.model].spec.allowed.as_ref();
    let fits = |id: &&DeviceId| {
        let device = &pool.devices[*id];
        let may = allowed.is_none_or(|allowed| allowed.contains(*id));
        may && requirements.bytes_on(device.kind) <= device.capacity()
    };
    let devices = pool.nodes.devices_of(node);
    devices.filter(fits).count() >= requirements.devices as usize
}

/// Returns true if a waiting demand could use the node. A demand that waits for larger nodes does not count: it would keep this node
/// forever. Batches keep no node (B8).
pub(crate) fn is_wanted(pool: &Pool, node: NodeId) -> bool {
    let is_left = pool.nodes.moves(node) || pool.batches.left_for(node).is_some();
    let may_use = !pool.service.is_closing() && !is_left;
    let mut all = pool.demand_index.before_batches();
    may_use && all.any(|(_, pending)| could_use(pool, &pending.requirements, node))
}

/// Returns true if the plan takes memory that is free, or that loads for batches give up immediately (B5).
pub(crate) fn fits_now(pool: &Pool, plan: &Plan) -> bool {
    let mut victims = plan.victims.iter();
    plan.refusal.is_none()
        && victims.all(|victim| match pool.planned.get(&victim.replica) {
            Some(planned) => pool.loads_only_for_batches(planned),
            None => victim.only_batches,
        })
}
