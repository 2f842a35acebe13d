//! Chooses a placement and its victims (P2–P5, M3, M5). Pure: the same function decides loads and serves `plan` requests, which
//! change nothing.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::cheapest::{Domain, cheapest, with_freed};
use crate::plan::claim::Claim;
use crate::plan::free_devices::FreeDevices;
use crate::plan::holders::FullDevice;
use crate::plan::requirements::never_fits;
use crate::plan::{free_devices, gang, group, host_room, obstacles, parking, together, victims};
use crate::types::choice::{Choice, Evictable};
use crate::types::decision::{Candidate, Plan, Prospect, Verdict, Victim};
use crate::types::ids::{DeviceId, ReplicaId, Span};
use crate::types::rank::Cost;
use crate::types::reason::Refusal;
use crate::types::replica::Replica;
use crate::types::requirements::Requirements;

/// The cheapest placement of one replica, or the reason why there is none.
pub(crate) fn place(pool: &Pool, requirements: &Requirements) -> Plan {
    plan(pool, requirements, false)
}

/// The same with a verdict on every place that was not chosen, for administrators.
pub(crate) fn explain(pool: &Pool, requirements: &Requirements) -> Plan {
    plan(pool, requirements, true)
}

/// Returns true if any of `devices` can hold a part of it.
pub(crate) fn fits_on(
    pool: &Pool,
    requirements: &Requirements,
    devices: &BTreeSet<DeviceId>,
) -> bool {
    let on = |choice: Choice| choice.devices.iter().any(|device| devices.contains(device));
    if parking::wake_choice(pool, requirements).is_some_and(on) {
        return true;
    }
    if requirements.nodes > 1 {
        return gang::choices(pool, requirements, Some(devices))
            .next()
            .is_some();
    }
    if requirements.devices > 1 {
        return group::choices(pool, requirements, Some(devices))
            .next()
            .is_some();
    }
    let claim = Claim::new(pool, requirements);
    devices.iter().any(|&device| {
        let Some(ledger) = pool.devices.get(&device) else {
            return false;
        };
        claim.needs_on(pool, device, ledger).is_ok_and(|needs| {
            let full = || FullDevice::new(pool, &claim, device, ledger, needs);
            pool.free_later(device) >= needs || evict(pool, &claim, &full()).is_some()
        })
    })
}

fn plan(pool: &Pool, requirements: &Requirements, explain: bool) -> Plan {
    let mut plan = Plan::empty(pool, requirements);
    let claim = Claim::new(pool, requirements);
    if let Some(refusal) = never_fits(pool, requirements) {
        plan.refusal = Some(refusal);
        plan.prospect = Prospect::Never;
        if explain {
            plan.candidates = obstacles::verdicts(pool, &claim, &BTreeSet::new(), &[]);
        }
        return plan;
    }
    let mut full = Vec::new();
    let (mut best, mut candidates) = cheapest_place(pool, &claim, explain, &mut full);
    if let Some(cost) = best.as_ref().map(|best| best.rank.cost)
        && cost.busy > 0
        && cost.highest_priority == Some(requirements.priority)
    {
        // An idle equal leaves before a busy one, even if its next request is near (P3).
        let past_idle = Requirements {
            past_idle: true,
            ..requirements.clone()
        };
        let past_idle = Claim::new(pool, &past_idle);
        let (other, seen) = cheapest_place(pool, &past_idle, explain, &mut Vec::new());
        if other
            .as_ref()
            .is_some_and(|other| other.rank.cost.busy < cost.busy)
        {
            (best, candidates) = (other, seen);
        }
    }
    plan.candidates = candidates;
    let wake = parking::wake_choice(pool, requirements);
    plan.candidates.extend(wake.iter().map(Choice::candidate));
    let best = parking::better(pool, requirements, best, wake);
    match best {
        Some(choice) => {
            plan.chosen = plan
                .candidates
                .iter()
                .position(|candidate| {
                    candidate.devices == choice.devices && candidate.wakes == choice.wakes
                })
                .unwrap_or(0);
            plan.cost = choice.rank.cost;
            plan.must_wait = choice.rank.must_wait;
            let share = |device: &DeviceId| requirements.share(pool, *device);
            plan.wakes = choice.wakes;
            if choice.wakes.is_some() {
                plan.takes = pool.models[&requirements.model].wake();
            }
            let parked = choice
                .wakes
                .and_then(|id| pool.replicas[&id].parked.as_ref());
            plan.placement = match parked {
                Some(parked) => parked.awake.clone(),
                None => choice.devices.iter().map(share).collect(),
            };
            plan.victims = choice
                .victims
                .iter()
                .map(|victim| victim.describe(pool))
                .collect();
            host_room::add_victims(pool, &claim, &mut plan);
            let is_forced = requirements.forced_by.is_some();
            // A victim of batches leaves only while it is idle, which may end.
            let is_for_batches = requirements.batch.is_some();
            let waits =
                |victim| !is_for_batches && together::may_wait(pool, &plan, victim, is_forced);
            let serves_on: Vec<bool> = plan.victims.iter().map(waits).collect();
            for (victim, serves_on) in plan.victims.iter_mut().zip(serves_on) {
                victim.serves_on = serves_on;
            }
        }
        None => {
            (plan.prospect, plan.retry) = obstacles::prospect(pool, &claim, &full);
            plan.refusal = Some(Refusal::NoRoom {
                needs: requirements.bytes,
                devices: requirements.devices,
                obstacles: obstacles::find(pool, &claim, &full),
            });
        }
    }
    if explain {
        let seen = plan
            .candidates
            .iter()
            .flat_map(|candidate| candidate.devices.iter());
        let seen: BTreeSet<DeviceId> = seen.copied().collect();
        let others = obstacles::verdicts(pool, &claim, &seen, &full);
        plan.candidates.extend(others);
    }
    plan
}

/// Fills `full` with the devices that lack memory, if it examines them.
fn cheapest_place(
    pool: &Pool,
    claim: &Claim,
    explain: bool,
    full: &mut Vec<FullDevice>,
) -> (Option<Choice>, Vec<Candidate>) {
    let mut candidates = Vec::new();
    let best = match claim.requirements.devices {
        1 => one_device(pool, claim, explain, full, &mut candidates),
        _ => several_devices(pool, claim.requirements, &mut candidates),
    };
    (best, candidates)
}

/// Prefers free memory over any eviction. Plans evictions only if no device has room, or to show what they would have cost.
fn one_device(
    pool: &Pool,
    claim: &Claim,
    explain: bool,
    full: &mut Vec<FullDevice>,
    candidates: &mut Vec<Candidate>,
) -> Option<Choice> {
    let free = if explain {
        FreeDevices::all(pool, claim)
    } else {
        FreeDevices::tightest(pool, claim)
    };
    candidates.extend(free.candidates());
    let mut best = free.best.map(|rank| Choice {
        rank,
        devices: vec![rank.device],
        victims: Vec::new(),
        wakes: None,
    });
    if best.is_some() && !explain {
        return best;
    }
    for (&device, ledger) in pool.devices.iter() {
        let Ok(needs) = claim.needs_on(pool, device, ledger) else {
            continue;
        };
        if pool.free_and_overrun(ledger).0 < needs {
            full.push(FullDevice::new(pool, claim, device, ledger, needs));
        }
    }
    for choice in full.iter().filter_map(|full| evict(pool, claim, full)) {
        candidates.push(choice.candidate());
        if best.as_ref().is_none_or(|best| choice.rank < best.rank) {
            best = Some(choice);
        }
    }
    best
}

fn evict(pool: &Pool, claim: &Claim, full: &FullDevice) -> Option<Choice> {
    let (device, free) = (full.device, full.free);
    let needs = full.needs + full.overrun;
    // On a full pool few devices can free enough, so costs are computed only for those.
    if free + full.may_free() < needs {
        return None;
    }
    let leaving = full.holders.iter().filter(|holder| holder.leaves.is_ok());
    let evictable: Vec<Evictable> = leaving
        .map(|holder| victims::leaving(pool, holder.replica))
        .collect();
    let domain = Domain {
        devices: vec![device],
        needs: vec![needs],
    };
    let (cost, victims) = cheapest(&domain, &[free], evictable)?;
    let freed = with_freed(&domain, &[free], &victims)[0];
    Some(Choice {
        rank: free_devices::rank_of(pool, claim, device, needs, freed, cost),
        devices: domain.devices,
        victims,
        wakes: None,
    })
}

fn several_devices(
    pool: &Pool,
    requirements: &Requirements,
    candidates: &mut Vec<Candidate>,
) -> Option<Choice> {
    let mut best: Option<Choice> = None;
    let choices: Vec<Choice> = if requirements.nodes > 1 {
        gang::choices(pool, requirements, None).collect()
    } else {
        group::choices(pool, requirements, None).collect()
    };
    for choice in choices {
        candidates.push(choice.candidate());
        if best.as_ref().is_none_or(|best| choice.rank < best.rank) {
            best = Some(choice);
        }
    }
    best
}

impl Choice {
    fn candidate(&self) -> Candidate {
        let verdict = if self.victims.is_empty() {
            Verdict::Free {
                left_over: self.rank.left_over,
            }
        } else {
            let replicas: Vec<ReplicaId> =
                self.victims.iter().map(|victim| victim.replica).collect();
            Verdict::Evicts {
                victims: replicas,
                cost: self.rank.cost,
            }
        };
        Candidate {
            devices: self.devices.clone(),
            wakes: self.wakes,
            verdict,
        }
    }
}

impl Evictable {
    pub(crate) fn describe(&self, pool: &Pool) -> Victim {
        Victim {
            replica: self.replica,
            model: self.model,
            name: pool.name(self.model),
            priority: pool.priority(self.model),
            busy: self.rank.busy,
            idle: pool
                .replicas
                .get(&self.replica)
                .and_then(Replica::idle_since)
                .map_or(Span::ZERO, |since| pool.now.since(since)),
            bytes: self.rank.bytes.0,
            reload: match pool.replicas.get(&self.replica) {
                Some(replica) => pool.back_after_eviction(replica),
                None => pool.comes_back_in(self.model),
            },
            asleep: pool.replicas.is_asleep(self.replica),
            planned: self.planned,
            lease: pool.models[&self.model].lease_left(pool.wall()),
            serves_on: false,
            only_batches: pool.replicas.get(&self.replica).is_some_and(|replica| {
                pool.serves_only_batches(replica, &pool.models[&replica.model])
            }),
        }
    }
}

impl Plan {
    pub(crate) fn empty(pool: &Pool, requirements: &Requirements) -> Plan {
        Plan {
            model: requirements.model,
            name: pool.name(requirements.model),
            priority: requirements.priority,
            devices: requirements.devices,
            nodes: requirements.nodes,
            bytes: requirements.bytes,
            placement: Vec::new(),
            victims: Vec::new(),
            cost: Cost::default(),
            must_wait: false,
            candidates: Vec::new(),
            chosen: 0,
            wakes: None,
            takes: pool.models[&requirements.model].reload(),
            fetches_for: pool.models[&requirements.model]
                .spec
                .absent
                .then(|| pool.fetched_in(requirements.model)),
            refusal: None,
            prospect: Prospect::Now,
            retry: None,
            node: None,
        }
    }
}
