//! Host memory for loads that keep a part of their model there (M3). A load is placed by its devices; this file adds victims where the
//! host lacks memory, and bars the nodes whose host cannot get enough. Part of `plan`; changes nothing.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::facts::device::Device;
use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::cheapest::{Domain, cheapest};
use crate::plan::claim::Claim;
use crate::plan::victims;
use crate::types::choice::Evictable;
use crate::types::decision::Plan;
use crate::types::ids::{Bytes, DeviceId, NodeId, ReplicaId, Span};
use crate::types::obstacle::Unfit;
use crate::types::share::Share;

/// Stands for the host among the devices of a search for victims.
const HOST: DeviceId = DeviceId(u32::MAX);
/// The usual time between readings of a host.
pub(crate) const HOST_READ_EVERY: Span = Span::from_secs(1);

impl Claim<'_> {
    /// The bytes the load needs on the device, or the reason why the device can never hold a part of it.
    pub(crate) fn needs_on(
        &self,
        pool: &Pool,
        id: DeviceId,
        device: &Device,
    ) -> Result<Bytes, Unfit> {
        let needs = self.requirements.needs_of(pool, self.model, id, device)?;
        match lacks(pool, self, device.node) {
            Some(lacks) => Err(Unfit::HostFull { lacks }),
            None => Ok(needs),
        }
    }
}

/// The host memory that the claim lacks on a node even if every replica leaves that may. `None` if there is enough.
fn lacks(pool: &Pool, claim: &Claim, node: NodeId) -> Option<Bytes> {
    let least = pool.least_of_host(claim.model, node)?;
    if pool.host_lacks(node, least, Bytes::ZERO, None) == Bytes::ZERO {
        return None;
    }
    let others = evictable(pool, claim, node, &BTreeSet::new());
    let freed: Bytes = others.iter().map(|victim| victim.shares[0].bytes).sum();
    let lacks = pool.host_lacks(node, least, freed, None);
    (lacks > Bytes::ZERO).then_some(lacks)
}

/// Returns true if the node's host has enough memory for the claim once the holders have left that `leaves` accepts.
pub(crate) fn suffices(
    pool: &Pool,
    claim: &Claim,
    node: NodeId,
    leaves: impl Fn(ReplicaId) -> bool,
) -> bool {
    let holders = pool.holders_of_host(node);
    let leaving = holders.into_iter().filter(|id| leaves(*id));
    let freed: Bytes = leaving.map(|id| pool.host_held(id)).sum();
    let least = pool.least_of_host(claim.model, node);
    least.is_none_or(|least| pool.host_lacks(node, least, freed, None) == Bytes::ZERO)
}

/// The memory of an empty host, if the model never fits there.
pub(crate) fn never(pool: &Pool, model: &Model, node: &BTreeSet<DeviceId>) -> Option<Bytes> {
    let node = pool.devices[node.first()?].node;
    let least = pool.least_of_host(model, node)?;
    let most = pool.nodes.host(node)?.most()?;
    (most < least).then_some(most)
}

/// Adds the victims of a placement whose node's host lacks memory.
pub(crate) fn add_victims(pool: &Pool, claim: &Claim, plan: &mut Plan) {
    let Some(share) = plan.placement.first().filter(|_| plan.wakes.is_none()) else {
        return;
    };
    let node = pool.devices[&share.device].node;
    let Some(needs) = pool.needs_of_host(claim.model, node) else {
        return;
    };
    let known: BTreeSet<ReplicaId> = plan.victims.iter().map(|victim| victim.replica).collect();
    let freed: Bytes = known.iter().map(|id| pool.host_held(*id)).sum();
    let others = evictable(pool, claim, node, &known);
    let most: Bytes = others.iter().map(|victim| victim.shares[0].bytes).sum();
    // Mapped weights that exceed the host take what others return, and need no more.
    let never_freed = pool.host_lacks(node, needs, freed + most, None);
    let lacks = pool.host_lacks(node, needs, freed, None);
    let lacks = lacks.saturating_sub(never_freed);
    if lacks > Bytes::ZERO {
        let domain = Domain {
            devices: vec![HOST],
            needs: vec![lacks],
        };
        if let Some((cost, victims)) = cheapest(&domain, &[Bytes::ZERO], others) {
            plan.cost.highest_priority = plan.cost.highest_priority.max(cost.highest_priority);
            plan.cost.busy += cost.busy;
            plan.cost.loss = plan.cost.loss.saturating_add(cost.loss);
            plan.cost.bytes = plan.cost.bytes + cost.bytes;
            plan.victims
                .extend(victims.iter().map(|victim| victim.describe(pool)));
        }
    }
    let now = pool.host_now(node, None);
    plan.must_wait |= now < needs && !plan.victims.is_empty();
    plan.must_wait |= pool
        .least_of_host(claim.model, node)
        .is_some_and(|least| now < least);
}

/// The replicas and planned loads that may leave for the claim, each with its part of the host as its only share.
fn evictable(
    pool: &Pool,
    claim: &Claim,
    node: NodeId,
    without: &BTreeSet<ReplicaId>,
) -> Vec<Evictable> {
    pool.holders_of_host(node)
        .difference(without)
        .filter_map(|id| victims::evictable(pool, claim, *id).ok())
        .map(|victim| Evictable {
            shares: vec![Share {
                device: HOST,
                bytes: pool.host_held(victim.replica),
            }],
            ..victim
        })
        .collect()
}
