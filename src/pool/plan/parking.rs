//! Sleepers: engines that free their devices and keep their weights in host memory, so waking takes less time than loading (L1).
//! Decides which replica may sleep, which sleepers are dropped for it, and when to wake a sleeper instead of loading. Part of
//! `plan`; changes nothing.

use alloc::vec::Vec;

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::cheapest::{Domain, cheapest, with_freed};
use crate::plan::claim::Claim;
use crate::plan::victims;
use crate::types::choice::{Choice, Evictable};
use crate::types::decision::Decision;
use crate::types::demand;
use crate::types::ids::{Bytes, DeviceId, NodeId, Priority, ReplicaId, Span};
use crate::types::link::Link;
use crate::types::rank::PlaceRank;
use crate::types::reason::StopReason;
use crate::types::replica::{Phase, Replica};
use crate::types::requirements::Requirements;
use crate::types::share::Share;

/// The order in which sleepers are dropped: lower priority first, then the smaller loss per byte of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SleeperRank {
    priority: Priority,
    value: u64,
    /// Makes the order deterministic.
    replica: ReplicaId,
}

/// The decision to put a drained replica to sleep, with the sleepers that must leave for it. `None` if the replica must be ended
/// instead.
pub(crate) fn park(pool: &Pool, id: ReplicaId, reason: &StopReason) -> Option<Decision> {
    let replica = &pool.replicas[&id];
    let model = &pool.models[&replica.model];
    let parking = model.spec.parking.as_ref()?;
    let sleeps = |other: &ReplicaId| {
        matches!(
            pool.replicas[other].phase,
            Phase::Asleep { .. } | Phase::Parking { .. }
        )
    };
    let cordoned = |share: &Share| pool.devices[&share.device].closed().is_some();
    let barred = !reason.lets_sleep()
        || replica.in_flight > 0
        || model.removed
        || pool.is_outdated(id)
        || pool.service.is_closing()
        || pool
            .orders
            .values()
            .any(|order| order.targets.contains(&id))
        || replica.shares.iter().any(cordoned)
        || pool.is_moving(replica)
        // A node for batches is given back as soon as it is empty.
        || pool.nodes.is_for_batches(pool.node_of(replica))
        || replica.gang.is_some()
        || model.replicas.iter().any(sleeps);
    if barred {
        return None;
    }
    // The waiting load may have been promised all of this memory.
    let stays = |share: &Share| pool.free_later(share.device) >= share.bytes;
    if !replica.would_keep(parking).iter().all(stays) {
        return None;
    }
    let host = pool.nodes.host(pool.node_of(replica))?;
    let promised = pool.host_unseen(pool.node_of(replica), None);
    let mut room = host.room().saturating_sub(promised);
    let own = rank(pool, id, parking.host);
    let mut drops = Vec::new();
    for (rank, bytes) in sleepers(pool, pool.node_of(replica)) {
        if room >= parking.host || rank >= own {
            break;
        }
        room = room + bytes;
        drops.push(rank.replica);
    }
    (room >= parking.host).then_some(Decision::Park { replica: id, drops })
}

/// The first sleeper to drop when the host itself lacks memory.
pub(crate) fn under_pressure(pool: &Pool) -> Option<Decision> {
    // There may be a thousand hosts, and usually nothing sleeps.
    if pool.replicas.asleep().is_empty() {
        return None;
    }
    pool.nodes.hosts().iter().find_map(|(&node, host)| {
        let short = host.shortage();
        if short == Bytes::ZERO || pool.nodes.is_silent(node) {
            return None;
        }
        let (rank, _) = sleepers(pool, node).into_iter().next()?;
        Some(Decision::Stop {
            replica: rank.replica,
            reason: StopReason::HostPressure { short },
        })
    })
}

/// The sleepers that are not being woken, least valuable first, with the host memory of each.
fn sleepers(pool: &Pool, node: NodeId) -> Vec<(SleeperRank, Bytes)> {
    let mut found: Vec<(SleeperRank, Bytes)> = pool
        .replicas
        .asleep()
        .iter()
        .filter(|id| !pool.planned.contains_key(id))
        .filter(|id| pool.node_of(&pool.replicas[id]) == node)
        .filter_map(|&id| {
            let host = pool.replicas[&id].parked.as_ref()?.host;
            Some((rank(pool, id, host), host))
        })
        .collect();
    found.sort_unstable_by_key(|(rank, _)| *rank);
    found
}

fn rank(pool: &Pool, id: ReplicaId, host: Bytes) -> SleeperRank {
    let model = &pool.models[&pool.replicas[&id].model];
    SleeperRank {
        priority: model.priority(),
        value: demand::loss_per_gib(loss_of_sleeper(pool, model), host),
        replica: id,
    }
}

/// The expected loss per second if the model must be loaded instead of woken.
fn loss_of_sleeper(pool: &Pool, model: &Model) -> u64 {
    let idle = model
        .last_used
        .map_or(Span::ZERO, |last| pool.now.since(last));
    let saved = Span(model.reload().0.saturating_sub(model.wake().0));
    model.demand.loss(pool.now, idle, saved)
}

/// A sleeper as a victim, for the memory it keeps on its devices. It serves no requests, so no priority protects it, but it leaves
/// after all replicas of lower priority.
pub(crate) fn droppable(pool: &Pool, id: ReplicaId) -> Evictable {
    let replica = &pool.replicas[&id];
    let model = &pool.models[&replica.model];
    let bytes = replica.bytes();
    let (loss, value) = if pool.by_recency() {
        let idle = model.last_used.map(|last| pool.now.since(last));
        let loss = demand::recency(idle.unwrap_or(Span::ZERO));
        (loss, loss)
    } else {
        let loss = loss_of_sleeper(pool, model);
        (loss, demand::loss_per_gib(loss, bytes))
    };
    Evictable {
        replica: id,
        model: replica.model,
        priority: model.priority(),
        rank: crate::types::rank::VictimRank {
            busy: false,
            value,
            bytes: core::cmp::Reverse(bytes),
            replica: id,
        },
        loss,
        shares: replica.shares.clone(),
        planned: false,
    }
}

/// The cheapest way to wake a sleeper of the model in place.
pub(crate) fn wake_choice(pool: &Pool, requirements: &Requirements) -> Option<Choice> {
    let model = &pool.models[&requirements.model];
    model
        .replicas
        .iter()
        .filter_map(|&id| wake_of(pool, requirements, id))
        .min_by_key(|choice| choice.rank)
}

fn wake_of(pool: &Pool, requirements: &Requirements, id: ReplicaId) -> Option<Choice> {
    let replica = &pool.replicas[&id];
    let parked = replica.parked.as_ref()?;
    let is_asleep = matches!(replica.phase, Phase::Asleep { .. });
    let fits = parked.awake.len() == requirements.devices as usize;
    if !is_asleep || !fits || pool.planned.contains_key(&id) {
        return None;
    }
    let more = replica.to_wake();
    let devices: Vec<_> = more.iter().map(|share| share.device).collect();
    let takes_nothing = |device: &DeviceId| pool.devices[device].takes_nothing();
    if devices.iter().any(takes_nothing) {
        return None;
    }
    let domain = Domain {
        needs: more
            .iter()
            .map(|share| share.bytes + pool.overrun(share.device))
            .collect(),
        devices,
    };
    let ledgers = || domain.devices.iter().map(|device| &pool.devices[device]);
    let free: Vec<Bytes> = domain
        .devices
        .iter()
        .map(|device| pool.free_later(*device))
        .collect();
    let short = || {
        free.iter()
            .zip(&domain.needs)
            .any(|(free, needs)| free < needs)
    };
    let (cost, victims) = if short() {
        let claim = Claim::new(pool, requirements);
        let holders: alloc::collections::BTreeSet<ReplicaId> = ledgers()
            .flat_map(|ledger| ledger.holders.iter().copied())
            .filter(|holder| *holder != id)
            .collect();
        let evictable = holders
            .into_iter()
            .filter_map(|holder| victims::evictable(pool, &claim, holder).ok())
            .collect();
        cheapest(&domain, &free, evictable)?
    } else {
        Default::default()
    };
    let freed = with_freed(&domain, &free, &victims);
    let left_over = freed.iter().zip(&domain.needs);
    let must_wait = ledgers()
        .zip(&domain.needs)
        .any(|(ledger, needs)| ledger.free_now() < *needs);
    Some(Choice {
        rank: PlaceRank {
            cost,
            link: Link::NvLink,
            fetches: false,
            must_wait,
            left_over: left_over
                .map(|(freed, needs)| freed.saturating_sub(*needs))
                .sum(),
            device: domain.devices[0],
        },
        devices: domain.devices,
        victims,
        wakes: Some(id),
    })
}

/// Chooses between waking a sleeper and loading on other devices. Prefers waking unless it evicts a busy replica that the load
/// would not evict, or takes longer in total even if the victims of both had to be reloaded immediately.
pub(crate) fn better(
    pool: &Pool,
    requirements: &Requirements,
    cold: Option<Choice>,
    wake: Option<Choice>,
) -> Option<Choice> {
    let (cold, wake) = match (cold, wake) {
        (Some(cold), Some(wake)) => (cold, wake),
        (cold, wake) => return cold.or(wake),
    };
    let model = &pool.models[&requirements.model];
    let in_all = |first: Span, choice: &Choice| {
        choice
            .victims
            .iter()
            .map(|victim| pool.comes_back_in(victim.model))
            .fold(first.0, |sum, back| sum.saturating_add(back.0))
    };
    let busier = wake.rank.cost.busy > cold.rank.cost.busy;
    let longer = in_all(model.wake(), &wake) > in_all(model.reload(), &cold);
    Some(if busier || longer { cold } else { wake })
}

impl Pool {
    /// The time to get a ready replica back after an eviction.
    pub(crate) fn back_after_eviction(&self, replica: &Replica) -> Span {
        self.back_after_eviction_of(replica, &self.models[&replica.model])
    }

    pub(crate) fn back_after_eviction_of(&self, replica: &Replica, model: &Model) -> Span {
        let would_sleep = model.spec.parking.as_ref().is_some_and(|parking| {
            let host = self.nodes.host(self.node_of(replica));
            host.is_some_and(|host| host.room() >= parking.host)
        });
        if would_sleep {
            model.wake().min(model.reload())
        } else {
            self.return_time(model)
        }
    }
}

impl StopReason {
    /// Returns true if a replica that leaves for this reason may be needed again. For all other reasons it must end.
    fn lets_sleep(&self) -> bool {
        matches!(
            self,
            StopReason::KeepHot { .. }
                | StopReason::Preempted { .. }
                | StopReason::TurnEnded { .. }
                | StopReason::Yielded { .. }
                | StopReason::BatchYielded { .. }
                | StopReason::Forced { .. }
        )
    }
}
