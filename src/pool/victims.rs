//! Who may be evicted for whom, and the cheapest set that makes room (P2–P5).

use std::cmp::Reverse;

use super::action::Share;
use super::ask::Ask;
use super::demand;
use super::ids::{Bytes, ModelId, Priority, ReplicaId, Span};
use super::parking;
use super::place::Domain;
use super::rank::{Cost, VictimRank};
use super::reason::Protection;
use super::replica::{Phase, Replica};
use super::state::Pool;

/// The longest and the shortest turn that is derived from the swap time (P3).
const TURN_MIN: Span = Span(5_000);
const TURN_MAX: Span = Span(60_000);

/// A replica, or a load not started yet, that may leave for the one that asks.
#[derive(Clone, Debug)]
pub(super) struct Evictable {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub priority: Priority,
    pub rank: VictimRank,
    pub loss: u64,
    pub shares: Vec<Share>,
    /// A load that is only promised: nothing is stopped, it is decided anew.
    pub planned: bool,
}

/// Whether this holder of memory may leave for `ask`.
pub(super) fn evictable(pool: &Pool, ask: &Ask, id: ReplicaId) -> Result<Evictable, Protection> {
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
    let model = &pool.models[&replica.model];
    let idle = replica
        .idle_since()
        .map_or(Span::ZERO, |since| pool.now.since(since));
    // One of several replicas is missed less.
    let back = pool.back_after_eviction(replica);
    let all = model.demand.loss(pool.now, idle, back);
    let loss = all / (pool.live(model).max(1) as u64);
    let bytes = replica.bytes();
    let rank = VictimRank {
        busy: replica.in_flight > 0,
        value: demand::loss_per_gib(loss, bytes),
        bytes: Reverse(bytes),
        replica: id,
    };
    let priority = model.priority();
    Ok(Evictable {
        replica: id,
        model: replica.model,
        priority,
        rank,
        loss,
        // With it goes what it holds beyond its share.
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
        // Whoever is idle is kept no longer than if it were busy.
        let residence = model.min_resident().min(turn);
        let left = Span(residence.0.saturating_sub(age.0));
        return (left > Span::ZERO).then_some(Protection::Young { left });
    }
    let left = Span(turn.0.saturating_sub(age.0));
    (left > Span::ZERO).then_some(Protection::Turn { left })
}

/// The cheapest set that gives every device of the domain what it needs: within the lowest class of
/// priority that suffices, idle before busy and lowest value first until it fits, then without every
/// victim that was not needed, the most valuable first; or a single victim, where that is cheaper.
///
/// Greedy by value per byte with pruning is what came out best of sixteen policies on real traces; an
/// exact knapsack is no better, since rates are estimates.
pub(super) fn cheapest(
    domain: &Domain,
    free: &[Bytes],
    mut evictable: Vec<Evictable>,
) -> Option<(Cost, Vec<Evictable>)> {
    evictable.sort_by_key(|it| (it.priority, it.rank));
    let mut freed = free.to_vec();
    let class = evictable.iter().find_map(|it| {
        add(domain, &mut freed, it);
        fits(domain, &freed).then_some(it.priority)
    })?;
    evictable.retain(|it| it.priority <= class);
    evictable.sort_by_key(|it| it.rank);

    let single = evictable
        .iter()
        .filter(|it| fits(domain, &with_freed(domain, free, std::slice::from_ref(it))))
        .min_by_key(|it| (cost(std::slice::from_ref(it)), it.replica))
        .cloned();

    let mut chosen: Vec<Evictable> = Vec::new();
    let mut freed = free.to_vec();
    for victim in evictable {
        if fits(domain, &freed) {
            break;
        }
        // A holder of none of the devices that still lack room would leave for nothing.
        if helps(domain, &freed, &victim) {
            add(domain, &mut freed, &victim);
            chosen.push(victim);
        }
    }
    chosen.sort_by_key(|it| {
        Reverse((
            it.priority,
            it.rank.busy,
            it.loss,
            it.rank.bytes.0,
            it.replica,
        ))
    });
    let mut nth = 0;
    while nth < chosen.len() {
        let victim = chosen.remove(nth);
        if !fits(domain, &with_freed(domain, free, &chosen)) {
            chosen.insert(nth, victim);
            nth += 1;
        }
    }
    let greedy = cost(&chosen);
    match single {
        Some(single) if cost(std::slice::from_ref(&single)) < greedy => {
            Some((cost(std::slice::from_ref(&single)), vec![single]))
        }
        _ => Some((greedy, chosen)),
    }
}

pub(super) fn with_freed(domain: &Domain, free: &[Bytes], victims: &[Evictable]) -> Vec<Bytes> {
    let mut freed = free.to_vec();
    for victim in victims {
        add(domain, &mut freed, victim);
    }
    freed
}

fn shares_in<'a>(
    domain: &'a Domain,
    victim: &'a Evictable,
) -> impl Iterator<Item = (usize, Bytes)> + 'a {
    victim.shares.iter().filter_map(|share| {
        let at = |device: &super::ids::DeviceId| *device == share.device;
        Some((domain.devices.iter().position(at)?, share.bytes))
    })
}

fn helps(domain: &Domain, freed: &[Bytes], victim: &Evictable) -> bool {
    shares_in(domain, victim).any(|(nth, _)| freed[nth] < domain.needs[nth])
}

fn add(domain: &Domain, freed: &mut [Bytes], victim: &Evictable) {
    for (nth, bytes) in shares_in(domain, victim) {
        freed[nth] = freed[nth] + bytes;
    }
}

fn fits(domain: &Domain, free: &[Bytes]) -> bool {
    free.iter()
        .zip(&domain.needs)
        .all(|(free, needs)| free >= needs)
}

fn cost(victims: &[Evictable]) -> Cost {
    Cost {
        highest_priority: victims.iter().map(|it| it.priority).max(),
        busy: victims.iter().filter(|it| it.rank.busy).count() as u32,
        loss: victims
            .iter()
            .fold(0, |sum, it| sum.saturating_add(it.loss)),
        bytes: victims.iter().map(|it| it.rank.bytes.0).sum(),
    }
}
