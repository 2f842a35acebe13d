//! The real state in a storm over nodes: devices, and processes that hold their memory regardless of what the pool believes. Checks
//! every launch against it: a device never has two owners (N4), and nothing starts on a node that is silent (N2), gone (N3) or
//! draining (N5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::super::random::Random;
use pool::{
    Action, Bytes, DeviceId, DeviceReading, Event, ModelId, NodeId, ReplicaId, Share, Ticket, Time,
};

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub model: ModelId,
    pub node: NodeId,
    pub shares: Vec<Share>,
    pub ready: Option<Time>,
    pub is_ordered_to_end: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Truth {
    pub devices: BTreeMap<DeviceId, DeviceReading>,
    pub processes: BTreeMap<ReplicaId, Process>,
    /// The nodes that the pool was informed are unreachable.
    out_of_reach: BTreeSet<NodeId>,
    responded: BTreeSet<Ticket>,
}

impl Truth {
    /// Two to four nodes with one to four devices each.
    pub fn new(random: &mut Random) -> Truth {
        let mut devices = BTreeMap::new();
        for node in 1..=random.between(2, 4) {
            let total = Bytes([40, 80, 141][random.below(3) as usize] * Bytes::GIB);
            for _ in 0..random.between(1, 4) {
                let reading = DeviceReading {
                    name: format!("gpu{}", devices.len()),
                    node: NodeId(node as u32),
                    total,
                    ..DeviceReading::default()
                };
                devices.insert(DeviceId(devices.len() as u32), reading);
            }
        }
        Truth {
            devices,
            processes: BTreeMap::new(),
            out_of_reach: BTreeSet::new(),
            responded: BTreeSet::new(),
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        let nodes: BTreeSet<NodeId> = self.devices.values().map(|device| device.node).collect();
        nodes.into_iter()
    }

    pub fn devices_of(&self, node: NodeId) -> Vec<(DeviceId, DeviceReading)> {
        let on = self
            .devices
            .iter()
            .filter(|(_, device)| device.node == node);
        on.map(|(&id, device)| (id, device.clone())).collect()
    }

    pub fn on(&self, node: NodeId) -> Vec<ReplicaId> {
        let on = self
            .processes
            .iter()
            .filter(|(_, process)| process.node == node);
        on.map(|(&id, _)| id).collect()
    }

    pub fn replicas_of(&self, model: ModelId) -> Vec<ReplicaId> {
        let of = self
            .processes
            .iter()
            .filter(|(_, process)| process.model == model);
        of.map(|(&id, _)| id).collect()
    }

    pub fn running(&self) -> BTreeSet<ReplicaId> {
        self.processes.keys().copied().collect()
    }

    pub fn held(&self) -> BTreeMap<DeviceId, Bytes> {
        let mut held: BTreeMap<DeviceId, Bytes> = BTreeMap::new();
        for share in self.processes.values().flat_map(|process| &process.shares) {
            let all = held.entry(share.device).or_default();
            *all = *all + share.bytes;
        }
        held
    }

    /// A process starts and takes its memory.
    pub fn starts(
        &mut self,
        replica: ReplicaId,
        model: ModelId,
        shares: &[Share],
        broken: &mut Vec<String>,
    ) {
        let node = self.devices[&shares[0].device].node;
        let process = Process {
            model,
            node,
            shares: shares.to_vec(),
            ready: None,
            is_ordered_to_end: false,
        };
        if self.processes.insert(replica, process).is_some() {
            broken.push(format!("N1: {replica} is started twice"));
        }
        let held = self.held();
        for share in shares {
            let (holds, has) = (held[&share.device], self.devices[&share.device].total);
            if holds > has {
                broken.push(format!(
                    "N4: {} has two owners: with {replica} {holds} of {has}",
                    share.device
                ));
            }
        }
    }

    pub fn becomes_ready(&mut self, replica: ReplicaId, at: Time) -> bool {
        let process = self.processes.get_mut(&replica);
        let Some(process) = process.filter(|process| !process.is_ordered_to_end) else {
            return false;
        };
        process.ready = Some(at);
        true
    }

    /// An event that reaches the pool.
    pub fn event(&mut self, _at: Time, event: &Event) {
        match event {
            Event::NodeExpected { node, .. }
            | Event::NodeSilent { node }
            | Event::NodeGone { node, .. } => {
                self.out_of_reach.insert(*node);
            }
            Event::NodeJoined { node, .. } => {
                self.out_of_reach.remove(node);
            }
            _ => {}
        }
    }

    /// The silence continues, whatever the pool was informed of.
    pub fn is_still_silent(&mut self, node: NodeId) {
        self.out_of_reach.insert(node);
    }

    pub fn action(&mut self, action: &Action, broken: &mut Vec<String>) {
        match action {
            Action::Launch {
                replica, placement, ..
            } => {
                for share in placement {
                    let node = self.devices[&share.device].node;
                    if self.out_of_reach.contains(&node) {
                        broken.push(format!(
                            "N2: {replica} is placed on {node}, which is not in reach"
                        ));
                    }
                }
            }
            Action::Grant { ticket, .. } | Action::Refuse { ticket, .. }
                if !self.responded.insert(*ticket) =>
            {
                broken.push(format!("Q4: {ticket} is answered twice"));
            }
            _ => {}
        }
    }
}
