//! Takes over counters when groups change: a new tree is built, and nodes at the same place keep their service (F6). Makes no choices.

use alloc::vec::Vec;

use super::node::{Counter, FLEX, ROOT, Slot, USUAL};
use super::tree::Tree;
use crate::types::ids::{GroupId, KeyId};

impl Tree {
    /// Takes over the counters of groups that stay at their place, from the tree before the groups changed.
    pub(super) fn continue_from(&mut self, before: &Tree) {
        self.keeps_counters = true;
        self.clock = before.clock;
        let groups = self
            .groups
            .iter()
            .map(|(id, slot)| (*slot, before.groups.get(id)));
        let homes = self
            .homes
            .iter()
            .map(|(id, slot)| (*slot, before.homes.get(id)));
        let pairs = homes.chain(groups).chain([(ROOT, Some(&ROOT))]);
        let pairs: Vec<(Slot, Slot)> = pairs
            .filter_map(|(slot, old)| Some((slot, *old?)))
            .collect();
        let same = |(slot, old): &(Slot, Slot)| self.place_name(*slot) == before.place_name(*old);
        let same: Vec<(Slot, Slot)> = pairs.into_iter().filter(same).collect();
        for (slot, old) in same {
            let (node, old) = (&mut self.nodes[slot], &before.nodes[old]);
            for (account, old) in node.accounts.iter_mut().zip(&old.accounts) {
                (account.served, account.floor) = (old.served, old.floor);
            }
            if let (Some(reserve), Some(old)) = (&mut node.reserve, &old.reserve) {
                reserve.served = old.served;
            }
            self.continued.insert(slot);
        }
    }

    /// The groups on the way to a node, and true if its children are groups.
    pub(super) fn place_name(&self, slot: Slot) -> (Vec<Option<GroupId>>, bool) {
        let (path, length) = self.path(slot);
        let groups = path[..length].iter().map(|slot| self.nodes[*slot].group);
        (groups.collect(), self.nodes[slot].is_inner)
    }

    /// Returns true if the keys of the group have the same place as before.
    pub(super) fn continues(&self, group: Option<GroupId>) -> bool {
        self.continued.contains(&self.home_of(group))
    }

    /// All keys of the earlier tree have been added.
    pub(super) fn is_continued(&mut self) {
        self.keeps_counters = false;
        self.continued.clear();
        let keys: Vec<Slot> = self.keys.values().copied().collect();
        keys.into_iter().for_each(|slot| self.may_forget(slot));
    }

    pub(super) fn counters(&self, key: KeyId) -> Option<[Counter; 2]> {
        let node = &self.nodes[*self.keys.get(&key)?];
        Some([USUAL, FLEX].map(|account| node.accounts[account].served))
    }

    /// Gives a key that has not changed its group the counters that it had.
    pub(super) fn restore(&mut self, key: KeyId, group: Option<GroupId>, served: [Counter; 2]) {
        let slot = self.key(key, group);
        for (account, served) in self.nodes[slot].accounts.iter_mut().zip(served) {
            account.served = account.served.max(served);
        }
        self.away.insert(slot);
    }
}
