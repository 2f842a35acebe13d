//! The referee's record of hosts: parts of models and sleepers there never exceed the memory of the machine (M3).

use super::{HostLimit, Referee};
use pool::{Bytes, HostReading, ModelId, NodeId, ReplicaId, Share};

impl Referee {
    pub(super) fn host_read(&mut self, node: NodeId, reading: &HostReading) {
        self.hosts.insert(node, reading.capacity);
        if reading.total > Bytes::ZERO {
            let limit = reading.total.saturating_sub(reading.reserve);
            let left = reading.available.saturating_sub(reading.reserve);
            self.host_limits.insert(node, HostLimit { limit, left });
        }
    }

    /// Judges the host of a replica that has been launched or put to sleep.
    pub(super) fn host_suffices(&mut self, replica: ReplicaId) {
        let node_of = |id: &ReplicaId| self.devices[&self.replicas[id].shares[0].device].node;
        let node = node_of(&replica);
        let Some(&host) = self.host_limits.get(&node) else {
            return;
        };
        let limit = host.limit;
        let there = self.replicas.keys().filter(|id| node_of(id) == node);
        let held: Bytes = there
            .map(|id| {
                let seen = &self.replicas[id];
                let weights = seen.sleeper.as_ref().map(|sleeper| sleeper.host);
                self.part_of(seen.model, host) + weights.unwrap_or_default()
            })
            .sum();
        if held > limit {
            self.broken.push(format!(
                "M3: with {replica} parts of models and sleepers take {held} of {limit} on a host"
            ));
        }
    }

    /// The part of a model on a host. The system can read mapped weights again, so they do not count if the part exceeds what was
    /// left.
    fn part_of(&self, model: ModelId, host: HostLimit) -> Bytes {
        let spec = &self.specs[&model];
        if spec.host_bytes > host.left {
            spec.host_bytes.saturating_sub(spec.host_mapped)
        } else {
            spec.host_bytes
        }
    }

    /// Returns true if a victim holds memory on the host where the model needs some.
    pub(super) fn frees_host(
        &self,
        victim: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) -> bool {
        let node = |shares: &[Share]| self.devices[&shares[0].device].node;
        let Some(seen) = self.replicas.get(&victim) else {
            // A planned load.
            return self.has_part(model);
        };
        let holds = seen.sleeper.is_some() || self.has_part(seen.model);
        self.has_part(model) && holds && node(&seen.shares) == node(placement)
    }

    /// Returns true if the model has a part on a host. Such a load may need other victims than its devices do, and may wait for
    /// the host.
    pub(super) fn has_part(&self, model: ModelId) -> bool {
        self.specs[&model].host_bytes > Bytes::ZERO
    }
}
