//! The facts that survive a restart in addition to wishes: how often models were used, how long their loads took, which nodes
//! hold them (N8), and which replicas serve only batches (B5). They are plain numbers that only this file interprets. The shell stores them and returns them.

use alloc::vec::Vec;

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::orders::REPLICAS_MAX;
use crate::types::demand::Demand;
use crate::types::ids::{ModelId, NodeId, ReplicaId, ShapeId};
use crate::types::load_times::LoadTimes;
use crate::types::reason::LoadReason;
use crate::types::replica::{Phase, Replica};

/// The first number of the data. Data of another version has another layout and is ignored.
const VERSION: u64 = 1;

impl Pool {
    /// The figures of a node size that a node of it has shown, to be kept across restarts; `None` before there are any.
    pub fn remembered_shape(&self, shape: ShapeId) -> Option<Vec<u64>> {
        self.node_demand.remembered(shape).map(Vec::from)
    }

    /// The known use of a model, for `Event::Remembered`; `None` if it was never used.
    pub fn remembered(&self, id: ModelId) -> Option<Vec<u64>> {
        let model = self.models.get(&id)?;
        let untouched = model.last_used.is_none() && model.load_times == LoadTimes::default();
        if untouched && model.demand == Demand::default() && model.replicas.is_empty() {
            return None;
        }
        let mut numbers = vec![VERSION];
        let mut section = |of: Vec<u64>| {
            numbers.push(of.len() as u64);
            numbers.extend(of);
        };
        section(model.demand.numbers().collect());
        section(model.load_times.numbers().collect());
        section(model.last_used.map(|at| at.0).into_iter().collect());
        section(self.places_of(model));
        section(self.batch_replicas_of(model));
        Some(numbers)
    }

    /// Returns true if a replica of the model serves only batches, which the next controller must know (B5).
    pub fn has_batch_replicas(&self, id: ModelId) -> bool {
        let model = self.models.get(&id);
        model.is_some_and(|model| !self.batch_replicas_of(model).is_empty())
    }

    /// The replicas that serve only batches: the id of each, and the open requests when it was loaded.
    fn batch_replicas_of(&self, model: &Model) -> Vec<u64> {
        let mut numbers = Vec::new();
        for id in &model.replicas {
            let replica = &self.replicas[id];
            if let LoadReason::Batch { lines, .. } = replica.why
                && replica.is_unserved()
            {
                numbers.extend([id.0, lines]);
            }
        }
        numbers
    }

    /// The nodes on which the model has ready replicas, one number for each replica and node.
    fn places_of(&self, model: &Model) -> Vec<u64> {
        let serves = |replica: &&Replica| {
            matches!(replica.phase, Phase::Ready { .. } | Phase::Draining { .. })
        };
        let replicas = model.replicas.iter().map(|id| &self.replicas[id]);
        let nodes = replicas
            .filter(serves)
            .flat_map(|replica| self.nodes_of(replica));
        let others = nodes.filter(|node| self.nodes.known(*node).is_some());
        others.map(|node| u64::from(node.0)).collect()
    }

    /// The numbers of a model of which only the places are known.
    pub fn remembered_places(nodes: &[NodeId]) -> Vec<u64> {
        let mut numbers = vec![VERSION, 0, 0, 0, nodes.len() as u64];
        numbers.extend(nodes.iter().map(|node| u64::from(node.0)));
        numbers
    }

    pub(crate) fn remember(&mut self, id: ModelId, numbers: &[u64]) {
        let Some((&VERSION, rest)) = numbers.split_first() else {
            return;
        };
        let mut sections = Sections(rest);
        let (demand, times, used) = (sections.next(), sections.next(), sections.next());
        let (places, for_batches) = (sections.next(), sections.next());
        let for_batches = for_batches.unwrap_or_default().as_chunks().0;
        for &[replica, lines] in for_batches.iter().take(REPLICAS_MAX as usize) {
            self.batches.remember(ReplicaId(replica), lines);
        }
        let Some(model) = self.models.get_mut(&id) else {
            return;
        };
        if let Some(known) = demand.and_then(Demand::from_numbers) {
            model.demand = known;
        }
        if let Some(known) = times {
            model.load_times = LoadTimes::from_numbers(known);
            self.load_estimates.is_stale = true;
        }
        if let Some(&at) = used.and_then(<[u64]>::first) {
            model.last_used = model.last_used.max(Some(crate::types::ids::Time(at)));
        }
        self.expect_replicas(id, places.unwrap_or_default());
    }

    /// Counts the model's replicas on nodes that are expected back.
    fn expect_replicas(&mut self, id: ModelId, places: &[u64]) {
        for &place in places.iter().take(REPLICAS_MAX as usize) {
            let node = NodeId(u32::try_from(place).unwrap_or(u32::MAX));
            let known = self.nodes.silent().get(&node);
            let Some(&since) = known.filter(|_| !self.nodes.has_devices(node)) else {
                continue;
            };
            self.nodes.expects_replica(id, node);
            self.look_again(since + self.limits.silent_grace, id);
        }
        self.touch_model(id);
    }
}

/// Lists of numbers, each preceded by its length.
struct Sections<'a>(&'a [u64]);

impl<'a> Iterator for Sections<'a> {
    type Item = &'a [u64];

    fn next(&mut self) -> Option<&'a [u64]> {
        let (&length, rest) = self.0.split_first()?;
        let (section, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(section)
    }
}
