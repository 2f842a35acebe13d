//! The referee's independent check of P5: whether another set of victims, on any devices, would have been cheaper. Tries every set.
//! From the pool it takes only the expected reload times, which are estimates and not choices.

use alloc::vec::Vec;

use super::{Referee, ReplicaRecord};
use pool::{Bytes, LoadOrder, ModelId, Plan, Pool, Priority, ReplicaId, Share, Time};

/// Skips cases with more candidates, because it tries every set.
const CANDIDATES_MAX: usize = 12;
/// The same on more devices than `FEW_DEVICES`: each set is tried on each device.
const CANDIDATES_MAX_ON_MANY: usize = 6;
const FEW_DEVICES: usize = 16;

/// The model to be placed, with its rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub model: ModelId,
    pub priority: Priority,
    pub forced: bool,
}

/// The quantities that P5 minimises, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Price {
    highest_priority: Option<Priority>,
    busy: u32,
    loss: u64,
    bytes: Bytes,
}

/// A replica that may certainly leave, and its own cost.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    replica: ReplicaId,
    price: Price,
}

impl Price {
    fn of_all(candidates: impl Iterator<Item = Price>) -> Price {
        candidates.fold(Price::default(), |all, one| Price {
            highest_priority: all.highest_priority.max(one.highest_priority),
            busy: all.busy + one.busy,
            loss: all.loss.saturating_add(one.loss),
            bytes: all.bytes + one.bytes,
        })
    }
}

impl Referee {
    /// Judges the victims of a planned load. Does not compare reload costs, because only the costs before the step are known.
    pub(super) fn victims_are_cheapest(
        &mut self,
        now: Time,
        load: ReplicaId,
        asker: Asker,
        placement: &[Share],
        victims: &[ReplicaId],
    ) {
        let price = |id: ReplicaId, seen: &ReplicaRecord| Price {
            loss: 0,
            bytes: Bytes::ZERO,
            ..self.price(now, id, seen, |_| 0)
        };
        let candidates = self.candidates(now, asker, victims, price);
        let paid = victims
            .iter()
            .filter_map(|id| Some(price(*id, self.replicas.get(id)?)));
        let paid = Price::of_all(paid);
        self.judge(load, asker.model, placement, victims, (paid, &candidates));
    }

    /// Judges a plan that is not carried out, by all criteria of P5.
    pub fn plan_is_cheapest(&mut self, now: Time, pool: &Pool, model: ModelId) {
        let order = LoadOrder {
            model,
            replicas: Some(1),
            devices: None,
            priority: Some(Priority::MAX),
            keep_hot: None,
            lease: None,
            force: false,
            waits: true,
        };
        let Some(plan) = pool.clone().preview(now, &order) else {
            return;
        };
        let known = |id: &ReplicaId| {
            let seen = self.replicas.get(id);
            seen.is_some_and(|seen| seen.sleeper.is_none())
        };
        let victims: Vec<ReplicaId> = plan.victims.iter().map(|victim| victim.replica).collect();
        let is_skipped = plan.refusal.is_some() || plan.wakes.is_some() || victims.is_empty();
        if is_skipped || !victims.iter().all(known) {
            return;
        }
        let asker = Asker {
            model,
            priority: Priority::MAX,
            forced: false,
        };
        let expected = |id: ReplicaId| pool.expected_loss(id).unwrap_or_default();
        let price = |id: ReplicaId, seen: &ReplicaRecord| self.price(now, id, seen, expected);
        let candidates = self.candidates(now, asker, &[], price);
        let paid = victims.iter().map(|id| price(*id, &self.replicas[id]));
        let paid = Price::of_all(paid);
        let Plan { placement, .. } = plan;
        let load = ReplicaId(u64::MAX);
        self.judge(load, model, &placement, &victims, (paid, &candidates));
    }

    fn judge(
        &mut self,
        load: ReplicaId,
        model: ModelId,
        placement: &[Share],
        victims: &[ReplicaId],
        (paid, candidates): (Price, &[Candidate]),
    ) {
        let most = match self.devices.len() {
            ..=FEW_DEVICES => CANDIDATES_MAX,
            _ => CANDIDATES_MAX_ON_MANY,
        };
        if candidates.len() > most || self.has_part(model) {
            return;
        }
        self.judged += 1;
        let mut best: Option<(Price, Vec<ReplicaId>)> = None;
        for set in 1_u32..1 << candidates.len() {
            let chosen = || {
                let all = candidates.iter().enumerate();
                all.filter(move |(nth, _)| set >> nth & 1 == 1)
                    .map(|(_, candidate)| candidate)
            };
            let price = Price::of_all(chosen().map(|candidate| candidate.price));
            if price >= best.as_ref().map_or(paid, |(known, _)| *known) {
                continue;
            }
            let leave: Vec<ReplicaId> = chosen().map(|candidate| candidate.replica).collect();
            if self
                .place_without(model, placement, victims, &leave)
                .is_some()
            {
                best = Some((price, leave));
            }
        }
        if let Some((price, leave)) = best {
            self.broken.push(format!(
                "P5: {victims:?} leave for {load} on {placement:?} at {paid:?}, and {leave:?} would cost {price:?}"
            ));
        }
    }

    fn price(
        &self,
        now: Time,
        id: ReplicaId,
        seen: &ReplicaRecord,
        expected: impl Fn(ReplicaId) -> u64,
    ) -> Price {
        Price {
            highest_priority: Some(self.priority(seen.model, now)),
            busy: u32::from(seen.idle_since.is_none() && seen.sleeper.is_none()),
            loss: expected(id),
            bytes: seen.shares.iter().map(|share| share.bytes).sum(),
        }
    }

    /// The candidates by P2 and P4, regardless of turns: replicas of lower priority, and all of them for a forced load. `victims`
    /// are already leaving for this load.
    fn candidates(
        &self,
        now: Time,
        asker: Asker,
        victims: &[ReplicaId],
        price: impl Fn(ReplicaId, &ReplicaRecord) -> Price,
    ) -> Vec<Candidate> {
        let may_leave = |(id, seen): &(&ReplicaId, &ReplicaRecord)| {
            let lower = self.priority(seen.model, now) < asker.priority
                && !self.protected(seen.model, now)
                && (seen.used || !self.has_waiting(seen.model));
            let there = seen.stays() || victims.contains(id);
            let serves = seen.ready.is_some() && seen.sleeper.is_none();
            there && serves && seen.model != asker.model && (lower || asker.forced)
        };
        let all = self.replicas.iter().filter(may_leave);
        all.map(|(&replica, seen)| Candidate {
            replica,
            price: price(replica, seen),
        })
        .collect()
    }
}
