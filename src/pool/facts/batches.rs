//! The batch work by model (B4), the times at which it ended (B6), and the nodes that batches leave (B8). Entries of unknown models
//! wait for their models. Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::batch::{BatchDemand, BatchRoom};
use crate::types::ids::{ModelId, NodeId, ReplicaId, Time};

#[derive(Clone, Debug, Default)]
pub(crate) struct Batches {
    of_model: BTreeMap<ModelId, Lines>,
    /// The time at which the work of each other model ended.
    ended: BTreeMap<ModelId, Time>,
    /// Models with work that an administrator has unloaded. They are not loaded for it.
    kept_away: BTreeSet<ModelId>,
    /// Replicas of an earlier controller that served only batches, with the open requests when they were loaded.
    before: BTreeMap<ReplicaId, u64>,
    /// The list has been set since the controller started.
    is_listed: bool,
    /// Nodes that were requested for batches and are given back, each with the reason (B8).
    left: BTreeMap<NodeId, String>,
}

/// The batch work of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    pub count: u64,
    pub since: Time,
    may_evict: bool,
    must_begin: Option<Time>,
    deadline_evicts: bool,
}

impl Lines {
    /// The time by which the load had to begin for a deadline, if that time has come (B7).
    pub fn due(&self, now: Time) -> Option<Time> {
        self.must_begin.filter(|at| *at <= now)
    }

    /// The memory that the load may take.
    pub fn room(&self, now: Time) -> BatchRoom {
        let for_deadline = self.deadline_evicts && self.due(now).is_some();
        if self.may_evict || for_deadline {
            BatchRoom::LongIdle
        } else {
            BatchRoom::Free
        }
    }

    /// The deadline alone allows the load to evict.
    pub fn evicts_for_deadline(&self, now: Time) -> bool {
        !self.may_evict && self.room(now) == BatchRoom::LongIdle
    }
}

impl Batches {
    pub fn is_empty(&self) -> bool {
        self.of_model.is_empty()
    }

    pub fn has(&self, model: ModelId) -> bool {
        self.of_model.contains_key(&model)
    }

    /// Returns false as long as missing work is unknown, because the controller has just started.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// The models with batch work.
    pub fn models(&self) -> impl Iterator<Item = ModelId> {
        self.of_model.keys().copied()
    }

    pub fn get(&self, model: ModelId) -> Option<Lines> {
        self.of_model.get(&model).copied()
    }

    /// The models whose load will be due for a deadline, each with the time.
    pub fn due_later(&self, now: Time) -> impl Iterator<Item = (ModelId, Time)> {
        let all = self.of_model.iter();
        all.filter_map(move |(id, lines)| Some((*id, lines.must_begin.filter(|at| *at > now)?)))
    }

    pub fn ended_at(&self, model: ModelId) -> Option<Time> {
        self.ended.get(&model).copied()
    }

    pub fn is_kept_away(&self, model: ModelId) -> bool {
        self.kept_away.contains(&model)
    }

    /// Replaces the list. Returns the models whose work has changed, each with whether it has begun or ended.
    pub fn set(&mut self, demands: &[BatchDemand], now: Time) -> Vec<(ModelId, bool)> {
        self.is_listed = true;
        let mut new: BTreeMap<ModelId, Lines> = BTreeMap::new();
        for demand in demands.iter().filter(|demand| demand.lines > 0) {
            let known = self.of_model.get(&demand.model);
            let lines = new.entry(demand.model).or_insert(Lines {
                count: 0,
                since: known.map_or(now, |known| known.since),
                may_evict: false,
                must_begin: None,
                deadline_evicts: false,
            });
            lines.count = lines.count.saturating_add(demand.lines);
            lines.may_evict |= demand.may_evict;
            lines.deadline_evicts |= demand.deadline_evicts;
            let times = lines.must_begin.into_iter().chain(demand.must_begin);
            lines.must_begin = times.min();
        }
        let old = core::mem::replace(&mut self.of_model, new);
        let all: BTreeSet<ModelId> = old.keys().chain(self.of_model.keys()).copied().collect();
        let mut changed = Vec::new();
        for id in all {
            let (before, after) = (old.get(&id), self.of_model.get(&id));
            if after.is_none() {
                self.ended.insert(id, now);
                self.kept_away.remove(&id);
            } else if before.is_none() {
                self.ended.remove(&id);
            }
            if before != after {
                changed.push((id, before.is_none() || after.is_none()));
            }
        }
        changed
    }

    /// An administrator has unloaded the model.
    pub fn keep_away(&mut self, model: ModelId) {
        if self.has(model) {
            self.kept_away.insert(model);
        }
    }

    /// An earlier controller had a replica that served only batches.
    pub fn remember(&mut self, replica: ReplicaId, lines: u64) {
        self.before.insert(replica, lines);
    }

    /// The open requests for which an earlier controller loaded the replica, if it served only batches.
    pub fn take_remembered(&mut self, replica: ReplicaId) -> Option<u64> {
        self.before.remove(&replica)
    }

    /// The model was loaded.
    pub fn may_return(&mut self, model: ModelId) {
        self.kept_away.remove(&model);
    }
}

/// Nodes that were requested for batches (B8).
impl Batches {
    /// The nodes that are given back, each with the reason.
    pub fn left(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.left.iter().map(|(node, why)| (*node, why.as_str()))
    }

    /// The reason why the node is given back, if it is.
    pub fn left_for(&self, node: NodeId) -> Option<&str> {
        self.left.get(&node).map(String::as_str)
    }

    pub fn leave(&mut self, node: NodeId, why: String) {
        self.left.insert(node, why);
    }

    pub fn node_goes(&mut self, node: NodeId) {
        self.left.remove(&node);
    }
}
