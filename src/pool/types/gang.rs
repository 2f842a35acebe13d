//! The members of a replica that spans several nodes: one engine process on each (M8).

use alloc::string::String;
use alloc::vec::Vec;

use crate::types::event::Exit;
use crate::types::ids::{NodeId, ReplicaId};

/// The first port of leaders' nodes at which the processes of replicas meet, and the number of these ports.
const MEETING_PORT_MIN: u16 = 29_500;
pub(crate) const MEETING_PORTS: u64 = 500;

/// The nodes with which a node can share a replica (M8). Only nodes of equal reach hold a replica together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GangReach {
    /// Nodes at addresses of the network.
    #[default]
    Network,
    /// Nodes on the same machine: it listens on a loopback address.
    Machine,
    /// No other node: this version runs no process of a replica on several nodes.
    Alone { version: String },
}

impl ReplicaId {
    /// The place of the replica's port in the pool's range of ports. Replicas with the same leader's node differ in it (M8).
    pub(crate) fn meeting_place(self) -> u64 {
        self.0 % MEETING_PORTS
    }

    /// The port of the leader's node at which the processes of the replica meet (M8). A load that finds it taken is tried again
    /// under another number, and so at another port. Pools number their replicas from 1. Different shifts keep the processes of two
    /// pools apart if their nodes are on one machine.
    pub fn meeting_port(self, shift: u64) -> u16 {
        let offset = (self.meeting_place() + shift % MEETING_PORTS) % MEETING_PORTS;
        MEETING_PORT_MIN + u16::try_from(offset).unwrap_or_default()
    }
}

/// The processes of a replica that spans several nodes. The first member is the leader, which takes the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gang {
    /// In the order of their ranks.
    pub members: Vec<Member>,
    /// The number of devices of all members together.
    pub devices: u32,
    /// The first exit of a member. It says more about the end of the replica than the exits that it caused.
    pub first_exit: Option<Exit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub node: NodeId,
    /// Its process has ended, and its memory is free.
    pub ended: bool,
}

impl Gang {
    /// A gang of these nodes, in the order of their ranks; `None` for a single node.
    pub fn new(nodes: Vec<NodeId>, devices: usize) -> Option<Gang> {
        let members = nodes.into_iter().map(|node| Member { node, ended: false });
        let members: Vec<Member> = members.collect();
        (members.len() > 1).then_some(Gang {
            members,
            devices: u32::try_from(devices).unwrap_or(u32::MAX),
            first_exit: None,
        })
    }

    /// The node of the process that takes the requests.
    pub fn leader(&self) -> NodeId {
        self.members[0].node
    }

    /// The rank of the member on this node, if its process has not ended.
    pub fn rank_on(&self, node: NodeId) -> Option<usize> {
        let mut members = self.members.iter();
        members.position(|member| member.node == node && !member.ended)
    }

    /// The number of members whose processes have not ended.
    pub fn running(&self) -> usize {
        self.members.iter().filter(|member| !member.ended).count()
    }
}
