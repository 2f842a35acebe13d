//! The replicas by id, the sleepers, and the replicas that leave later. Reads like a map. Ids are never reused. Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Deref;

use crate::types::ids::ReplicaId;
use crate::types::replica::Replica;

#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    all: BTreeMap<ReplicaId, Replica>,
    asleep: BTreeSet<ReplicaId>,
    /// Victims that serve until the others of their load have nearly finished (P8).
    leaving_later: BTreeSet<ReplicaId>,
    next: u64,
    /// Replicas with lower ids belong to earlier controllers.
    first: u64,
}

impl Deref for Replicas {
    type Target = BTreeMap<ReplicaId, Replica>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Replicas {
    /// No replicas. Ids start at `first`.
    pub fn new(first: ReplicaId) -> Replicas {
        Replicas {
            all: BTreeMap::new(),
            asleep: BTreeSet::new(),
            leaving_later: BTreeSet::new(),
            next: first.0,
            first: first.0,
        }
    }

    pub fn asleep(&self) -> &BTreeSet<ReplicaId> {
        &self.asleep
    }

    pub fn is_asleep(&self, id: ReplicaId) -> bool {
        self.asleep.contains(&id)
    }

    pub fn leaving_later(&self) -> &BTreeSet<ReplicaId> {
        &self.leaving_later
    }

    /// Returns true if this controller has given the id, or may have.
    pub fn has_given(&self, id: ReplicaId) -> bool {
        (self.first..self.next).contains(&id.0)
    }

    /// Returns true if the id belongs to an earlier controller.
    pub fn is_from_before(&self, id: ReplicaId) -> bool {
        id.0 < self.first
    }

    pub fn new_id(&mut self) -> ReplicaId {
        let id = ReplicaId(self.next);
        self.next += 1;
        id
    }

    /// Ids up to this one are taken.
    pub fn takes_id(&mut self, id: ReplicaId) {
        self.next = self.next.max(id.0 + 1);
    }

    pub fn insert(&mut self, id: ReplicaId, replica: Replica) {
        self.all.insert(id, replica);
    }

    pub fn get_mut(&mut self, id: &ReplicaId) -> Option<&mut Replica> {
        self.all.get_mut(id)
    }

    /// Removes a replica that has ended. It may still count as asleep, for the load that was to wake it.
    pub fn remove(&mut self, id: ReplicaId) -> Option<Replica> {
        let replica = self.all.remove(&id)?;
        self.leaving_later.remove(&id);
        Some(replica)
    }

    pub fn falls_asleep(&mut self, id: ReplicaId) {
        self.asleep.insert(id);
    }

    /// The replica wakes or ends. Returns true if it was asleep.
    pub fn no_longer_asleep(&mut self, id: ReplicaId) -> bool {
        self.asleep.remove(&id)
    }

    pub fn leaves_later(&mut self, id: ReplicaId) {
        self.leaving_later.insert(id);
    }

    pub fn no_longer_leaves_later(&mut self, id: ReplicaId) {
        self.leaving_later.remove(&id);
    }
}
