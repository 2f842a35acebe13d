//! Requests that begin and end to wait: the lines of their model, and the counter with which a node begins (F2). Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};

use super::node::{Lane, Place, RESERVED, Slot, USUAL, account, lane};
use super::tree::Tree;
use crate::types::ids::{GroupId, KeyId, ModelId};
use crate::types::tokens::ServiceClass;

impl Tree {
    /// A request of the key begins to wait for the model.
    pub(super) fn joins(
        &mut self,
        key: KeyId,
        group: Option<GroupId>,
        model: ModelId,
        class: ServiceClass,
    ) {
        let slot = self.key(key, group);
        self.waiting += 1;
        let account = account(class);
        let (path, length) = self.path(slot);
        // From the top: a child begins with its parent's floor.
        for &slot in path[..length].iter().rev() {
            if self.nodes[slot].accounts[account].waiting == 0 {
                self.begins_to_wait(slot, account);
            }
            self.nodes[slot].accounts[account].waiting += 1;
            let (place, parent) = self.place(slot, account);
            let count = self.nodes[slot].accounts[account]
                .models
                .entry(model)
                .or_default();
            *count += 1;
            if *count == 1 {
                let line = self.lines.entry((model, lane(account), parent));
                line.or_default().insert(place);
            }
        }
        if class == ServiceClass::Priority {
            self.urgent_joins(&path[..length], model);
        }
    }

    /// A request of the key no longer waits.
    pub(super) fn leaves(&mut self, key: KeyId, model: ModelId, class: ServiceClass) {
        let Some(&slot) = self.keys.get(&key) else {
            return;
        };
        self.waiting = self.waiting.saturating_sub(1);
        let account = account(class);
        let (path, length) = self.path(slot);
        if class == ServiceClass::Priority {
            self.urgent_leaves(&path[..length], model);
        }
        for &slot in &path[..length] {
            let (place, parent) = self.place(slot, account);
            let own = &mut self.nodes[slot].accounts[account];
            own.waiting = own.waiting.saturating_sub(1);
            let waits = own.waiting > 0;
            if lowered(&mut own.models, model) {
                leaves_line(&mut self.lines, (model, lane(account), parent), place);
            }
            if !waits {
                self.raise_floor(parent, account, None);
                self.nodes[parent].accounts[account]
                    .waiting_children
                    .remove(&place);
            }
        }
    }

    /// Lifts a node that begins to wait to its waiting siblings: the time away earns no credit.
    pub(super) fn begins_to_wait(&mut self, slot: Slot, account: usize) {
        let parent = self.nodes[slot].parent;
        self.lift(slot, account);
        let place = (self.nodes[slot].position(account), slot);
        self.nodes[parent].accounts[account]
            .waiting_children
            .insert(place);
        self.away.remove(&slot);
    }

    pub(super) fn lift(&mut self, slot: Slot, account: usize) {
        if self.keeps_counters {
            return;
        }
        let parent = self.nodes[slot].parent;
        self.raise_floor(parent, account, Some(slot));
        let floor = self.nodes[parent].accounts[account].floor;
        if self.nodes[slot].accounts[account].served < floor {
            self.shift(slot, account, |own| own.served = floor);
        }
    }

    /// The floor follows the least counter of the waiting children, or while none waits of the others with a seat.
    pub(super) fn raise_floor(&mut self, parent: Slot, account: usize, except: Option<Slot>) {
        let children = &self.nodes[parent].accounts[account];
        let waiting = children.waiting_children.first();
        let mut inside = children.inside_children.iter();
        let inside = || inside.find(|(_, slot)| Some(*slot) != except);
        let Some((_, first)) = waiting.or_else(inside) else {
            return;
        };
        let least = self.nodes[*first].accounts[account].served;
        let floor = &mut self.nodes[parent].accounts[account].floor;
        *floor = (*floor).max(least);
    }

    pub(super) fn urgent_joins(&mut self, path: &[Slot], model: ModelId) {
        let Some(top) = self.reserving_at(path) else {
            return;
        };
        for &slot in &path[..top] {
            let (place, parent) = self.place(slot, USUAL);
            let count = self.nodes[slot].urgent.entry(model).or_default();
            *count += 1;
            if *count == 1 {
                let line = self.lines.entry((model, Lane::Reserved, parent));
                line.or_default().insert(place);
            }
        }
        let (slot, clock) = (path[top], self.clock);
        let Some(reserve) = &mut self.nodes[slot].reserve else {
            return;
        };
        if reserve.models.is_empty() {
            reserve.served = reserve.served.max(clock);
        }
        let place = (reserve.position(), slot);
        let count = reserve.models.entry(model).or_default();
        *count += 1;
        if *count == 1 {
            let line = self.lines.entry((model, Lane::Reserved, RESERVED));
            line.or_default().insert(place);
        }
    }

    pub(super) fn urgent_leaves(&mut self, path: &[Slot], model: ModelId) {
        let Some(top) = self.reserving_at(path) else {
            return;
        };
        for &slot in &path[..top] {
            let (place, parent) = self.place(slot, USUAL);
            if lowered(&mut self.nodes[slot].urgent, model) {
                leaves_line(&mut self.lines, (model, Lane::Reserved, parent), place);
            }
        }
        let slot = path[top];
        if let Some(reserve) = &mut self.nodes[slot].reserve {
            let place = (reserve.position(), slot);
            if lowered(&mut reserve.models, model) {
                leaves_line(&mut self.lines, (model, Lane::Reserved, RESERVED), place);
            }
        }
    }

    fn reserving_at(&self, path: &[Slot]) -> Option<usize> {
        path.iter()
            .position(|slot| self.nodes[*slot].reserve.is_some())
    }

    /// The nearest group above the key that has a reserved share.
    pub(super) fn reserving(&self, slot: Slot) -> Option<Slot> {
        let (path, length) = self.path(slot);
        self.reserving_at(&path[..length]).map(|top| path[top])
    }
}

fn leaves_line(
    lines: &mut BTreeMap<(ModelId, Lane, Slot), BTreeSet<Place>>,
    key: (ModelId, Lane, Slot),
    place: Place,
) {
    if let Some(line) = lines.get_mut(&key) {
        line.remove(&place);
        if line.is_empty() {
            lines.remove(&key);
        }
    }
}

/// Lowers a count by one. Returns true if that was the last.
fn lowered(counts: &mut BTreeMap<ModelId, u32>, model: ModelId) -> bool {
    let Some(count) = counts.get_mut(&model) else {
        return false;
    };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(&model);
    }
    is_last
}
