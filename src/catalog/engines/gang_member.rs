//! The place of an engine process in a replica that spans several nodes.

use std::net::IpAddr;

use minijinja::Value;
use serde::{Deserialize, Serialize};

/// One process of a replica that spans several nodes. The process of rank 0 is the leader: it listens for requests, and the others
/// connect to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangMember {
    pub rank: u32,
    /// The names of the nodes, in the order of their ranks.
    pub nodes: Vec<String>,
    /// The address of the leader's node, and the port on it where the processes meet.
    pub leader_address: IpAddr,
    pub leader_port: u16,
    /// The address of this process's own node.
    pub address: IpAddr,
}

impl GangMember {
    /// The leader on the first of this many nodes, for displaying and checking command lines.
    pub fn example(nodes: u32) -> GangMember {
        let address = IpAddr::from([10, 0, 0, 1]);
        GangMember {
            rank: 0,
            nodes: (1..=nodes).map(|node| format!("gpu-{node}")).collect(),
            leader_address: address,
            leader_port: 29_500,
            address,
        }
    }

    /// The names of a command's templates. A replica on one node has rank 0 of one node, and no leader's address.
    pub fn names(member: Option<&GangMember>) -> Vec<(&'static str, Value)> {
        let (rank, nodes) = member.map_or((0, 1), |member| (member.rank, member.nodes.len()));
        let mut names = vec![
            ("node_rank", Value::from(rank)),
            ("nodes", Value::from(nodes)),
        ];
        if let Some(member) = member {
            let address = member.leader_address.to_string();
            names.push(("leader_address", Value::from(address)));
            names.push(("leader_port", Value::from(member.leader_port)));
        }
        names
    }

    /// Returns true for every process but the leader.
    pub fn follows(&self) -> bool {
        self.rank > 0
    }

    /// The place in words: `rank 1 of 3 on gpu-2`.
    pub fn place(&self) -> String {
        let node = self.nodes.get(self.rank as usize);
        let node = node.map(String::as_str).unwrap_or_default();
        format!("rank {} of {} on {node}", self.rank, self.nodes.len())
    }
}
