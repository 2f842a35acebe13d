//! Where a replica goes and what leaves for it (P2–P5, M3, M5, M6). Pure: the same function decides
//! loads and answers `plan`, which carries nothing out.

use super::decision::{Candidate, Plan, Prospect, Verdict, Victim};
use super::ids::{Bytes, DeviceId, ModelId, OrderId, Priority, ReplicaId, Time};
use super::plan::keep_hot_ends;
use super::rank::PlaceRank;
use super::reason::{Blocker, Obstacle, Protection, Refusal};
use super::state::Pool;
use super::victims::{self, Evictable};

/// What is asked for: one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub model: ModelId,
    pub priority: Priority,
    /// Devices of one node.
    pub devices: u32,
    /// On each of them.
    pub bytes: Bytes,
    /// The order that forces it past equals and always-hot models (P4).
    pub forced_by: Option<OrderId>,
    /// Since when somebody waits: who came earlier is not evicted for it (P5).
    pub since: Time,
}

/// The obstacles listed in a refusal; enough to see what is wrong.
const OBSTACLES_MAX: usize = 16;

/// Devices that could hold a replica together: one device, or the devices of one node.
pub(super) struct Domain {
    pub devices: Vec<DeviceId>,
}

/// The cheapest way to place one replica, or why there is none.
pub(super) fn place(pool: &Pool, ask: &Ask) -> Plan {
    let mut plan = Plan::empty(pool, ask);
    if let Some(refusal) = never_fits(pool, ask) {
        plan.refusal = Some(refusal);
        plan.prospect = Prospect::Never;
        return plan;
    }
    let domains = domains(pool, ask);
    let mut best: Option<(PlaceRank, Vec<DeviceId>, Vec<Evictable>)> = None;
    let mut obstacles = Vec::new();
    for (nth, domain) in domains.iter().enumerate() {
        let device = domain.devices[0];
        let verdict = match choose(pool, ask, domain, &mut obstacles) {
            Some((rank, devices, victims)) => {
                let verdict = if victims.is_empty() {
                    Verdict::Free {
                        left_over: rank.left_over,
                    }
                } else {
                    Verdict::Evicts {
                        victims: victims.iter().map(|it| it.replica).collect(),
                        cost: rank.cost,
                    }
                };
                if best.as_ref().is_none_or(|(least, ..)| rank < *least) {
                    plan.chosen = nth;
                    best = Some((rank, devices, victims));
                }
                verdict
            }
            None => Verdict::Blocked,
        };
        plan.candidates.push(Candidate { device, verdict });
    }
    match best {
        Some((rank, devices, victims)) => {
            plan.cost = rank.cost;
            plan.must_wait = rank.must_wait;
            plan.placement = devices.iter().map(|&device| ask.share(device)).collect();
            plan.victims = victims.iter().map(|it| it.describe(pool)).collect();
        }
        None => {
            (plan.prospect, plan.retry) = prospect(pool, ask, &domains);
            obstacles.truncate(OBSTACLES_MAX);
            plan.refusal = Some(Refusal::NoRoom {
                needs: ask.bytes,
                devices: ask.devices,
                obstacles,
            });
        }
    }
    plan
}

fn domains(pool: &Pool, ask: &Ask) -> Vec<Domain> {
    let large_enough = |device: &&DeviceId| pool.devices[*device].capacity() >= ask.bytes;
    if ask.devices == 1 {
        return pool
            .devices
            .keys()
            .filter(large_enough)
            .map(|&device| Domain {
                devices: vec![device],
            })
            .collect();
    }
    pool.nodes
        .values()
        .map(|node| Domain {
            devices: node.iter().filter(large_enough).copied().collect(),
        })
        .filter(|domain| domain.devices.len() >= ask.devices as usize)
        .collect()
}

/// M6: not even when the pool is empty.
pub(super) fn never_fits(pool: &Pool, ask: &Ask) -> Option<Refusal> {
    let fitting = |node: &std::collections::BTreeSet<DeviceId>| {
        node.iter()
            .filter(|device| pool.devices[device].capacity() >= ask.bytes)
            .count()
    };
    let most = pool.nodes.values().map(fitting).max().unwrap_or(0);
    if most >= ask.devices as usize {
        return None;
    }
    let largest = pool
        .devices
        .values()
        .map(|device| device.capacity())
        .max()
        .unwrap_or_default();
    let devices_that_fit = u32::try_from(most).unwrap_or(u32::MAX);
    Some(Refusal::NeverFits {
        needs: ask.bytes,
        devices: ask.devices,
        largest,
        devices_that_fit,
    })
}

type Choice = (PlaceRank, Vec<DeviceId>, Vec<Evictable>);

fn choose(
    pool: &Pool,
    ask: &Ask,
    domain: &Domain,
    obstacles: &mut Vec<Obstacle>,
) -> Option<Choice> {
    let free: Vec<Bytes> = domain
        .devices
        .iter()
        .map(|device| pool.devices[device].free_later())
        .collect();
    if let Some((rank, devices)) = pick(pool, ask, domain, &free) {
        return Some((rank, devices, Vec::new()));
    }
    let mut evictable = Vec::new();
    for &device in &domain.devices {
        let ledger = &pool.devices[&device];
        if ledger.foreign > Bytes::ZERO {
            obstacles.push(Obstacle {
                device,
                name: ledger.name.clone(),
                bytes: ledger.foreign,
                what: Blocker::Foreign,
            });
        }
        for &holder in &ledger.holders {
            if evictable.iter().any(|it: &Evictable| it.replica == holder) {
                continue;
            }
            match victims::evictable(pool, ask, holder) {
                Ok(victim) => evictable.push(victim),
                Err(why) => obstacles.extend(obstacle(pool, device, holder, why)),
            }
        }
    }
    let (cost, chosen) = victims::cheapest(ask, domain, &free, evictable)?;
    let freed = victims::with_freed(domain, &free, &chosen);
    let (mut rank, devices) = pick(pool, ask, domain, &freed).expect("the victims make it fit");
    rank.cost = cost;
    Some((rank, devices, chosen))
}

/// The tightest devices of the domain that have room, given what each has free.
fn pick(
    pool: &Pool,
    ask: &Ask,
    domain: &Domain,
    free: &[Bytes],
) -> Option<(PlaceRank, Vec<DeviceId>)> {
    let mut fitting: Vec<PlaceRank> = domain
        .devices
        .iter()
        .zip(free)
        .filter(|(_, free)| **free >= ask.bytes)
        .map(|(&device, free)| PlaceRank {
            cost: Default::default(),
            must_wait: pool.devices[&device].free_now() < ask.bytes,
            left_over: free.saturating_sub(ask.bytes),
            device,
        })
        .collect();
    let count = ask.devices as usize;
    if fitting.len() < count {
        return None;
    }
    fitting.sort();
    fitting.truncate(count);
    let rank = PlaceRank {
        must_wait: fitting.iter().any(|it| it.must_wait),
        left_over: fitting.iter().map(|it| it.left_over).sum(),
        ..fitting[0]
    };
    Some((rank, fitting.iter().map(|it| it.device).collect()))
}

fn obstacle(pool: &Pool, device: DeviceId, holder: ReplicaId, why: Protection) -> Option<Obstacle> {
    let name = pool.devices[&device].name.clone();
    let on_device = |shares: &[super::action::Share]| {
        shares
            .iter()
            .find(|share| share.device == device)
            .map_or(Bytes::ZERO, |share| share.bytes)
    };
    if let Some(planned) = pool.planned.get(&holder) {
        let (model, priority) = (pool.name(planned.model), pool.priority(planned.model));
        let what = Blocker::Planned { model, priority };
        return Some(Obstacle {
            device,
            name,
            bytes: on_device(&planned.shares),
            what,
        });
    }
    let replica = &pool.replicas[&holder];
    if why == Protection::Leaving {
        return None;
    }
    let (model, priority) = (pool.name(replica.model), pool.priority(replica.model));
    let what = Blocker::Replica {
        replica: holder,
        model,
        priority,
        why,
    };
    Some(Obstacle {
        device,
        name,
        bytes: on_device(&replica.shares),
        what,
    })
}

/// Whether waiting can help, and when to look again.
fn prospect(pool: &Pool, ask: &Ask, domains: &[Domain]) -> (Prospect, Option<Time>) {
    let mut retry: Option<Time> = None;
    let mut reach = |passes: fn(Protection) -> bool| {
        domains.iter().any(|domain| {
            let mut free: Vec<Bytes> = domain
                .devices
                .iter()
                .map(|device| pool.devices[device].free_later())
                .collect();
            for (nth, device) in domain.devices.iter().enumerate() {
                let ledger = &pool.devices[device];
                for &holder in &ledger.holders {
                    let goes = match victims::evictable(pool, ask, holder) {
                        Ok(_) => true,
                        Err(why) => {
                            let at = match why {
                                Protection::Turn { left } | Protection::Young { left } => {
                                    Some(pool.now + left)
                                }
                                // What is idle and higher leaves by its keep-hot time.
                                Protection::HigherPriority => keep_hot_ends(pool, holder),
                                _ => None,
                            };
                            retry = retry.into_iter().chain(at).min();
                            why != Protection::Leaving && passes(why)
                        }
                    };
                    if goes {
                        free[nth] = free[nth] + pool.held(holder, *device);
                    }
                }
            }
            free.iter().filter(|bytes| **bytes >= ask.bytes).count() >= ask.devices as usize
        })
    };
    let soon = reach(|why| {
        matches!(
            why,
            Protection::Turn { .. }
                | Protection::Young { .. }
                | Protection::Loading
                | Protection::Wanted
                | Protection::Unserved
        )
    });
    let later = soon || reach(|why| why != Protection::AlwaysHot && why != Protection::Same);
    let prospect = match (soon, later) {
        (true, _) => Prospect::Soon,
        (false, true) => Prospect::WhenOthersLeave,
        (false, false) => Prospect::Never,
    };
    (prospect, retry)
}

impl Ask {
    /// One more replica of the model, as its specification has it.
    pub(super) fn of(pool: &Pool, model: ModelId, since: Time) -> Ask {
        let spec = &pool.models[&model].spec;
        Ask {
            model,
            priority: pool.priority(model),
            devices: spec.devices_per_replica.max(1),
            bytes: spec.bytes_per_device,
            forced_by: None,
            since,
        }
    }

    /// The same weights over another number of devices.
    pub(super) fn over_devices(mut self, devices: Option<u32>) -> Ask {
        if let Some(devices) = devices.filter(|devices| *devices >= 1) {
            let all = u128::from(self.bytes.0) * u128::from(self.devices);
            self.bytes = Bytes(all.div_ceil(u128::from(devices)) as u64);
            self.devices = devices;
        }
        self
    }

    pub(super) fn share(&self, device: DeviceId) -> super::action::Share {
        super::action::Share {
            device,
            bytes: self.bytes,
        }
    }
}

impl Evictable {
    fn describe(&self, pool: &Pool) -> Victim {
        Victim {
            replica: self.replica,
            model: self.model,
            name: pool.name(self.model),
            priority: self.priority,
            busy: self.rank.busy,
            bytes: self.rank.bytes.0,
            reload: pool.models[&self.model].spec.reload,
            planned: self.planned,
        }
    }
}
