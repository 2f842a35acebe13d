//! The devices with enough free memory for a replica on one device, and the best of them (M5). A load asks the index of
//! the devices for them, a plan for administrators looks at each device; tests compare both at every load.

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
    /// What would be left over on each. Those that the index finds may be thousands: the first ones stay, and the best.
    listed: BTreeMap<DeviceId, Bytes>,
}

impl FreeDevices {
    /// Looks at each device.
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

    /// The same by the index, without those that neither are the best nor get into the history.
    pub(crate) fn tightest(pool: &Pool, claim: &Claim) -> FreeDevices {
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
            // Of a kind the tightest come first, so that most devices need no more than this.
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
            // The first device is compared with nothing, and mostly no other one could be better.
            if known.is_some() {
                let nodes = nodes.get_or_init(|| Nodes::of(pool, claim));
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

    /// Whether the other one chooses the same, and the history would show the same.
    fn agrees_with(&self, all: &FreeDevices) -> bool {
        let first = self.listed.iter().take(CANDIDATES_MAX);
        self.best == all.best && first.eq(all.listed.iter().take(CANDIDATES_MAX))
    }

    /// In the order of their ids.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.listed.iter().map(|(&device, &left_over)| Candidate {
            devices: vec![device],
            wakes: None,
            verdict: Verdict::Free { left_over },
        })
    }
}

/// What speaks against whole nodes. Where it speaks against all of them, as when none has the weights, the best device is
/// still found among a few.
struct Nodes {
    /// Nodes that need not fetch the model's weights; `None`: all of them, since no node says what it has.
    with_weights: Option<BTreeSet<NodeId>>,
    /// Nodes whose disk or link the model would have to wait for.
    reading: BTreeSet<NodeId>,
}

impl Nodes {
    fn of(pool: &Pool, claim: &Claim) -> Nodes {
        let model = claim.requirements.model;
        let has_weights = |node: &NodeId| !pool.lacks_weights(*node, model);
        let with_weights = || -> BTreeSet<NodeId> {
            let nodes = pool.nodes.keys().copied();
            nodes.filter(has_weights).collect()
        };
        let loader = claim.model.spec.loader.map(|it| it.loader);
        let reading = pool.reading.iter();
        let reading = reading.filter(|(_, of, _)| Some(*of) == loader);
        Nodes {
            with_weights: (!pool.weights_on.is_empty()).then(with_weights),
            reading: reading.map(|(node, ..)| *node).collect(),
        }
    }

    fn lack_weights(&self, node: NodeId) -> bool {
        let with_weights = self.with_weights.as_ref();
        with_weights.is_some_and(|nodes| !nodes.contains(&node))
    }
}

/// `free` is what is free there once all that leaves for the load has left.
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
