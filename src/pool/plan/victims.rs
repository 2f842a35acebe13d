//! Decides which replicas a load may evict, and at what cost (P2–P7).
//!
//! An idle replica stays for its own next request (P3), although this shortens waits by 0.2 % only: two models that exclude each
//! other, with one client each, would otherwise swap at every request (the story `p3_a_request_is_near`).

use core::cmp::Reverse;

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::plan::{batches, fairness, parking, yields};
use crate::types::choice::Evictable;
use crate::types::demand;
use crate::types::ids::{Bytes, DeviceId, ModelId, Priority, ReplicaId, Span, Time};
use crate::types::obstacle::Protection;
use crate::types::policy::Part;
use crate::types::rank::VictimRank;
use crate::types::replica::{Phase, Planned, Replica};
use crate::types::share::Share;

/// A turn of this many swaps leaves two thirds of the time for serving when two models are always in demand.
const SWAPS_PER_TURN: u64 = 3;
/// A replica that is idle between its requests keeps its place for this many swaps at most. A request that waits for the place then
/// waits for ten swaps and a request, and nine tenths of the time are spent serving.
const SWAPS_IDLE: u64 = 9;
/// A model that is rarely in continuous use becomes idle on its own within the time of this many requests.
const REQUESTS_PER_TURN: u64 = 16;
/// Upper bound of a turn extended for slow requests.
const REQUESTS_MAX: Span = Span(60_000);

/// Checks whether this holder of memory may leave for the claim: `evictable` without the cost.
pub(crate) fn may_leave(pool: &Pool, claim: &Claim, id: ReplicaId) -> Result<(), Protection> {
    leaves(
        pool,
        claim,
        id,
        pool.planned.get(&id),
        pool.replicas.get(&id),
    )
}

/// The same for a holder that the caller has looked up: a planned load, a replica, or both for a sleeper that is to be woken.
pub(crate) fn leaves(
    pool: &Pool,
    claim: &Claim,
    id: ReplicaId,
    planned: Option<&Planned>,
    replica: Option<&Replica>,
) -> Result<(), Protection> {
    let requirements = claim.requirements;
    if let Some(planned) = planned {
        let is_below = match requirements.batch {
            None if pool.loads_only_for_batches(planned) => true,
            _ => pool.priority(planned.model) < requirements.priority,
        };
        let displaced = planned.model != requirements.model && planned.order.is_none() && is_below;
        if displaced {
            return Ok(());
        }
        return Err(if planned.model == requirements.model {
            Protection::Loading
        } else {
            loading(pool, claim, planned.model)
        });
    }
    if pool.replicas.is_asleep(id) {
        // A sleeper may be needed again soon, and batches can wait.
        return match requirements.batch {
            Some(_) => Err(Protection::Batch { left: None }),
            None => Ok(()),
        };
    }
    let replica = replica.expect("a holder is a replica or a planned load");
    let model = &pool.models[&replica.model];
    match protection(pool, claim, id, replica, model) {
        Some(protection) => Err(protection),
        None => Ok(()),
    }
}

/// Checks whether this holder of memory may leave for the claim, and computes the cost.
pub(crate) fn evictable(
    pool: &Pool,
    claim: &Claim,
    id: ReplicaId,
) -> Result<Evictable, Protection> {
    may_leave(pool, claim, id)?;
    Ok(leaving(pool, id))
}

/// The cost of evicting this holder of memory, which is known to be evictable.
pub(crate) fn leaving(pool: &Pool, id: ReplicaId) -> Evictable {
    if let Some(planned) = pool.planned.get(&id) {
        let bytes = planned.shares.iter().map(|share| share.bytes).sum();
        let rank = VictimRank {
            busy: false,
            value: 0,
            bytes: Reverse(bytes),
            replica: id,
        };
        return Evictable {
            replica: id,
            model: planned.model,
            priority: if pool.loads_only_for_batches(planned) {
                Priority(0)
            } else {
                pool.priority(planned.model)
            },
            rank,
            loss: 0,
            shares: planned.shares.clone(),
            planned: true,
        };
    }
    if pool.replicas.is_asleep(id) {
        return parking::droppable(pool, id);
    }
    let replica = &pool.replicas[&id];
    let model = &pool.models[&replica.model];
    // No request waits for batches, so their replicas leave before all others.
    let (priority, loss) = if pool.serves_only_batches(replica, model) {
        (Priority(0), 0)
    } else {
        (model.priority(), expected_loss(pool, replica, model))
    };
    let bytes = replica.bytes();
    let rank = VictimRank {
        busy: replica.in_flight > 0,
        value: if pool.by_recency() {
            loss
        } else {
            demand::loss_per_gib(loss, bytes)
        },
        bytes: Reverse(bytes),
        replica: id,
    };
    Evictable {
        replica: id,
        model: replica.model,
        priority,
        rank,
        loss,
        // Memory beyond its share is freed too.
        shares: replica
            .shares
            .iter()
            .map(|share| Share {
                device: share.device,
                bytes: share.bytes + pool.excess(id, share.device),
            })
            .collect(),
        planned: false,
    }
}

/// Returns true if the device would have enough free memory after all of these left. Optimistic: never false if they suffice.
pub(crate) fn frees_enough(
    pool: &Pool,
    device: DeviceId,
    free: Bytes,
    needs: Bytes,
    leaving: &[ReplicaId],
) -> bool {
    let held = leaving.iter().map(|id| pool.held(*id, device));
    free + held.sum::<Bytes>() >= needs
}

/// The expected loss per second after an eviction: the reload time, weighted by the chance that the model is needed again (P5).
fn expected_loss(pool: &Pool, replica: &Replica, model: &Model) -> u64 {
    let idle = replica
        .idle_since()
        .map_or(Span::ZERO, |since| pool.now.since(since));
    if pool.by_recency() {
        return demand::recency(idle);
    }
    let back = pool.back_after_eviction_of(replica, model);
    let all = model.demand.loss(pool.now, idle, back);
    // Losing a replica costs less if the model has others.
    match model.replicas.len() {
        1 => all,
        _ => all / (pool.live(model).max(1) as u64),
    }
}

impl Pool {
    /// Returns true if victims are compared by least recent use: because it is configured, or because it would have caused fewer
    /// loads here than the pool's own estimate (P5).
    pub(crate) fn by_recency(&self) -> bool {
        !self.limits.policy.has(Part::ExpectedLoss) || self.shadows.lead.simple_since().is_some()
    }

    /// The time since which the pool's own estimate has lost this comparison. `None` if least recent use is configured, because
    /// then nothing is compared.
    pub(crate) fn by_recency_since(&self) -> Option<Time> {
        if !self.limits.policy.has(Part::ExpectedLoss) {
            return None;
        }
        self.shadows.lead.simple_since()
    }

    /// The estimate by which victims are compared (P5), in 10⁻¹² s per second.
    pub fn expected_loss(&self, id: ReplicaId) -> Option<u64> {
        let replica = self.replicas.get(&id)?;
        Some(expected_loss(self, replica, &self.models[&replica.model]))
    }
}

/// The rule that protects a replica from the claim, if any.
fn protection(
    pool: &Pool,
    claim: &Claim,
    id: ReplicaId,
    replica: &Replica,
    model: &Model,
) -> Option<Protection> {
    let requirements = claim.requirements;
    if replica.leaves_with.is_some() {
        return Some(Protection::Leaving);
    }
    let since = match replica.phase {
        Phase::Draining { .. } | Phase::Parking { .. } | Phase::Stopping { .. } => {
            return Some(Protection::Leaving);
        }
        _ if replica.model == requirements.model => return Some(Protection::Same),
        Phase::Asleep { .. } => return None,
        // Nothing but batches waits for its load.
        Phase::Launching { .. }
            if requirements.batch.is_none() && pool.serves_only_batches(replica, model) =>
        {
            return None;
        }
        Phase::Launching { .. } => return Some(loading(pool, claim, replica.model)),
        Phase::Ready { since } => since,
    };
    if let Some(room) = requirements.batch {
        return batches::protection(pool, room, replica, model);
    }
    if requirements.forced_by.is_some() {
        return None;
    }
    let own = model.priority();
    if pool.protects(own) {
        return Some(Protection::AlwaysHot);
    }
    if replica.is_unserved() && !model.queue.is_empty() {
        return Some(Protection::Unserved);
    }
    // The forced load could evict the model that grows. Then the additional replica would no longer be needed, its victim would
    // stay, the forced load might need no room in turn, and the model would grow again, all at one time.
    if let Some(order) = claim.waits_for {
        return Some(Protection::Forced { order });
    }
    if own < requirements.priority {
        return None;
    }
    if let Some(left) = model.lease_left(pool.wall()) {
        return Some(Protection::Leased { left });
    }
    if let Some(order) = pool.unfinished_load(replica.model) {
        return Some(Protection::Ordered { order });
    }
    if pool.serves_only_batches(replica, model) {
        return None;
    }
    if own > requirements.priority {
        return yields::above(pool, claim, replica, model);
    }
    if requirements.is_gentle {
        return Some(Protection::Growth);
    }
    if fairness::is_wanted_first(pool, claim, model) {
        return Some(Protection::Wanted);
    }
    let from = requirements.evicts_from.of_victim(model.stops_in());
    if from > pool.now {
        let left = from.since(pool.now);
        return Some(Protection::NotWorth { left });
    }
    let age = pool.now.since(since);
    let parts = pool.limits.policy;
    if !parts.has(Part::Turns) && model.spec.max_turn.is_none() && replica.in_flight > 0 {
        return Some(Protection::Busy);
    }
    let is_outranked = fairness::outranks_users(pool, claim, id, model);
    let turn = turn(pool, claim, model, age, is_outranked);
    if replica.in_flight > 0 {
        return (turn > Span::ZERO).then_some(Protection::Turn { left: turn });
    }
    // An idle replica is protected no longer than a busy one.
    let stays = match model.spec.min_resident {
        Some(residence) => Span(residence.0.saturating_sub(age.0)),
        None if requirements.past_idle || !parts.has(Part::NextRequest) => Span::ZERO,
        None => {
            let waited = age.min(pool.now.since(claim.waits_since));
            let most = swap(claim, model).0.saturating_mul(SWAPS_IDLE);
            let stays = near_request(pool, claim, model, replica);
            let in_target = idle_in_target(pool, claim, model).unwrap_or(stays);
            stays
                .min(in_target)
                .min(Span(most.saturating_sub(waited.0)))
        }
    };
    let left = stays.min(turn);
    (left > Span::ZERO).then_some(Protection::Young { left })
}

/// The protection of a load that has begun. Claims of higher priority and forced claims wait for its end.
fn loading(pool: &Pool, claim: &Claim, model: ModelId) -> Protection {
    let requirements = claim.requirements;
    let is_above = requirements.forced_by.is_some() || pool.priority(model) < requirements.priority;
    match pool.unfinished_load(model) {
        Some(order) if !is_above => Protection::Ordered { order },
        _ => Protection::Loading,
    }
}

/// The remaining time of a busy replica's turn against a model of equal priority (P3).
///
/// Without a configured length, a turn lasts a number of swaps, or of the model's own requests if that is longer, and begins when a
/// request waits for the place. The replica will probably become idle on its own, and then no request is held up by a drain. A model
/// in continuous use therefore leaves after a bounded time, and other models are rarely closed.
fn turn(pool: &Pool, claim: &Claim, model: &Model, age: Span, is_outranked: bool) -> Span {
    let (length, passed) = match model.spec.max_turn {
        Some(length) => (length, age),
        None => {
            let swap = swap(claim, model);
            let turn = if is_outranked {
                // While it drains, it still serves the keys that were served more (P9).
                Span(swap.0.saturating_mul(SWAPS_PER_TURN))
            } else {
                let swap = swap + model.drain_takes;
                // Until a first request has ended, the time at which it becomes idle is unknown.
                let requests = model.requests_take(REQUESTS_PER_TURN);
                Span(swap.0.saturating_mul(SWAPS_PER_TURN)).max(requests)
            };
            let turn = turn_in_target(claim, model).map_or(turn, |length| length.min(turn));
            (turn, age.min(pool.now.since(claim.waits_since)))
        }
    };
    Span(length.0.saturating_sub(passed.0))
}

/// The longest turn after which a request of the claim still meets its target. `None` without a target, or if swapping would take
/// longer than serving.
fn turn_in_target(claim: &Claim, model: &Model) -> Option<Span> {
    let swap = swap(claim, model) + model.drain_takes;
    let turn = Span(claim.target?.0.checked_sub(swap.0)?);
    (turn >= swap).then_some(turn)
}

/// The remaining time for which an idle replica may stay without making a request of the claim miss its target: half of the time that
/// the target leaves, as for loads. `None` without a target, or if the swap takes longer.
fn idle_in_target(pool: &Pool, claim: &Claim, model: &Model) -> Option<Span> {
    let left = claim.target?.0.checked_sub(swap(claim, model).0)?;
    let waited = pool.now.since(claim.requirements.since);
    Some(Span((left / 2).saturating_sub(waited.0)))
}

impl Model {
    /// The time a replica of it may take to end once it is stopped: the larger of the promised and the measured time.
    fn stops_in(&self) -> Span {
        self.spec.stop_grace.max(self.stop_takes)
    }

    /// The time for this many of its requests, one after the other, within bounds.
    pub(crate) fn requests_take(&self, count: u64) -> Span {
        let all = |mean: Span| Span(mean.0.saturating_mul(count)).min(REQUESTS_MAX);
        self.request_times.mean().map_or(REQUESTS_MAX, all)
    }
}

/// The time from stopping an idle replica of this model until the requested one is ready.
fn swap(claim: &Claim, model: &Model) -> Span {
    claim.ready_in + model.stop_takes
}

/// The time that an idle replica stays because its own next request is near (P3). At most half a swap after its last request, less
/// the more requests wait, never beyond its turn, and zero once a request has waited for long. A request served in that time saves
/// a complete swap.
fn near_request(pool: &Pool, claim: &Claim, model: &Model, replica: &Replica) -> Span {
    let requirements = claim.requirements;
    let window = Span(swap(claim, model).0 >> (1 + requirements.crowd));
    let idle = replica
        .idle_since()
        .map_or(Span::ZERO, |since| pool.now.since(since));
    let waited = pool.now.since(requirements.since);
    let patience = Span(claim.patience.0.saturating_sub(waited.0));
    let left = Span(window.0.saturating_sub(idle.0)).min(patience);
    let expected = model.demand.expected_for(idle, left);
    expected.map_or(Span::ZERO, |expected| expected.min(left))
}

#[cfg(test)]
mod tests;
