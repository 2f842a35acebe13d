//! The tree of groups and keys with a counter of service at each node (virtual token counters: Sheng et al., OSDI 2024), and for each
//! model the nodes with waiting requests in the order of their counters. Makes no choices.
//!
//! ```text
//! counter = service × (smallest weight among the siblings) / (own weight)
//! order   = counter + what the requests inside are still expected to take
//!
//! a node begins to wait    counter = max(counter, least counter of the waiting siblings)     no credit for the time away
//! a sibling leads by more than LEAD_MAX    the counter follows at that distance              a claim is bounded, too
//! ```
//!
//! Requests of the class `flex` have separate counters at each node: they are fair among themselves, and cost a group nothing
//! of its share.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::node::{Counter, Lane, Node, PATH_MAX, Place, ROOT, Reserve, Slot};
use crate::types::groups::{Group, Groups};
use crate::types::ids::{GroupId, KeyId, ModelId, ReplicaId};

/// The models and replicas at which a level has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceChange {
    pub models: BTreeSet<ModelId>,
    pub replicas: BTreeSet<ReplicaId>,
}

#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) free: Vec<Slot>,
    pub(super) keys: BTreeMap<KeyId, Slot>,
    /// The nodes below which the keys of a group are; `None` for keys without a group.
    pub(super) homes: BTreeMap<Option<GroupId>, Slot>,
    pub(super) groups: BTreeMap<GroupId, Slot>,
    /// The waiting children of each node, for each model.
    pub(super) lines: BTreeMap<(ModelId, Lane, Slot), BTreeSet<Place>>,
    /// Keys that are away and lead their siblings.
    pub(super) away: BTreeSet<Slot>,
    /// All service except that of the class `flex`.
    pub(super) clock: Counter,
    pub(super) waiting: u32,
    pub(super) change: ServiceChange,
    /// Nodes that begin to wait keep their counters, because they already waited in an earlier tree.
    pub(super) keeps_counters: bool,
    /// The nodes that have kept their counters, while the groups change.
    pub(super) continued: BTreeSet<Slot>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new(&Groups::default())
    }
}

impl Tree {
    /// A tree without keys. The keys of an inner group share one child of it, with the smallest weight among its siblings.
    pub(super) fn new(groups: &Groups) -> Tree {
        let mut tree = Tree {
            nodes: vec![Node::new(ROOT)],
            free: Vec::new(),
            keys: BTreeMap::new(),
            homes: BTreeMap::new(),
            groups: BTreeMap::new(),
            lines: BTreeMap::new(),
            away: BTreeSet::new(),
            clock: 0,
            waiting: 0,
            change: ServiceChange::default(),
            keeps_counters: false,
            continued: BTreeSet::new(),
        };
        let mut least: BTreeMap<Option<GroupId>, u64> = BTreeMap::new();
        for Group { parent, weight, .. } in groups.all() {
            let least = least.entry(*parent).or_insert(u64::MAX);
            *least = (*least).min(u64::from(*weight));
        }
        for group in groups.all() {
            let parent = group.parent.map_or(ROOT, |parent| tree.groups[&parent]);
            let reserved = (group.reserved_permille > 0).then(|| Reserve {
                permille: u64::from(group.reserved_permille),
                ..Reserve::default()
            });
            let slot = tree.add(Node {
                group: Some(group.id),
                weight: u64::from(group.weight),
                least: least[&group.parent],
                reserve: reserved,
                ..Node::new(parent)
            });
            tree.groups.insert(group.id, slot);
        }
        let all = groups.all().iter().map(|group| Some(group.id));
        for group in all.chain([None]) {
            let node = group.map_or(ROOT, |group| tree.groups[&group]);
            tree.nodes[node].is_inner = least.contains_key(&group);
            let home = if least.contains_key(&group) {
                tree.add(Node::new(node))
            } else {
                node
            };
            tree.homes.insert(group, home);
        }
        tree
    }

    pub(super) fn take_change(&mut self) -> ServiceChange {
        core::mem::take(&mut self.change)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.keys.keys().copied()
    }

    pub(super) fn home_of(&self, group: Option<GroupId>) -> Slot {
        self.homes.get(&group).copied().unwrap_or(self.homes[&None])
    }

    pub(super) fn add(&mut self, node: Node) -> Slot {
        match self.free.pop() {
            Some(slot) => {
                self.nodes[slot] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Adds the key if it is not known.
    pub(super) fn know(&mut self, key: KeyId, group: Option<GroupId>) {
        self.key(key, group);
    }

    pub(super) fn key(&mut self, key: KeyId, group: Option<GroupId>) -> Slot {
        if let Some(slot) = self.keys.get(&key) {
            return *slot;
        }
        let home = self.home_of(group);
        let mut node = Node {
            key: Some(key),
            ..Node::new(home)
        };
        for (account, of_home) in node.accounts.iter_mut().zip(&self.nodes[home].accounts) {
            account.served = of_home.floor;
        }
        let slot = self.add(node);
        self.keys.insert(key, slot);
        slot
    }

    /// The node and those above it, except for the root.
    pub(super) fn path(&self, slot: Slot) -> ([Slot; PATH_MAX], usize) {
        let mut path = [ROOT; PATH_MAX];
        let (mut length, mut next) = (0, slot);
        while next != ROOT && length < PATH_MAX {
            path[length] = next;
            (length, next) = (length + 1, self.nodes[next].parent);
        }
        (path, length)
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// The keys with a seat on the replica have changed.
    pub(super) fn users_change(&mut self, replica: ReplicaId) {
        if self.waiting > 0 {
            self.change.replicas.insert(replica);
        }
    }

    /// The number of known keys, and of keys that are away.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.keys.len(), self.away.len())
    }
}
