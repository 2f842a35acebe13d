//! The members of a replica that spans several nodes: one engine process on each (M8).

use alloc::vec::Vec;

use crate::types::event::Exit;
use crate::types::ids::NodeId;

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
