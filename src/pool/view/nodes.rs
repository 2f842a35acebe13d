//! The nodes, as administrators see them.

use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::ids::{DemandId, DeviceId, NodeId, Time};
use crate::types::node::{Away, Presence};

#[derive(Clone, Debug)]
pub struct NodeView {
    pub node: NodeId,
    pub name: String,
    pub state: NodeState,
    pub devices: Vec<DeviceId>,
    /// The request of the pool that brought it.
    pub demand: Option<DemandId>,
    /// When it must be gone, if that is known (N7).
    pub ends: Option<Time>,
    /// Since when it has been in that state.
    pub since: Time,
    /// Why it is in that state, for administrators; empty if there is nothing to say.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    Joined,
    /// Nothing is heard of it (N2).
    Silent,
    /// It is back, and ends engines that the pool has given up (N4).
    EndsOthers,
    /// The pool gives it back (S2).
    Released,
    /// Its time ends soon: what it has moves (N7).
    Ending,
    /// It takes nothing new (N5).
    Draining,
}

impl NodeState {
    pub fn name(self) -> &'static str {
        match self {
            NodeState::Joined => "joined",
            NodeState::Silent => "silent",
            NodeState::EndsOthers => "ends_others",
            NodeState::Released => "released",
            NodeState::Ending => "ending",
            NodeState::Draining => "draining",
        }
    }
}

impl Pool {
    /// Every node that is not gone. The machine of the controller is one of them.
    pub(crate) fn node_views(&self) -> Vec<NodeView> {
        let mut ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let joined = self.known_nodes.iter();
        let joined = joined.filter(|(_, it)| it.presence != Presence::Gone);
        ids.extend(joined.map(|(&id, _)| id));
        ids.sort();
        ids.dedup();
        ids.into_iter().map(|id| self.node_view(id)).collect()
    }

    fn node_view(&self, id: NodeId) -> NodeView {
        let name = self.node_name(id);
        let known = self.known_nodes.get(&id);
        let joined = known.map_or(Time(0), |it| it.since);
        let drain = self.drains.get(&name);
        let (state, since, reason) = match (self.away(id), drain) {
            (Some(Away::Silent), _) => {
                let silent = self.silent_for(id);
                let reason = format!("node {name} has not been heard of for {silent}");
                (NodeState::Silent, joined, reason)
            }
            (Some(Away::Released), _) => (
                NodeState::Released,
                joined,
                match self.moving.contains(&id) {
                    true => String::from("it is empty before its time ends, and given back"),
                    false => String::from("it is idle and given back"),
                },
            ),
            (Some(Away::Ends), _) => {
                let left = self.node_lasts(id);
                let since = self.node_times.get(&id).map_or(joined, |it| it.moves);
                let reason =
                    format!("it ends in {left}: what is in use moves, and nothing is placed on it");
                (NodeState::Ending, since, reason)
            }
            (_, Some(drain)) => (NodeState::Draining, drain.since, drain.reason.clone()),
            (Some(Away::EndsOthers), None) => {
                let engines = self.engines_given_up(id);
                let reason = format!("{engines} of its engines are not the pool's any more");
                (NodeState::EndsOthers, joined, reason)
            }
            (None, None) => (NodeState::Joined, joined, String::new()),
        };
        let devices = self.nodes.get(&id).into_iter().flatten().copied();
        NodeView {
            node: id,
            name,
            state,
            devices: devices.collect(),
            demand: known.and_then(|it| it.demand),
            ends: self.node_times.get(&id).map(|it| it.ends()),
            since,
            reason,
        }
    }
}
