//! Explains why a place is not used and whether waiting would help, for administrators and the queue. Read-only.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::plan::gang;
use crate::plan::holders;
use crate::plan::holders::{FullDevice, Holder};
use crate::plan::host_room::{self, HOST_READ_EVERY};
use crate::plan::keep_hot::keep_hot_ends;
use crate::plan::victims;
use crate::types::decision::{Candidate, Prospect, Verdict};
use crate::types::ids::{Bytes, DeviceId, ReplicaId, Time};
use crate::types::obstacle::{Blocker, NodeAway, Obstacle, Protection, Unfit};
use crate::types::requirements::Requirements;

/// The maximum number of obstacles listed in a refusal.
const OBSTACLES_MAX: usize = 16;
/// The maximum number of obstacles listed for one place.
const OBSTACLES_OF_PLACE_MAX: usize = 4;

/// The obstacles to the load on all devices that could serve it. `full` holds the devices that the plan has examined.
pub(crate) fn find(pool: &Pool, claim: &Claim, full: &[FullDevice]) -> Vec<Obstacle> {
    let mut found = Vec::new();
    for (&device, ledger) in pool.devices.iter() {
        match claim.needs_on(pool, device, ledger) {
            Ok(_) => {
                let full = looked_at(full, device);
                on_device(pool, claim, device, OBSTACLES_MAX, full, &mut found);
            }
            Err(Unfit::Cordoned { reason }) => {
                found.push(all_of(pool, device, Blocker::Cordoned { reason }));
            }
            Err(Unfit::NodeAway(away)) => {
                found.push(all_of(pool, device, Blocker::NodeAway(away)));
            }
            Err(Unfit::OldNode(old)) => {
                found.push(all_of(pool, device, Blocker::OldNode(old)));
            }
            Err(Unfit::HostFull { lacks }) => found.push(Obstacle {
                bytes: lacks,
                ..all_of(pool, device, Blocker::Host)
            }),
            Err(_) => {}
        }
        if found.len() >= OBSTACLES_MAX {
            break;
        }
    }
    found.truncate(OBSTACLES_MAX);
    found
}

/// A verdict on each device that was not `seen` as a place. `full` holds the devices that the plan has examined.
pub(crate) fn verdicts(
    pool: &Pool,
    claim: &Claim,
    seen: &BTreeSet<DeviceId>,
    full: &[FullDevice],
) -> Vec<Candidate> {
    // For a device without memory, "cannot free any" is not a useful verdict.
    let any_bytes = claim.requirements.bytes == Bytes::ZERO;
    pool.devices
        .iter()
        .filter(|(device, _)| !seen.contains(device))
        .filter(|(_, ledger)| any_bytes || ledger.total > Bytes::ZERO)
        .map(|(&device, ledger)| {
            let verdict = match claim.needs_on(pool, device, ledger) {
                Err(unfit) => Verdict::Unfit(unfit),
                Ok(_) => {
                    let mut obstacles = Vec::new();
                    on_device(
                        pool,
                        claim,
                        device,
                        OBSTACLES_OF_PLACE_MAX,
                        looked_at(full, device),
                        &mut obstacles,
                    );
                    Verdict::Blocked { obstacles }
                }
            };
            Candidate {
                devices: vec![device],
                wakes: None,
                verdict,
            }
        })
        .collect()
}

fn all_of(pool: &Pool, device: DeviceId, what: Blocker) -> Obstacle {
    let ledger = &pool.devices[&device];
    Obstacle {
        device,
        name: ledger.name.clone(),
        bytes: ledger.capacity(),
        what,
    }
}

/// The device as the plan has examined it. `full` is sorted by device id.
fn looked_at(full: &[FullDevice], device: DeviceId) -> Option<&FullDevice> {
    let nth = full
        .binary_search_by_key(&device, |full| full.device)
        .ok()?;
    Some(&full[nth])
}

fn on_device(
    pool: &Pool,
    claim: &Claim,
    device: DeviceId,
    most: usize,
    full: Option<&FullDevice>,
    found: &mut Vec<Obstacle>,
) {
    let ledger = &pool.devices[&device];
    let mut push = |bytes: Bytes, what: Blocker| {
        found.push(Obstacle {
            device,
            name: ledger.name.clone(),
            bytes,
            what,
        });
    };
    if ledger.foreign > Bytes::ZERO {
        push(ledger.foreign, Blocker::Foreign);
    }
    if ledger.settling > Bytes::ZERO {
        push(ledger.settling, Blocker::Settling);
    }
    let stays = |holder: Holder| {
        if let Err(why) = holder.leaves
            && let Some(what) = blocker(pool, holder.replica, why)
        {
            push(holder.held, what);
        }
    };
    match full {
        Some(full) => full.holders.iter().copied().take(most).for_each(stays),
        None => {
            let holders = holders::on(pool, claim, device, ledger);
            holders.take(most).for_each(stays);
        }
    }
}

fn blocker(pool: &Pool, holder: ReplicaId, why: Protection) -> Option<Blocker> {
    if let Some(planned) = pool.planned.get(&holder) {
        let (model, priority) = (pool.name(planned.model), pool.priority(planned.model));
        return Some(Blocker::Planned { model, priority });
    }
    if why == Protection::Leaving {
        return None;
    }
    let replica = &pool.replicas[&holder];
    let (model, priority) = (pool.name(replica.model), pool.priority(replica.model));
    Some(Blocker::Replica {
        replica: holder,
        model,
        priority,
        why,
    })
}

/// The time at which a device could free enough memory.
#[derive(Clone, Copy, Default)]
struct Reach {
    /// After turns end, loads finish and minimum residences pass.
    soon: bool,
    /// After replicas of higher priority leave on their own, or a cordon ends.
    later: bool,
}

/// Returns the chance that waiting helps, and the time of the next attempt. `full` holds the devices that the plan has examined.
pub(crate) fn prospect(
    pool: &Pool,
    claim: &Claim,
    full: &[FullDevice],
) -> (Prospect, Option<Time>) {
    let requirements = claim.requirements;
    let enough = requirements.devices_per_node();
    let mut retry: Option<Time> = None;
    let mut of_node = |node: &BTreeSet<DeviceId>| {
        let (mut soon, mut later) = (0, 0);
        for &device in node {
            let reach = reach(pool, claim, device, looked_at(full, device), &mut retry);
            soon += u32::from(reach.soon);
            later += u32::from(reach.later);
        }
        (soon >= enough, later >= enough)
    };
    let mut best = Reach::default();
    if requirements.nodes > 1 {
        for nodes in gang::alike(pool, requirements.nodes).values() {
            let (mut soon, mut later) = (0, 0);
            for node in nodes {
                let (is_soon, is_later) = of_node(node);
                soon += u32::from(is_soon);
                later += u32::from(is_later);
            }
            best.soon |= soon >= requirements.nodes;
            best.later |= later >= requirements.nodes;
        }
    } else {
        for node in pool.nodes.device_sets() {
            let (soon, later) = of_node(node);
            best.soon |= soon;
            best.later |= later;
        }
    }
    best.soon |= pool.unknown_node_may_return();
    let prospect = match (best.soon, best.later) {
        (true, _) => Prospect::Soon,
        (false, true) => Prospect::WhenOthersLeave,
        (false, false) => Prospect::Never,
    };
    (prospect, retry)
}

/// The next time at which these devices may be able to free more without an event. A replica that spans several devices needs
/// others of the node as well. A replica there that could leave when the demand was blocked may be busy now, until its turn ends.
pub(crate) fn retry_on(
    pool: &Pool,
    requirements: &Requirements,
    devices: &BTreeSet<DeviceId>,
) -> Option<Time> {
    let claim = Claim::new(pool, requirements);
    let mut retry = None;
    let mut look = |device: &DeviceId| {
        reach(pool, &claim, *device, None, &mut retry);
    };
    if requirements.nodes > 1 {
        pool.devices.keys().for_each(&mut look);
    } else if requirements.devices > 1 {
        let nodes = pool.nodes.device_sets();
        let concerned = nodes.filter(|node| !node.is_disjoint(devices));
        concerned.flatten().for_each(&mut look);
    } else {
        let known = devices.iter().filter(|id| pool.devices.contains_key(id));
        known.for_each(&mut look);
    }
    retry
}

/// Returns the time at which the holder's memory returns, if the protection ends.
fn ends(why: Protection) -> Reach {
    let (soon, later) = match why {
        Protection::Turn { .. }
        | Protection::Young { .. }
        | Protection::NotWorth { .. }
        | Protection::Loading
        | Protection::Wanted
        | Protection::Unserved
        | Protection::Busy => (true, true),
        // Requests wait for it. An administrator's load is refused immediately: an idle replica may get a request, and a lease may be
        // extended. Two loads that need the same place do not both succeed one after the other.
        Protection::Yields { .. }
        | Protection::Leased { .. }
        | Protection::Ordered { .. }
        | Protection::Forced { .. }
        | Protection::Batch { .. }
        | Protection::HigherPriority => (false, true),
        Protection::AlwaysHot | Protection::Same | Protection::Leaving | Protection::Growth => {
            (false, false)
        }
    };
    Reach { soon, later }
}

fn reach(
    pool: &Pool,
    claim: &Claim,
    device: DeviceId,
    full: Option<&FullDevice>,
    retry: &mut Option<Time>,
) -> Reach {
    let ledger = &pool.devices[&device];
    let mut look_at = |at: Time| *retry = Some(retry.map_or(at, |known| known.min(at)));
    let needs = match full {
        Some(full) => Ok(full.needs),
        None => claim.needs_on(pool, device, ledger),
    };
    let needs = match needs {
        Ok(needs) => needs,
        // A cordon with an end is waited for; a permanent one is not.
        Err(Unfit::Cordoned { .. }) => {
            let until = ledger.closed().and_then(|cordon| cordon.until);
            let later = until.is_some_and(|until| until > pool.now);
            return Reach { soon: false, later };
        }
        // Either its node comes back, or the event that it is gone ends the wait.
        Err(Unfit::NodeAway(away)) => {
            return Reach {
                soon: !matches!(away, NodeAway::Released { .. } | NodeAway::Ends { .. }),
                later: true,
            };
        }
        // Other programs return host memory without an event.
        Err(Unfit::HostFull { .. }) => {
            look_at(pool.now + HOST_READ_EVERY);
            for holder in pool.holders_of_host(ledger.node) {
                let protection = victims::evictable(pool, claim, holder).err();
                if let Some(left) = protection.and_then(Protection::ends_in) {
                    look_at(pool.now + left);
                }
            }
            let leaves_soon = |holder| {
                let protection = victims::may_leave(pool, claim, holder).err();
                protection.is_none_or(|why| ends(why).soon)
            };
            return Reach {
                soon: host_room::suffices(pool, claim, ledger.node, leaves_soon),
                later: true,
            };
        }
        Err(_) => {
            // A new replica never fits here, but a smaller sleeper on this device may wake.
            let model = claim.requirements.model;
            let sleeps_here = |id: &ReplicaId| {
                pool.replicas
                    .get(id)
                    .is_some_and(|replica| replica.model == model && pool.replicas.is_asleep(*id))
            };
            if ledger.holders.iter().any(sleeps_here) {
                for holder in holders::on(pool, claim, device, ledger) {
                    if let Some(left) = holder.leaves.err().and_then(Protection::ends_in) {
                        look_at(pool.now + left);
                    }
                }
            }
            return Reach::default();
        }
    };
    let (free, overrun) = match full {
        Some(full) => (full.free, full.overrun),
        None => pool.free_and_overrun(ledger),
    };
    let needs = needs + overrun;
    let (mut soon, mut later) = (free, free);
    let count = |holder: Holder| {
        let held = holder.held;
        let Err(why) = holder.leaves else {
            (soon, later) = (soon + held, later + held);
            return;
        };
        if let Some(left) = why.ends_in() {
            look_at(pool.now + left);
        }
        // An idle replica of higher priority leaves when its keep-hot time ends.
        if why == Protection::HigherPriority
            && let Some(at) = keep_hot_ends(pool, holder.replica)
        {
            look_at(at);
        }
        let ends = ends(why);
        if ends.soon {
            soon = soon + held;
        }
        if ends.later {
            later = later + held;
        }
    };
    match full {
        Some(full) => full.holders.iter().copied().for_each(count),
        None => holders::on(pool, claim, device, ledger).for_each(count),
    }
    Reach {
        soon: soon >= needs,
        later: later >= needs,
    }
}
