//! Finds the devices with enough free memory for a single-device replica, and the best of them (M5). A load uses the device index;
//! a plan for administrators examines every device. Tests compare both at every load.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cell::OnceCell;

use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::types::decision::{CANDIDATES_MAX, Candidate, Verdict};
use crate::types::ids::{Bytes, DeviceId, NodeId};
use crate::types::link::Link;
use crate::types::rank::{Cost, PlaceRank};

#[derive(Debug, Default)]
pub(crate) struct FreeDevices {
    pub best: Option<PlaceRank>,
    /// The memory left over on each device. The index may find thousands of devices; only the lowest ids and the best device are
    /// kept.
    listed: BTreeMap<DeviceId, Bytes>,
}

impl FreeDevices {
    /// Examines every device.
    pub(crate) fn all(pool: &Pool, claim: &Claim) -> FreeDevices {
        let mut found = FreeDevices::default();
        for (&device, ledger) in pool.devices.iter() {
            let Ok(needs) = claim.needs_on(pool, device, ledger) else {
                continue;
            };
            let free = pool.free_and_overrun(ledger).0;
            if free < needs {
                continue;
            }
            found.listed.insert(device, free.saturating_sub(needs));
            let rank = rank_of(pool, claim, device, needs, free, Cost::default());
            found.best = found.best.into_iter().chain([rank]).min();
        }
        found
    }

    /// The same through the index. Omits devices that are neither the best nor listed in the history.
    pub(crate) fn tightest(pool: &Pool, claim: &Claim) -> FreeDevices {
        // The index does not include host memory.
        if claim.model.spec.host_bytes > Bytes::ZERO {
            return FreeDevices::all(pool, claim);
        }
        let mut found = FreeDevices::default();
        let nodes = OnceCell::new();
        let needs_on_kind = |kind| claim.requirements.bytes_on(kind);
        for room in pool.devices.with_room(needs_on_kind) {
            let device = room.device;
            let (needs, free) = match room.known {
                Some((kind, free)) if claim.may_use(device) => (needs_on_kind(kind), free),
                Some(_) => continue,
                None => {
                    let ledger = &pool.devices[&device];
                    let Ok(needs) = claim.needs_on(pool, device, ledger) else {
                        continue;
                    };
                    (needs, pool.free_and_overrun(ledger).0)
                }
            };
            if free < needs {
                continue;
            }
            let left_over = free.saturating_sub(needs);
            found.list(device, left_over);
            // Within a kind the tightest devices come first, so most devices need only this check.
            let mut at_best = PlaceRank {
                cost: Cost::default(),
                link: Link::NvLink,
                fetches: false,
                must_wait: false,
                left_over,
                device,
            };
            let known = found.best;
            let may_be_best = |rank: PlaceRank| known.is_none_or(|best| rank < best);
            if !may_be_best(at_best) {
                continue;
            }
            // The first device has no competitor, and usually no other device could be better.
            if known.is_some() {
                let nodes = nodes.get_or_init(|| Nodes::new(pool, claim));
                at_best.fetches = nodes.lack_weights(room.node);
                at_best.must_wait = nodes.reading.contains(&room.node);
            }
            if may_be_best(at_best) {
                let rank = rank_of(pool, claim, device, needs, free, Cost::default());
                found.best = known.into_iter().chain([rank]).min();
            }
        }
        if let Some(best) = found.best {
            found.listed.insert(best.device, best.left_over);
        }
        debug_assert!(
            found.agrees_with(&FreeDevices::all(pool, claim)),
            "the index finds {found:?} for {:?}",
            claim.requirements
        );
        found
    }

    fn list(&mut self, device: DeviceId, left_over: Bytes) {
        let last = self.listed.last_key_value().map(|(last, _)| *last);
        if self.listed.len() < CANDIDATES_MAX || last.is_some_and(|last| device < last) {
            self.listed.insert(device, left_over);
        }
        if self.listed.len() > CANDIDATES_MAX {
            self.listed.pop_last();
        }
    }

    /// Returns true if `all` has the same best device and the same entries for the history.
    fn agrees_with(&self, all: &FreeDevices) -> bool {
        let first = self.listed.iter().take(CANDIDATES_MAX);
        self.best == all.best && first.eq(all.listed.iter().take(CANDIDATES_MAX))
    }

    /// Candidates in the order of device ids.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.listed.iter().map(|(&device, &left_over)| Candidate {
            devices: vec![device],
            wakes: None,
            verdict: Verdict::Free { left_over },
        })
    }
}

/// Disadvantages that apply to all devices of a node. If they apply to every node (for example, none has the weights), the best
/// device is still found after a few comparisons.
struct Nodes {
    /// Nodes that already have the model's weights; `None` if no node reports its weights.
    with_weights: Option<BTreeSet<NodeId>>,
    /// Nodes whose disk or link the model would have to wait for.
    reading: BTreeSet<NodeId>,
}

impl Nodes {
    fn new(pool: &Pool, claim: &Claim) -> Nodes {
        let model = claim.requirements.model;
        let has_weights = |node: &NodeId| !pool.lacks_weights(*node, model);
        let with_weights = || -> BTreeSet<NodeId> {
            let nodes = pool.nodes.with_devices();
            nodes.filter(has_weights).collect()
        };
        let loader = claim.model.spec.loader.map(|loader| loader.loader);
        let in_use = pool.disks.in_use();
        let reading = in_use.filter(|(_, of)| Some(*of) == loader);
        Nodes {
            with_weights: (pool.nodes.any_reports_weights()).then(with_weights),
            reading: reading.map(|(node, _)| node).collect(),
        }
    }

    fn lack_weights(&self, node: NodeId) -> bool {
        let with_weights = self.with_weights.as_ref();
        with_weights.is_some_and(|nodes| !nodes.contains(&node))
    }
}

/// `free` is the free memory after everything that leaves for the load has left.
pub(crate) fn rank_of(
    pool: &Pool,
    claim: &Claim,
    device: DeviceId,
    needs: Bytes,
    free: Bytes,
    cost: Cost,
) -> PlaceRank {
    let ledger = &pool.devices[&device];
    PlaceRank {
        cost,
        link: Link::NvLink,
        fetches: pool.lacks_weights(ledger.node, claim.requirements.model),
        must_wait: ledger.free_now() < needs || pool.is_reading(claim.model, ledger.node),
        left_over: free.saturating_sub(needs),
        device,
    }
}

#[cfg(test)]
mod tests;
