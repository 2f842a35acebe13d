//! Requested nodes that are emptied in a storm because a cheaper place is free. Checks that they are requested nodes whose replicas
//! have been ready for long, that no model goes cold, and that neither a node nor a model takes part twice within a while (S3).

use super::Play;
use super::emptied_times::REST;
use pool::{Record, RecordKind, ReplicaState, Time};

impl Play {
    pub(super) fn check_emptied(&mut self, at: Time, record: &Record) {
        if record.kind == RecordKind::NodeEmptied {
            self.check_chosen(at, &record.reason);
        } else if record.cause == Some("consolidated") && record.kind == RecordKind::Drain {
            self.check_moved(at, record);
        }
    }

    /// A node starts to be emptied.
    fn check_chosen(&mut self, at: Time, reason: &str) {
        let mut nodes = self.links.keys().copied();
        let node =
            nodes.find(|node| reason.starts_with(&format!("node node-{} is emptied", node.0)));
        let Some(node) = node else {
            return;
        };
        let broken = &mut self.report.broken;
        if !self.leases.demands.contains_key(&node) {
            broken.push(format!("S3: {node} is emptied and was never requested"));
        }
        if let Some(before) = self.emptied.chosen.insert(node, at)
            && at < before + REST
        {
            broken.push(format!(
                "S3: {node} is emptied again after {}",
                at.since(before)
            ));
        }
        for replica in self.truth.on(node) {
            let process = &self.truth.processes[&replica];
            let is_old = process.ready.is_some_and(|ready| ready + REST <= at);
            if !is_old && !process.is_ordered_to_end {
                broken.push(format!("S3: {replica} moves, and was not ready for long"));
            }
        }
    }

    /// A replica closes because its successor is ready in a cheaper place.
    fn check_moved(&mut self, at: Time, record: &Record) {
        self.report.consolidated += 1;
        let view = self.world.pool.view(self.world.now);
        let mut models = view.models.iter();
        let model = models.find(|model| Some(&model.name) == record.model.as_ref());
        let Some(model) = model else {
            return;
        };
        let mut others = model.replicas.iter();
        let is_hot = others.any(|other| {
            Some(other.replica) != record.replica && other.state == ReplicaState::Ready
        });
        let (id, broken) = (model.model, &mut self.report.broken);
        if !is_hot {
            broken.push(format!("S3: {id} goes cold for a cheaper place"));
        }
        if let Some(before) = self.emptied.moved.insert(id, at)
            && at < before + REST
        {
            let again = at.since(before);
            broken.push(format!(
                "S3: {id} moves again after {again} for a cheaper place"
            ));
        }
    }
}
