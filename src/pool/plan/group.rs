//! Groups of devices on one node, for a replica or its part on one node that spans several (M5). Grows a group from each device by adding the devices that
//! are cheapest to free and best connected. On a node with few devices, it also tries every other group that would cost less (P5).
//! This file only proposes groups; their ranks decide.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::plan::cheapest::{Domain, cheapest, with_freed};
use crate::plan::claim::Claim;
use crate::plan::victims;
use crate::types::choice::{Choice, Evictable};
use crate::types::ids::{Bytes, DeviceId, ReplicaId};
use crate::types::link::Link;
use crate::types::rank::{Cost, PlaceRank};
use crate::types::requirements::Requirements;

/// Up to this many groups per node, the cheapest is certain to be found. This covers all groups of a node with eight devices.
const GROUPS_MAX: usize = 128;

/// A device of the node, and the cost of freeing enough memory on it.
struct Member {
    device: DeviceId,
    needs: Bytes,
    free: Bytes,
    must_wait: bool,
    /// `None`: no allowed eviction frees enough.
    cost: Option<Cost>,
    /// The victims for this device alone.
    victims: Vec<Evictable>,
    /// Every replica that may leave, and the bytes it would free here.
    holders: Vec<(ReplicaId, Bytes)>,
}

impl Member {
    fn victim_ids(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.victims.iter().map(|victim| victim.replica)
    }
}

/// Possible placements: without evictions if a node has enough free memory, otherwise with them. `touching` restricts the search to
/// nodes that have any of these devices.
pub(crate) fn choices<'a>(
    pool: &'a Pool,
    requirements: &'a Requirements,
    touching: Option<&'a BTreeSet<DeviceId>>,
) -> impl Iterator<Item = Choice> + 'a {
    let nodes: Vec<_> = pool
        .nodes
        .device_sets()
        .filter(move |node| touching.is_none_or(|some| !node.is_disjoint(some)))
        .collect();
    let with_room: Vec<Choice> = nodes
        .iter()
        .flat_map(|node| without_eviction(pool, requirements, node))
        .collect();
    let evicting = with_room.is_empty();
    // A caller that only checks for a placement does not need the best one.
    let any_will_do = touching.is_some();
    let mut best: Option<Cost> = None;
    let with_victims = nodes
        .into_iter()
        .filter(move |_| evicting)
        .flat_map(move |node| {
            let found = with_eviction(pool, requirements, node, any_will_do, best);
            best = best
                .into_iter()
                .chain(found.iter().map(|choice| choice.rank.cost))
                .min();
            found
        });
    with_room.into_iter().chain(with_victims)
}

/// Returns true if a group on this node needs no eviction.
pub(crate) fn has_room_on(
    pool: &Pool,
    requirements: &Requirements,
    node: &BTreeSet<DeviceId>,
) -> bool {
    !without_eviction(pool, requirements, node).is_empty()
}

/// The best group on this node, without evictions if possible.
pub(crate) fn best_on(
    pool: &Pool,
    requirements: &Requirements,
    node: &BTreeSet<DeviceId>,
) -> Option<Choice> {
    let mut found = without_eviction(pool, requirements, node);
    if found.is_empty() {
        found = with_eviction(pool, requirements, node, false, None);
    }
    found.into_iter().min_by_key(|choice| choice.rank)
}

fn members<'a>(
    pool: &'a Pool,
    requirements: &'a Requirements,
    node: &'a BTreeSet<DeviceId>,
) -> impl Iterator<Item = Member> + 'a {
    let claim = Claim::new(pool, requirements);
    node.iter().filter_map(move |&device| {
        let ledger = &pool.devices[&device];
        let (free, overrun) = pool.free_and_overrun(ledger);
        let needs = claim.needs_on(pool, device, ledger).ok()? + overrun;
        Some(Member {
            device,
            needs,
            free,
            must_wait: ledger.free_now() < needs || pool.reads_on(requirements.model, ledger.node),
            cost: (free >= needs).then(Cost::default),
            victims: Vec::new(),
            holders: Vec::new(),
        })
    })
}

fn without_eviction(
    pool: &Pool,
    requirements: &Requirements,
    node: &BTreeSet<DeviceId>,
) -> Vec<Choice> {
    let members: Vec<Member> = members(pool, requirements, node)
        .filter(|member| member.cost.is_some())
        .collect();
    groups(pool, requirements, &members)
        .into_iter()
        .map(|group| {
            let chosen: Vec<&Member> = group.iter().map(|&nth| &members[nth]).collect();
            let freed: Vec<Bytes> = chosen.iter().map(|member| member.free).collect();
            choice(
                pool,
                requirements,
                &chosen,
                &freed,
                Cost::default(),
                Vec::new(),
            )
        })
        .collect()
}

fn with_eviction(
    pool: &Pool,
    requirements: &Requirements,
    node: &BTreeSet<DeviceId>,
    any_will_do: bool,
    best: Option<Cost>,
) -> Vec<Choice> {
    let claim = Claim::new(pool, requirements);
    // On a full pool few nodes can free enough, so costs are computed only for those.
    let possible = members(pool, requirements, node).filter_map(|member| {
        let holders = pool.devices[&member.device].holders.iter().copied();
        let leaves = |holder: &ReplicaId| victims::may_leave(pool, &claim, *holder).is_ok();
        let leaving: Vec<ReplicaId> = holders.filter(leaves).collect();
        let (device, free, needs) = (member.device, member.free, member.needs);
        victims::frees_enough(pool, device, free, needs, &leaving).then_some((member, leaving))
    });
    let (mut members, leaving): (Vec<Member>, Vec<Vec<ReplicaId>>) = possible.unzip();
    if members.len() < requirements.devices as usize {
        return Vec::new();
    }
    // With only one possible group there is nothing to compare, so the cost of each single device is not needed.
    let is_only_group = members.len() == requirements.devices as usize;
    let mut all: BTreeMap<ReplicaId, Evictable> = BTreeMap::new();
    for (member, leaving) in members.iter_mut().zip(leaving) {
        let mut here = Vec::new();
        for holder in leaving {
            let victim = victims::leaving(pool, holder);
            if !is_only_group {
                member
                    .holders
                    .push((holder, pool.held(holder, member.device)));
                here.push(victim.clone());
            }
            all.insert(holder, victim);
        }
        if is_only_group {
            member.cost = Some(Cost::default());
        }
        if member.cost.is_none() {
            let domain = Domain {
                devices: vec![member.device],
                needs: vec![member.needs],
            };
            if let Some((cost, victims)) = cheapest(&domain, &[member.free], here) {
                (member.cost, member.victims) = (Some(cost), victims);
            }
        }
    }
    members.retain(|member| member.cost.is_some());
    if is_only_group {
        let chosen: Vec<&Member> = members.iter().collect();
        let all = all.into_values().collect();
        return evicting(pool, requirements, &chosen, all)
            .into_iter()
            .collect();
    }
    let groups = groups(pool, requirements, &members);
    let touching = |group: &[usize]| -> Option<Choice> {
        let chosen: Vec<&Member> = group.iter().map(|&nth| &members[nth]).collect();
        let touches = |victim: &&Evictable| {
            let on = |device| chosen.iter().any(|member| member.device == device);
            victim.shares.iter().any(|share| on(share.device))
        };
        let evictable = all.values().filter(touches).cloned().collect();
        evicting(pool, requirements, &chosen, evictable)
    };
    let mut found: Vec<Choice> = groups.iter().filter_map(|group| touching(group)).collect();
    if any_will_do {
        return found;
    }
    let mut best = best
        .into_iter()
        .chain(found.iter().map(|choice| choice.rank.cost))
        .min();
    for (least, group) in every_group(requirements, &members) {
        if best.is_some_and(|best| least >= best) {
            break;
        }
        if groups.contains(&group) {
            continue;
        }
        // Reports an additional group only if it is better than the best one so far.
        let choice = touching(&group);
        if let Some(choice) =
            choice.filter(|choice| best.is_none_or(|best| choice.rank.cost < best))
        {
            best = Some(choice.rank.cost);
            found.push(choice);
        }
    }
    found
}

/// The group of these devices, with the cheapest victims that free enough on all of them.
fn evicting(
    pool: &Pool,
    requirements: &Requirements,
    chosen: &[&Member],
    evictable: Vec<Evictable>,
) -> Option<Choice> {
    let domain = Domain {
        devices: chosen.iter().map(|member| member.device).collect(),
        needs: chosen.iter().map(|member| member.needs).collect(),
    };
    let free: Vec<Bytes> = chosen.iter().map(|member| member.free).collect();
    let (cost, victims) = cheapest(&domain, &free, evictable)?;
    let freed = with_freed(&domain, &free, &victims);
    Some(choice(pool, requirements, chosen, &freed, cost, victims))
}

/// Every set of the required size, if there are few enough, with a lower bound of its cost: the cost of its most expensive member
/// alone. The cheapest comes first.
fn every_group(requirements: &Requirements, members: &[Member]) -> Vec<(Cost, Vec<usize>)> {
    let count = requirements.devices as usize;
    let mut groups = Vec::new();
    if sets(members.len(), count) > GROUPS_MAX {
        return groups;
    }
    let mut group: Vec<usize> = (0..count).collect();
    loop {
        let least = group.iter().filter_map(|&nth| members[nth].cost).max();
        groups.push((least.unwrap_or_default(), group.clone()));
        // Advances the last index that can advance; the indices behind it follow.
        let ends = |place: &usize| group[*place] < members.len() - count + place;
        let Some(place) = (0..count).rev().find(ends) else {
            break;
        };
        let first = group[place] + 1;
        for (nth, later) in group[place..].iter_mut().enumerate() {
            *later = first + nth;
        }
    }
    groups.sort();
    groups
}

/// The number of sets of `count` among `members`; a result above `GROUPS_MAX` need not be exact.
fn sets(members: usize, count: usize) -> usize {
    if count > members {
        return usize::MAX;
    }
    let few = count.min(members - count);
    (0..few).fold(1_usize, |sets, nth| {
        sets.saturating_mul(members - nth) / (nth + 1)
    })
}

/// Candidate sets of the required size, without duplicates. Grows a set from every member, adding the cheapest other member and
/// then the nearest among equals, and once more with the two criteria swapped.
fn groups(pool: &Pool, requirements: &Requirements, members: &[Member]) -> BTreeSet<Vec<usize>> {
    let mut groups = BTreeSet::new();
    let count = requirements.devices as usize;
    if members.len() < count {
        return groups;
    }
    if members.len() == count {
        groups.insert((0..count).collect());
        return groups;
    }
    for start in 0..members.len() {
        for nearest_first in [false, true] {
            groups.insert(grow(pool, requirements, members, start, nearest_first));
        }
    }
    groups
}

fn grow(
    pool: &Pool,
    requirements: &Requirements,
    members: &[Member],
    start: usize,
    nearest_first: bool,
) -> Vec<usize> {
    let from = &pool.devices[&members[start].device];
    let mut group = vec![start];
    // A victim that spans several devices frees memory on all of them, but its cost counts once.
    let mut leaving: BTreeSet<ReplicaId> = members[start].victim_ids().collect();
    while group.len() < requirements.devices as usize {
        let next = (0..members.len())
            .filter(|nth| !group.contains(nth))
            .min_by_key(|&nth| {
                let member = &members[nth];
                let freed: Bytes = member
                    .holders
                    .iter()
                    .filter(|(id, _)| leaving.contains(id))
                    .map(|(_, bytes)| *bytes)
                    .sum();
                let cost = if member.free + freed >= member.needs {
                    Some(Cost::default())
                } else {
                    member.cost
                };
                let link = from.link(member.device);
                let far = nearest_first.then_some(link);
                let left_over = member.free.saturating_sub(member.needs);
                let tail = (link, member.must_wait, left_over, member.device);
                (far, cost, tail)
            });
        let Some(next) = next else { break };
        leaving.extend(members[next].victim_ids());
        group.push(next);
    }
    group.sort_unstable();
    group
}

fn choice(
    pool: &Pool,
    requirements: &Requirements,
    chosen: &[&Member],
    freed: &[Bytes],
    cost: Cost,
    victims: Vec<Evictable>,
) -> Choice {
    let devices: Vec<DeviceId> = chosen.iter().map(|member| member.device).collect();
    let mut worst = Link::NvLink;
    for (nth, one) in devices.iter().enumerate() {
        for other in &devices[nth + 1..] {
            worst = worst.max(pool.devices[one].link(*other));
        }
    }
    let left_over = chosen
        .iter()
        .zip(freed)
        .map(|(member, freed)| freed.saturating_sub(member.needs))
        .sum();
    let must_wait = chosen.iter().any(|member| member.must_wait);
    Choice {
        rank: PlaceRank {
            cost,
            link: worst,
            fetches: pool.lacks_weights(pool.devices[&devices[0]].node, requirements.model),
            must_wait,
            left_over,
            device: devices[0],
        },
        devices,
        victims,
        wakes: None,
    }
}
