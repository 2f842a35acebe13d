//! Service and seats of keys: moves the counters of a key and its groups, bounds their differences, and forgets keys that are away.
//! Makes no choices.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::node::{
    AWAY_MAX, Account, Counter, LEAD_MARGIN, LEAD_MAX, LEVEL, Lane, Place, RESERVED, Reserve, Slot,
    USUAL, account, lane,
};
use super::tree::Tree;
use crate::types::ids::{KeyId, ModelId, ReplicaId};
use crate::types::tokens::ServiceClass;

impl Tree {
    pub(super) fn place(&self, slot: Slot, account: usize) -> (Place, Slot) {
        let node = &self.nodes[slot];
        ((node.position(account), slot), node.parent)
    }

    /// Changes a counter, and the places of the node that follow from it.
    pub(super) fn shift(&mut self, slot: Slot, account: usize, change: impl FnOnce(&mut Account)) {
        let before = self.nodes[slot].position(account);
        let level = self.nodes[slot].accounts[account].served / LEVEL;
        change(&mut self.nodes[slot].accounts[account]);
        let after = self.nodes[slot].position(account);
        let node = &self.nodes[slot];
        if account == USUAL && node.accounts[account].served / LEVEL != level {
            self.change.replicas.extend(node.replicas.keys());
            self.change
                .models
                .extend(node.accounts[account].models.keys());
        }
        if before == after {
            return;
        }
        let (parent, own) = (node.parent, &node.accounts[account]);
        let (waits, inside) = (own.waiting > 0, own.inside > 0);
        let mut move_in = |key: (ModelId, Lane, Slot)| {
            if let Some(line) = self.lines.get_mut(&key) {
                moves(line, slot, before, after);
            }
        };
        for model in own.models.keys() {
            move_in((*model, lane(account), parent));
        }
        if account == USUAL {
            for model in node.urgent.keys() {
                move_in((*model, Lane::Reserved, parent));
            }
        }
        let of_parent = &mut self.nodes[parent].accounts[account];
        if waits {
            moves(&mut of_parent.waiting_children, slot, before, after);
        }
        if inside {
            moves(&mut of_parent.inside_children, slot, before, after);
        }
    }

    pub(super) fn shift_reserve(&mut self, slot: Slot, change: impl FnOnce(&mut Reserve)) {
        let Some(reserve) = &mut self.nodes[slot].reserve else {
            return;
        };
        let before = reserve.position();
        change(reserve);
        let after = reserve.position();
        for model in reserve.models.keys() {
            if let Some(line) = self.lines.get_mut(&(*model, Lane::Reserved, RESERVED)) {
                moves(line, slot, before, after);
            }
        }
    }

    /// Service of the key, in nanoseconds of a seat. At each node it counts while a sibling waits: what no sibling wanted costs
    /// nothing.
    pub(super) fn spend(&mut self, key: KeyId, class: ServiceClass, service: u64) {
        let Some(&slot) = self.keys.get(&key).filter(|_| service > 0) else {
            return;
        };
        let account = account(class);
        let (path, length) = self.path(slot);
        for &slot in &path[..length] {
            let parent = self.nodes[slot].parent;
            let mut others = self.nodes[parent].accounts[account].waiting_children.iter();
            if others.all(|(_, other)| *other == slot) {
                continue;
            }
            let more = self.nodes[slot].by_weight(service);
            self.shift(slot, account, |own| own.served += more);
            self.bound_claims(slot, account);
        }
        if account == USUAL {
            self.clock += Counter::from(service);
        }
    }

    /// Service of requests that got their seats within the reserved share of their group. Service in the usual order is not charged to
    /// that share, nor is service while no other request waits.
    pub(super) fn spend_reserved(&mut self, key: KeyId, service: u64) {
        // One request of many hours does not cost the share of days.
        let most = self.clock + LEAD_MAX;
        self.shift_reserve_of(key, |reserve| {
            reserve.served = (reserve.served + reserve.by_share(service)).min(most);
        });
    }

    /// The service that these requests inside are still expected to take has changed.
    pub(super) fn expect_reserved(&mut self, key: KeyId, before: u64, after: u64) {
        if before != after {
            self.shift_reserve_of(key, |reserve| {
                reserve.expected = (reserve.expected.saturating_sub(before)).saturating_add(after);
            });
        }
    }

    fn shift_reserve_of(&mut self, key: KeyId, change: impl FnOnce(&mut Reserve)) {
        if let Some(slot) = self.keys.get(&key).and_then(|slot| self.reserving(*slot)) {
            self.shift_reserve(slot, change);
        }
    }

    /// Returns true if requests of the key of the class `priority` are within the reserved share of their group.
    pub(super) fn is_within_reserve(&self, key: KeyId) -> bool {
        let slot = self.keys.get(&key).and_then(|slot| self.reserving(*slot));
        let reserve = slot.and_then(|slot| self.nodes[slot].reserve.as_ref());
        reserve.is_some_and(|reserve| reserve.position() <= self.clock)
    }

    /// Waiting siblings that the node leads by too much follow it at that distance.
    pub(super) fn bound_claims(&mut self, slot: Slot, account: usize) {
        let node = &self.nodes[slot];
        let served = node.accounts[account].served;
        let (parent, least) = (node.parent, served.saturating_sub(LEAD_MAX));
        let waiting = &self.nodes[parent].accounts[account].waiting_children;
        if waiting
            .first()
            .is_none_or(|(position, _)| *position >= least)
        {
            return;
        }
        let lifted = least + LEAD_MARGIN;
        while let Some(&(position, behind)) = self.nodes[parent].accounts[account]
            .waiting_children
            .first()
            && position < lifted
        {
            self.shift(behind, account, |own| own.served = own.served.max(lifted));
        }
    }

    /// The service that the requests of the key inside are still expected to take has changed.
    pub(super) fn expect(&mut self, key: KeyId, class: ServiceClass, before: u64, after: u64) {
        let Some(&slot) = self.keys.get(&key).filter(|_| before != after) else {
            return;
        };
        let account = account(class);
        let changed = |expected: u64| expected.saturating_sub(before).saturating_add(after);
        let (path, length) = self.path(slot);
        for &slot in &path[..length] {
            self.shift(slot, account, |own| own.expected = changed(own.expected));
        }
    }

    /// The number of the key's seats on a replica has changed.
    pub(super) fn seats(
        &mut self,
        key: KeyId,
        class: ServiceClass,
        replica: ReplicaId,
        (before, after): (u32, u32),
    ) {
        let Some(&slot) = self.keys.get(&key).filter(|_| before != after) else {
            return;
        };
        let account = account(class);
        let (path, length) = self.path(slot);
        let changed = |count: u32| count.saturating_sub(before) + after;
        for &slot in path[..length].iter().rev() {
            let own = &self.nodes[slot].accounts[account];
            if own.inside == 0 && own.waiting == 0 {
                self.lift(slot, account);
            }
            let (place, parent) = self.place(slot, account);
            let own = &mut self.nodes[slot].accounts[account];
            let was_inside = own.inside > 0;
            own.inside = changed(own.inside);
            let is_inside = own.inside > 0;
            let on_replica = self.nodes[slot].replicas.entry(replica).or_default();
            *on_replica = changed(*on_replica);
            if *on_replica == 0 {
                self.nodes[slot].replicas.remove(&replica);
            }
            if is_inside && !was_inside {
                self.nodes[parent].accounts[account]
                    .inside_children
                    .insert(place);
                self.away.remove(&slot);
            } else if was_inside && !is_inside {
                self.raise_floor(parent, account, None);
                self.nodes[parent].accounts[account]
                    .inside_children
                    .remove(&place);
            }
        }
    }

    /// Forgets the key with its lead. It has no waiting requests and no seats.
    pub(super) fn forget_key(&mut self, key: KeyId) {
        if let Some(slot) = self.keys.get(&key) {
            self.forget(*slot);
        }
    }

    /// Forgets the key if nothing has to be remembered of it.
    pub(super) fn settle(&mut self, key: KeyId) {
        if let Some(slot) = self.keys.get(&key) {
            self.may_forget(*slot);
        }
    }

    /// Forgets a key that is away and leads no sibling, and beyond a limit those with the smallest lead.
    pub(super) fn may_forget(&mut self, slot: Slot) {
        let node = &self.nodes[slot];
        if node.is_active() || node.key.is_none() {
            return;
        }
        if self.lead_over_floor(slot) == 0 {
            return self.forget(slot);
        }
        self.away.insert(slot);
        if self.away.len() < 2 * AWAY_MAX {
            return;
        }
        let away = self
            .away
            .iter()
            .map(|slot| (self.lead_over_floor(*slot), *slot));
        let mut away: Vec<(Counter, Slot)> = away.collect();
        away.sort_unstable();
        let surplus = away.len() - AWAY_MAX;
        for (_, slot) in &away[..surplus] {
            self.forget(*slot);
        }
    }

    pub(super) fn lead_over_floor(&self, slot: Slot) -> Counter {
        let node = &self.nodes[slot];
        let floors = &self.nodes[node.parent].accounts;
        let leads = node.accounts.iter().zip(floors);
        let lead = leads.map(|(own, of_parent)| own.served.saturating_sub(of_parent.floor));
        lead.max().unwrap_or_default()
    }

    pub(super) fn forget(&mut self, slot: Slot) {
        self.away.remove(&slot);
        if let Some(key) = self.nodes[slot].key.take() {
            self.keys.remove(&key);
            self.free.push(slot);
        }
    }
}

fn moves(line: &mut BTreeSet<Place>, slot: Slot, before: Counter, after: Counter) {
    if line.remove(&(before, slot)) {
        line.insert((after, slot));
    }
}
