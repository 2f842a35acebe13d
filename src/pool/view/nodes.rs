//! The nodes as administrators see them.

use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::ids::{DemandId, DeviceId, NodeId, ShapeId, Time};
use crate::types::node::{Away, Presence};

#[derive(Clone, Debug)]
pub struct NodeView {
    pub node: NodeId,
    pub name: String,
    pub state: NodeState,
    pub devices: Vec<DeviceId>,
    /// The request of the pool that brought the node.
    pub demand: Option<DemandId>,
    /// The requested size, if it is known.
    pub shape: Option<ShapeId>,
    /// The time at which it must be gone, if known (N7).
    pub ends: Option<Time>,
    /// The time since which it has been in this state.
    pub since: Time,
    /// The reason for the state, for administrators; empty if there is none.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    Joined,
    /// The node does not respond (N2).
    Silent,
    /// The node has returned and is ending engines that the pool has given up (N4).
    EndsOthers,
    /// The pool gives it back (S2).
    Released,
    /// The node's time ends soon, or a cheaper place is free, and its replicas move (N7, S3).
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
    /// All nodes that are not gone, by name. The controller's own machine is first.
    pub(crate) fn node_views(&self) -> Vec<NodeView> {
        let mut ids: Vec<NodeId> = self.nodes.with_devices().collect();
        let joined = self.nodes.all_known().iter();
        let joined = joined.filter(|(_, node)| node.presence != Presence::Gone);
        ids.extend(joined.map(|(&id, _)| id));
        ids.sort();
        ids.dedup();
        let mut views: Vec<NodeView> = ids.into_iter().map(|id| self.node_view(id)).collect();
        views.sort_by_cached_key(|view| (view.node != NodeId(0), view.name.clone()));
        views
    }

    fn node_view(&self, id: NodeId) -> NodeView {
        let name = self.node_name(id);
        let known = self.nodes.known(id);
        let joined = known.map_or(Time(0), |node| node.since);
        let drain = self.nodes.drain(&name);
        let (state, since, reason) = match (self.away(id), drain) {
            (Some(Away::Silent), _) => {
                let silent = self.silent_for(id);
                let reason = format!("node {name} has not responded for {silent}");
                (NodeState::Silent, joined, reason)
            }
            (Some(Away::Released), _) => (
                NodeState::Released,
                joined,
                if self.consolidation.empties(id) {
                    String::from("its models have moved to a cheaper place, and it is given back")
                } else if let Some(why) = self.batches.left_for(id) {
                    format!("it was requested for batches and is given back: {why}")
                } else if self.nodes.moves(id) {
                    String::from("it is empty before its time ends, and given back")
                } else {
                    String::from("it is idle and given back")
                },
            ),
            (Some(Away::Gathers), None) => {
                let set = self.node_demand.set_of(id);
                let requested = set.map_or(1, |set| set.requests);
                let reason = format!(
                    "it waits for the other nodes of {requested} that were requested together"
                );
                (NodeState::Joined, joined, reason)
            }
            (Some(Away::Ends), _) => {
                let left = self.node_lasts(id);
                let since = self.nodes.time(id).map_or(joined, |time| time.moves);
                let reason =
                    format!("it ends in {left}: what is in use moves, and nothing is placed on it");
                (NodeState::Ending, since, reason)
            }
            (Some(Away::Emptied), _) => {
                let current = self.consolidation.current();
                let since = current.map_or(joined, |(_, since)| since);
                let reason = "its models move to a cheaper place, and it is given back";
                (NodeState::Ending, since, String::from(reason))
            }
            (_, Some(drain)) => (NodeState::Draining, drain.since, drain.reason.clone()),
            (Some(Away::EndsOthers), None) => {
                let engines = self.engines_given_up(id);
                let reason = format!("{engines} of its engines no longer belong to the pool");
                (NodeState::EndsOthers, joined, reason)
            }
            (None, None) => (NodeState::Joined, joined, String::new()),
        };
        let devices = self.nodes.devices_of(id).copied();
        NodeView {
            node: id,
            name,
            state,
            devices: devices.collect(),
            demand: known.and_then(|node| node.demand),
            shape: known.and_then(|node| node.shape),
            ends: self.nodes.time(id).map(|time| time.ends()),
            since,
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::event::{DeviceReading, Event};
    use crate::types::gang::GangReach;
    use crate::types::ids::{Bytes, ReplicaId};
    use crate::types::model::Limits;

    #[test]
    fn nodes_are_listed_by_name_after_the_controllers_machine() {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let reading = DeviceReading {
            name: String::from("gpu0"),
            total: Bytes(Bytes::GIB),
            ..DeviceReading::default()
        };
        let device = DeviceId(0);
        pool.step(Time(0), Event::DeviceRead { device, reading });
        for (number, name) in [(7, "lab-b"), (8, "lab-c"), (9, "a-node")] {
            let joined = Event::NodeJoined {
                node: NodeId(number),
                name: String::from(name),
                running: Vec::new(),
                demand: None,
                reach: GangReach::Network,
            };
            pool.step(Time(1), joined);
        }
        let expected = Event::NodeExpected {
            node: NodeId(10),
            name: String::from("lab-a"),
        };
        pool.step(Time(2), expected);
        let views = pool.node_views();
        let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
        assert_eq!(names, ["local", "a-node", "lab-a", "lab-b", "lab-c"]);
    }
}
