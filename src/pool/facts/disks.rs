//! The disks and links that loads read from: one load at a time reads from each on each node. Makes no choices.

use alloc::collections::BTreeSet;

use crate::types::ids::{LoaderId, NodeId, ReplicaId};

#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    reading: BTreeSet<(NodeId, LoaderId, ReplicaId)>,
}

impl Disks {
    pub fn are_idle(&self) -> bool {
        self.reading.is_empty()
    }

    /// The disks in use, with their nodes.
    pub fn in_use(&self) -> impl Iterator<Item = (NodeId, LoaderId)> {
        self.reading
            .iter()
            .map(|(node, loader, _)| (*node, *loader))
    }

    /// The loads that read from a disk or link of a node.
    pub fn loads_on(&self, node: NodeId, loader: LoaderId) -> impl Iterator<Item = ReplicaId> {
        let all = (node, loader, ReplicaId(0))..=(node, loader, ReplicaId(u64::MAX));
        self.reading.range(all).map(|(.., load)| *load)
    }

    pub fn begins(&mut self, node: NodeId, loader: LoaderId, load: ReplicaId) {
        self.reading.insert((node, loader, load));
    }

    pub fn ends(&mut self, load: ReplicaId) {
        self.reading.retain(|(.., reader)| *reader != load);
    }

    pub fn node_goes(&mut self, node: NodeId) {
        self.reading.retain(|(on, ..)| *on != node);
    }
}
