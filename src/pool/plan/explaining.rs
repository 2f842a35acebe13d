//! Records the alternatives of a plan for the history: the holders of memory where the load could go, and the keys by which they
//! were compared. Read-only.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::plan::victims;
use crate::types::decision::{Plan, Verdict};
use crate::types::explanation::{CONSIDERED_MAX, Considered, Explanation, Standing};
use crate::types::ids::{Bytes, DeviceId, Priority, ReplicaId, Span};
use crate::types::obstacle::{Blocker, Obstacle};
use crate::types::rank::VictimRank;
use crate::types::reason::Refusal;
use crate::types::replica::Replica;
use crate::types::requirements::Requirements;
use crate::types::stall::StallReason;

/// Explains a plan with victims: the replicas that held the memory of the compared places. `None` for a plan that found free
/// memory.
pub(crate) fn of_plan(
    pool: &Pool,
    requirements: &Requirements,
    plan: &Plan,
) -> Option<Explanation> {
    if plan.victims.iter().all(|victim| victim.planned) {
        return None;
    }
    let claim = Claim::new(pool, requirements);
    let chosen: BTreeSet<ReplicaId> = plan.victims.iter().map(|victim| victim.replica).collect();
    let mut found: Vec<(Standing, Priority, Option<VictimRank>, ReplicaId)> = Vec::new();
    let mut seen = BTreeSet::new();
    for holder in devices_of(plan).flat_map(|device| pool.devices[&device].holders.iter()) {
        if found.len() == CONSIDERED_MAX * 4 || !seen.insert(*holder) {
            continue;
        }
        let Some(replica) = pool.replicas.get(holder) else {
            continue;
        };
        let priority = pool.priority(replica.model);
        found.push(match victims::evictable(pool, &claim, *holder) {
            _ if chosen.contains(holder) => (Standing::Chosen, priority, None, *holder),
            Ok(victim) => (Standing::Spared, priority, Some(victim.rank), *holder),
            Err(why) => (Standing::Protected(why), priority, None, *holder),
        });
    }
    found.sort();
    let more = found.len().saturating_sub(CONSIDERED_MAX);
    let listed = found.iter().take(CONSIDERED_MAX);
    Some(Explanation {
        load: plan.name.clone(),
        priority: plan.priority,
        devices: plan.devices,
        needs: plan.bytes,
        by_recency_since: pool.by_recency_since(),
        considered: listed
            .filter_map(|(verdict, _, _, holder)| considered(pool, *holder, *verdict))
            .collect(),
        more: u32::try_from(more).unwrap_or(u32::MAX),
        others: Vec::new(),
        memory: Vec::new(),
    })
}

/// Explains a refusal that names obstacles.
pub(crate) fn of_refusal(
    pool: &Pool,
    load: String,
    priority: Priority,
    refusal: &Refusal,
) -> Option<Explanation> {
    let (needs, devices, obstacles) = match refusal {
        Refusal::NoRoom {
            needs,
            devices,
            obstacles,
        } => (*needs, *devices, obstacles.as_slice()),
        Refusal::NoNode { refusal, .. } => return of_refusal(pool, load, priority, refusal),
        Refusal::NeverFits { needs, devices, .. } => (*needs, *devices, &[][..]),
        Refusal::TimedOut {
            stall: StallReason::NoRoom { obstacles },
            ..
        } => (Bytes::ZERO, 0, obstacles.as_slice()),
        _ => return None,
    };
    let mut explanation = Explanation {
        load,
        priority,
        devices,
        needs,
        by_recency_since: None,
        considered: Vec::new(),
        more: 0,
        others: Vec::new(),
        memory: Vec::new(),
    };
    let mut seen = BTreeSet::new();
    for Obstacle {
        device,
        bytes,
        what,
        ..
    } in obstacles.iter().take(CONSIDERED_MAX)
    {
        match what {
            Blocker::Replica { replica, why, .. } => {
                let is_new = seen.insert(*replica);
                let found = considered(pool, *replica, Standing::Protected(*why));
                explanation.considered.extend(found.filter(|_| is_new));
            }
            other => explanation.others.push((*device, *bytes, other.clone())),
        }
    }
    Some(explanation)
}

/// The devices of the placement, followed by the devices of the more expensive places.
fn devices_of(plan: &Plan) -> impl Iterator<Item = DeviceId> + '_ {
    let chosen = plan.placement.iter().map(|share| share.device);
    let costs = |verdict: &Verdict| matches!(verdict, Verdict::Evicts { .. });
    let others = plan
        .candidates
        .iter()
        .filter(move |candidate| costs(&candidate.verdict));
    chosen.chain(others.flat_map(|candidate| candidate.devices.iter().copied()))
}

fn considered(pool: &Pool, id: ReplicaId, verdict: Standing) -> Option<Considered> {
    let replica = pool.replicas.get(&id)?;
    let idle = replica.idle_since();
    Some(Considered {
        replica: id,
        model: pool.name(replica.model),
        device: replica.shares.first()?.device,
        priority: pool.priority(replica.model),
        in_flight: replica.in_flight,
        idle: idle.map_or(Span::ZERO, |since| pool.now.since(since)),
        reload: pool.back_after_eviction(replica),
        bytes: Replica::bytes(replica),
        verdict,
    })
}
