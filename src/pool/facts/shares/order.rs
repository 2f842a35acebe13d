//! The order of service: the next key for a model, the turns after it, and comparisons of two keys. Read-only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::node::{
    Counter, FLEX, Lane, Node, PATH_MAX, Place, RESERVED, ROOT, Slot, USUAL, lane, level,
};
use super::tree::Tree;
use crate::types::ids::{GroupId, KeyId, ModelId};

impl Tree {
    /// The key that is next for the model, and the lane in which it is.
    pub(super) fn next(&self, model: ModelId) -> Option<(KeyId, Lane)> {
        let reserved = self.lines.get(&(model, Lane::Reserved, RESERVED));
        if let Some(&(position, slot)) = reserved.and_then(BTreeSet::first)
            && position <= self.clock
            && let Some(key) = self.first_below(model, Lane::Reserved, slot)
        {
            return Some((key, Lane::Reserved));
        }
        let usual = self.first_below(model, Lane::Usual, ROOT);
        let usual = usual.map(|key| (key, Lane::Usual));
        let flex = || Some((self.first_below(model, Lane::Flex, ROOT)?, Lane::Flex));
        usual.or_else(flex)
    }

    pub(super) fn first_below(&self, model: ModelId, lane: Lane, from: Slot) -> Option<KeyId> {
        let mut slot = from;
        for _ in 0..PATH_MAX {
            slot = self.lines.get(&(model, lane, slot))?.first()?.1;
            if let Some(key) = self.nodes[slot].key {
                return Some(key);
            }
        }
        None
    }

    /// A copy of the model's lines, to play the next turns on. Each turn counts as `service`.
    pub(super) fn turns(&self, model: ModelId, lane: Lane, service: u64) -> Turns<'_> {
        Turns {
            tree: self,
            model,
            lane,
            service,
            lines: BTreeMap::new(),
        }
    }

    /// The counters of the nearest siblings above two keys: of the first, then of the second.
    pub(super) fn siblings(&self, one: KeyId, other: KeyId) -> Option<(Counter, Counter)> {
        let (one, other) = (*self.keys.get(&one)?, *self.keys.get(&other)?);
        let (of_one, one_length) = self.path(one);
        let (of_other, other_length) = self.path(other);
        let mut pairs = of_one[..one_length]
            .iter()
            .rev()
            .zip(of_other[..other_length].iter().rev());
        let (one, other) = pairs.find(|(one, other)| one != other)?;
        let served = |slot: &Slot| self.nodes[*slot].accounts[USUAL].served;
        Some((served(one), served(other)))
    }

    pub(super) fn level(&self, key: KeyId, group: Option<GroupId>) -> u64 {
        let home = self.home_of(group);
        let known = self.keys.get(&key);
        let served = known.map(|slot| self.nodes[*slot].accounts[USUAL].served);
        level(served.unwrap_or(self.nodes[home].accounts[USUAL].floor))
    }

    /// Returns true if every line holds exactly the nodes that wait, at their counters.
    pub(super) fn is_index_right(&self) -> bool {
        let mut expected: BTreeMap<(ModelId, Lane, Slot), BTreeSet<Place>> = BTreeMap::new();
        let mut add = |key, place| expected.entry(key).or_default().insert(place);
        for (slot, node) in self.nodes.iter().enumerate() {
            for account in [USUAL, FLEX] {
                let place = (node.position(account), slot);
                for model in node.accounts[account].models.keys() {
                    add((*model, lane(account), node.parent), place);
                }
            }
            for model in node.urgent.keys() {
                add(
                    (*model, Lane::Reserved, node.parent),
                    (node.position(USUAL), slot),
                );
            }
            for reserve in node.reserve.iter() {
                for model in reserve.models.keys() {
                    add(
                        (*model, Lane::Reserved, RESERVED),
                        (reserve.position(), slot),
                    );
                }
            }
        }
        let right = |(slot, node): (Slot, &Node)| {
            [USUAL, FLEX].into_iter().all(|account| {
                let own = &node.accounts[account];
                let place = (node.position(account), slot);
                let of_parent = &self.nodes[node.parent].accounts[account];
                slot == ROOT
                    || (of_parent.waiting_children.contains(&place) == (own.waiting > 0)
                        && of_parent.inside_children.contains(&place) == (own.inside > 0))
            })
        };
        expected == self.lines && self.nodes.iter().enumerate().all(right)
    }
}

/// The next turns for a model, played on a copy.
pub(super) struct Turns<'a> {
    tree: &'a Tree,
    model: ModelId,
    lane: Lane,
    service: u64,
    lines: BTreeMap<Slot, BTreeSet<Place>>,
}

impl Turns<'_> {
    /// The key of the next turn; `is_last` returns true if this is its last one.
    pub fn next(&mut self, mut is_last: impl FnMut(KeyId) -> bool) -> Option<KeyId> {
        let mut path = Vec::new();
        let mut parent = ROOT;
        let key = loop {
            let place = *self.line(parent).first()?;
            path.push((parent, place));
            if let Some(key) = self.tree.nodes[place.1].key {
                break key;
            }
            parent = place.1;
        };
        let mut ends = is_last(key);
        for (parent, (position, slot)) in path.into_iter().rev() {
            let more = self.tree.nodes[slot].by_weight(self.service).max(1);
            let line = self.line(parent);
            line.remove(&(position, slot));
            if !ends {
                line.insert((position + more, slot));
            }
            ends = line.is_empty();
        }
        Some(key)
    }

    fn line(&mut self, parent: Slot) -> &mut BTreeSet<Place> {
        let line = self.tree.lines.get(&(self.model, self.lane, parent));
        self.lines
            .entry(parent)
            .or_insert_with(|| line.cloned().unwrap_or_default())
    }
}
