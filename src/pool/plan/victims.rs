//! Which replicas may be evicted for which, and what that would cost (P2–P5).

use core::cmp::Reverse;

use crate::facts::state::Pool;
use crate::plan::parking;
use crate::types::ask::Ask;
use crate::types::choice::Evictable;
use crate::types::demand;
use crate::types::ids::{ReplicaId, Span};
use crate::types::rank::VictimRank;
use crate::types::reason::Protection;
use crate::types::replica::{Phase, Replica};
use crate::types::share::Share;

/// The longest and the shortest turn that is derived from the swap time (P3).
const TURN_MIN: Span = Span(5_000);
const TURN_MAX: Span = Span(60_000);

/// Whether this holder of memory may leave for `ask`.
pub(crate) fn evictable(pool: &Pool, ask: &Ask, id: ReplicaId) -> Result<Evictable, Protection> {
    if let Some(planned) = pool.planned.get(&id) {
        let priority = pool.priority(planned.model);
        let displaced =
            planned.model != ask.model && planned.order.is_none() && priority < ask.priority;
        if !displaced {
            return Err(Protection::Loading);
        }
        let bytes = planned.shares.iter().map(|share| share.bytes).sum();
        let rank = VictimRank {
            busy: false,
            value: 0,
            bytes: Reverse(bytes),
            replica: id,
        };
        let shares = planned.shares.clone();
        return Ok(Evictable {
            replica: id,
            model: planned.model,
            priority,
            rank,
            loss: 0,
            shares,
            planned: true,
        });
    }
    if pool.asleep.contains(&id) {
        return Ok(parking::droppable(pool, id));
    }
    let replica = &pool.replicas[&id];
    if let Some(protection) = protection(pool, ask, replica) {
        return Err(protection);
    }
    let loss = expected_loss(pool, replica);
    let bytes = replica.bytes();
    let rank = VictimRank {
        busy: replica.in_flight > 0,
        value: demand::loss_per_gib(loss, bytes),
        bytes: Reverse(bytes),
        replica: id,
    };
    let priority = pool.priority(replica.model);
    Ok(Evictable {
        replica: id,
        model: replica.model,
        priority,
        rank,
        loss,
        // Its memory beyond its share is freed too.
        shares: replica
            .shares
            .iter()
            .map(|share| Share {
                device: share.device,
                bytes: share.bytes + pool.excess(id, share.device),
            })
            .collect(),
        planned: false,
    })
}

/// The expected loss per second if it is gone: its reload time, weighted by how likely it is needed again (P5).
fn expected_loss(pool: &Pool, replica: &Replica) -> u64 {
    let model = &pool.models[&replica.model];
    let idle = replica
        .idle_since()
        .map_or(Span::ZERO, |since| pool.now.since(since));
    let back = pool.back_after_eviction(replica);
    let all = model.demand.loss(pool.now, idle, back);
    // The loss of one of several replicas is smaller.
    all / (pool.live(model).max(1) as u64)
}

impl Pool {
    /// The estimate by which victims are compared (P5), in 10⁻¹² s per second.
    pub fn expected_loss(&self, id: ReplicaId) -> Option<u64> {
        let replica = self.replicas.get(&id)?;
        Some(expected_loss(self, replica))
    }
}

/// The rule that keeps a replica from leaving for `ask`, if any.
fn protection(pool: &Pool, ask: &Ask, replica: &Replica) -> Option<Protection> {
    let model = &pool.models[&replica.model];
    let since = match replica.phase {
        Phase::Draining { .. } | Phase::Parking { .. } | Phase::Stopping { .. } => {
            return Some(Protection::Leaving);
        }
        _ if replica.model == ask.model => return Some(Protection::Same),
        Phase::Asleep { .. } => return None,
        Phase::Launching { .. } => return Some(Protection::Loading),
        Phase::Ready { since } => since,
    };
    if ask.forced_by.is_some() {
        return None;
    }
    let own = model.priority();
    if pool.is_protected(replica.model) {
        return Some(Protection::AlwaysHot);
    }
    if own > ask.priority {
        return Some(Protection::HigherPriority);
    }
    if replica.is_unserved() && !model.queue.is_empty() {
        return Some(Protection::Unserved);
    }
    if own < ask.priority {
        return None;
    }
    if ask.is_gentle {
        return Some(Protection::Growth);
    }
    let waits_longer = |ticket| pool.tickets[&ticket].since < ask.since;
    if model.queue.oldest().is_some_and(waits_longer) {
        return Some(Protection::Wanted);
    }
    let age = pool.now.since(since);
    let swap = pool.comes_back_in(ask.model);
    let turn = model
        .spec
        .max_turn
        .unwrap_or(Span(swap.0.saturating_mul(3).clamp(TURN_MIN.0, TURN_MAX.0)));
    if replica.in_flight == 0 {
        // An idle replica is protected no longer than it would be if it were busy.
        let residence = model.min_resident().min(turn);
        let left = Span(residence.0.saturating_sub(age.0));
        return (left > Span::ZERO).then_some(Protection::Young { left });
    }
    let left = Span(turn.0.saturating_sub(age.0));
    (left > Span::ZERO).then_some(Protection::Turn { left })
}
