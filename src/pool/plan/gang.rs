//! Places a replica that spans several nodes (M8): the same number of devices on nodes of one kind, all or nothing. Proposes sets of
//! nodes; their ranks decide.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::cheapest::{Domain, cheapest, with_freed};
use crate::plan::claim::Claim;
use crate::plan::{group, victims};
use crate::types::choice::{Choice, Evictable};
use crate::types::gang::GangReach;
use crate::types::ids::{Bytes, DeviceId, KindId, NodeId, ReplicaId};
use crate::types::model::NodeSpan;
use crate::types::obstacle::OldNode;
use crate::types::rank::{Cost, PlaceRank};
use crate::types::requirements::Requirements;

/// The number of nodes from which sets are grown: the cheapest ones first.
const STARTS_MAX: usize = 8;

/// The number of nodes that a refusal names.
const NAMED_MAX: usize = 4;

/// Nodes with equal numbers of devices of the same kinds are alike if they reach each other.
type Kind<'a> = (&'a GangReach, Vec<KindId>, usize);

/// The number of nodes over which this number of devices is spread (M8).
pub(crate) fn nodes_for(pool: &Pool, model: &Model, devices: u32) -> u32 {
    match model.spec.nodes {
        NodeSpan::Exactly(nodes) if nodes > 0 && devices.is_multiple_of(nodes) => nodes,
        NodeSpan::AsNeeded if devices > 1 => {
            let shapes = pool.node_demand.shapes().values();
            let largest = pool.nodes.device_sets().map(BTreeSet::len);
            let largest = largest
                .chain(shapes.map(|shape| shape.devices as usize))
                .max();
            if largest.unwrap_or_default() >= devices as usize {
                return 1;
            }
            let kinds = alike(pool, 1);
            let holds = |count: &u32| {
                let each = (devices / count) as usize;
                let mut kinds = kinds.iter();
                kinds.any(|((.., size), nodes)| *size >= each && nodes.len() >= *count as usize)
            };
            let most = kinds.keys().map(|(.., size)| *size).max();
            let most = u32::try_from(most.unwrap_or_default()).unwrap_or(u32::MAX);
            let mut counts = (2..=devices).filter(|count| devices.is_multiple_of(*count));
            let fitting = counts.clone().find(holds);
            let from_cluster = |count: &u32| {
                let mut shapes = pool.node_demand.shapes().values();
                let most = pool.limits.nodes_max;
                shapes.any(|shape| {
                    let most = most.into_iter().chain(shape.nodes_max).min();
                    shape.devices >= devices / count && most.is_none_or(|most| most >= *count)
                })
            };
            // The refusal names the fewest nodes that would hold it.
            fitting
                .or_else(|| counts.clone().find(from_cluster))
                .or_else(|| counts.find(|count| devices / count <= most))
                .unwrap_or(1)
        }
        NodeSpan::One | NodeSpan::Exactly(_) | NodeSpan::AsNeeded => 1,
    }
}

/// The nodes other than the controller's own machine that have devices. Members of a gang reach each other at addresses of nodes.
fn remote(pool: &Pool) -> impl Iterator<Item = (NodeId, &GangReach)> {
    let nodes = pool.nodes.with_devices().filter(|node| *node != NodeId(0));
    nodes.map(|node| (node, pool.nodes.reach(node)))
}

/// The devices of nodes that are alike and can hold a replica together, where there are at least `count` of them.
pub(crate) fn alike(pool: &Pool, count: u32) -> BTreeMap<Kind<'_>, Vec<&BTreeSet<DeviceId>>> {
    let mut all: BTreeMap<Kind, Vec<&BTreeSet<DeviceId>>> = BTreeMap::new();
    for (node, reach) in remote(pool) {
        let Some(node) = pool.nodes.device_set(node) else {
            continue;
        };
        if matches!(reach, GangReach::Alone { .. }) {
            continue;
        }
        let mut kinds: Vec<KindId> = node.iter().map(|id| pool.devices[id].kind).collect();
        kinds.sort();
        kinds.dedup();
        let kind = (reach, kinds, node.len());
        all.entry(kind).or_default().push(node);
    }
    all.retain(|_, nodes| nodes.len() >= count as usize);
    all
}

/// The node, if it is too old for a part of this replica.
pub(crate) fn old_node(pool: &Pool, requirements: &Requirements, node: NodeId) -> Option<OldNode> {
    if requirements.nodes < 2 {
        return None;
    }
    let GangReach::Alone { version } = pool.nodes.reach(node) else {
        return None;
    };
    Some(OldNode {
        node: pool.node_name(node),
        version: version.clone(),
    })
}

/// The reasons why nodes cannot hold the replica together.
pub(crate) fn apart(pool: &Pool, requirements: &Requirements) -> Vec<String> {
    if requirements.nodes < 2 {
        return Vec::new();
    }
    let mut why: Vec<String> = remote(pool)
        .filter_map(|(node, _)| old_node(pool, requirements, node))
        .take(NAMED_MAX)
        .map(|old| format!("{old}"))
        .collect();
    let with = |wanted: GangReach| {
        let mut nodes = remote(pool).filter(|(_, reach)| **reach == wanted);
        let named = nodes.by_ref().take(NAMED_MAX);
        let mut named: Vec<String> = named.map(|(node, _)| pool.node_name(node)).collect();
        if nodes.next().is_some() {
            named.push("others".to_owned());
        }
        named.join(", ")
    };
    let (here, there) = (with(GangReach::Machine), with(GangReach::Network));
    if !here.is_empty() && !there.is_empty() {
        why.push(format!(
            "nodes on a loopback address ({here}) and nodes of the network ({there}) cannot reach each other: start them with --listen at an address of their network (M8)"
        ));
    }
    why
}

/// Possible placements: without evictions if enough nodes have free memory, otherwise with them. `touching` restricts the search to
/// kinds of nodes that have any of these devices.
pub(crate) fn choices(
    pool: &Pool,
    requirements: &Requirements,
    touching: Option<&BTreeSet<DeviceId>>,
) -> impl Iterator<Item = Choice> {
    let count = requirements.nodes as usize;
    let part = requirements.of_one_node();
    let mut found = Vec::new();
    for nodes in alike(pool, requirements.nodes).into_values() {
        let touches =
            |node: &&BTreeSet<DeviceId>| touching.is_none_or(|some| !node.is_disjoint(some));
        if !nodes.iter().any(touches) {
            continue;
        }
        let mut best: Vec<Choice> = nodes
            .iter()
            .filter_map(|node| group::best_on(pool, &part, node))
            .collect();
        best.sort_by_key(|choice| choice.rank);
        if best.len() < count {
            continue;
        }
        if best[..count].iter().all(|choice| choice.victims.is_empty()) {
            found.push(together(&best[..count], Cost::default(), Vec::new(), None));
            continue;
        }
        let mut sets: BTreeSet<Vec<usize>> = BTreeSet::new();
        for start in 0..best.len().min(STARTS_MAX) {
            sets.insert(grow(&best, start, count));
        }
        found.extend(sets.iter().filter_map(|set| {
            let parts: Vec<Choice> = set.iter().map(|&nth| best[nth].clone()).collect();
            evicting(pool, requirements, &parts)
        }));
    }
    found.into_iter()
}

/// A set of nodes with this one. A victim that spans several nodes frees memory on all of them, but its cost counts once.
fn grow(best: &[Choice], start: usize, count: usize) -> Vec<usize> {
    let ids = |choice: &Choice| -> BTreeSet<ReplicaId> {
        choice.victims.iter().map(|victim| victim.replica).collect()
    };
    let mut leaving = ids(&best[start]);
    let mut set = vec![start];
    while set.len() < count {
        let others = (0..best.len()).filter(|nth| !set.contains(nth));
        let next = others.min_by_key(|&nth| {
            let leaves = ids(&best[nth]).is_subset(&leaving);
            (!leaves, best[nth].rank)
        });
        let Some(next) = next else { break };
        leaving.extend(ids(&best[next]));
        set.push(next);
    }
    set.sort_unstable();
    set
}

/// The placement on the groups of these nodes, with the cheapest victims that free enough on all of them.
fn evicting(pool: &Pool, requirements: &Requirements, parts: &[Choice]) -> Option<Choice> {
    let claim = Claim::new(pool, requirements);
    let devices: Vec<DeviceId> = parts
        .iter()
        .flat_map(|part| &part.devices)
        .copied()
        .collect();
    let mut domain = Domain {
        devices: Vec::new(),
        needs: Vec::new(),
    };
    let mut free: Vec<Bytes> = Vec::new();
    let mut holders: BTreeSet<ReplicaId> = BTreeSet::new();
    for device in devices {
        let ledger = &pool.devices[&device];
        let (has, overrun) = pool.free_and_overrun(ledger);
        domain.devices.push(device);
        domain
            .needs
            .push(requirements.needs_on(pool, device).ok()? + overrun);
        free.push(has);
        holders.extend(&ledger.holders);
    }
    let leaves = |holder: &ReplicaId| victims::may_leave(pool, &claim, *holder).is_ok();
    let evictable: Vec<Evictable> = holders
        .into_iter()
        .filter(leaves)
        .map(|holder| victims::leaving(pool, holder))
        .collect();
    let (cost, victims) = cheapest(&domain, &free, evictable)?;
    let freed = with_freed(&domain, &free, &victims);
    let left_over = freed.iter().zip(&domain.needs);
    let left_over = left_over
        .map(|(freed, needs)| freed.saturating_sub(*needs))
        .sum();
    Some(together(parts, cost, victims, Some(left_over)))
}

/// One choice of the parts on several nodes.
fn together(
    parts: &[Choice],
    cost: Cost,
    victims: Vec<Evictable>,
    left_over: Option<Bytes>,
) -> Choice {
    let mut devices: Vec<DeviceId> = Vec::new();
    let mut rank = PlaceRank {
        cost,
        left_over: Bytes::ZERO,
        ..parts[0].rank
    };
    for part in parts {
        devices.extend(&part.devices);
        rank.link = rank.link.max(part.rank.link);
        rank.fetches |= part.rank.fetches;
        rank.must_wait |= part.rank.must_wait;
        rank.left_over = rank.left_over + part.rank.left_over;
    }
    rank.left_over = left_over.unwrap_or(rank.left_over);
    rank.device = devices[0];
    Choice {
        rank,
        devices,
        victims,
        wakes: None,
    }
}
