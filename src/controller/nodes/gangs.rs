//! Replicas that span several nodes (M8): one process on each, with the requests at the leader. Their launch, their reports, and their
//! return to a new controller.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::Path;

use crate::control::{Control, Node};
use crate::gates::CutReason;
use crate::view::MemberFacts;
use catalog::GangMember;
use engine::{DeviceAddress, ExitReport, Launch};
use node_link::{EngineReport, Order};
use pool::{Event, Exit, GangReach, ModelId, NodeId, Remedy, ReplicaId, Share};

impl Node {
    /// The nodes with which this one can share a replica.
    pub(super) fn reach(&self) -> GangReach {
        if self.runs_members {
            reach_from(self.relay.address.ip())
        } else {
            let version = self.version.clone();
            GangReach::Alone { version }
        }
    }
}

/// The reach of a node whose listener is at this address. Its processes meet the processes of other nodes there.
fn reach_from(address: IpAddr) -> GangReach {
    if address.to_canonical().is_loopback() {
        GangReach::Machine
    } else {
        GangReach::Network
    }
}

/// The shift of the ports at which the processes of this pool's replicas meet. Each controller on a machine has a separate folder.
fn port_shift(state_dir: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    state_dir.hash(&mut hasher);
    hasher.finish()
}

impl Control {
    /// Starts a process on each of these nodes, or on none.
    pub(crate) fn launch_gang(
        &mut self,
        replica: ReplicaId,
        model: ModelId,
        launch: &Launch,
        parts: Vec<(NodeId, Vec<Share>)>,
    ) -> Option<Event> {
        let members = match self.gang_members(replica, &parts) {
            Ok(members) => members,
            Err(message) => {
                self.engines.remove(replica);
                let remedy = Remedy::Time;
                let exit = Exit::Failed { message, remedy };
                return Some(Event::ReplicaExited { replica, exit });
            }
        };
        for (member, (node, part)) in members.into_iter().zip(parts) {
            let is_own =
                |device: &&DeviceAddress| part.iter().any(|share| share.device == device.id);
            let launch = Launch {
                devices: launch.devices.iter().filter(is_own).cloned().collect(),
                member: Some(member),
                ..launch.clone()
            };
            let kept = self.kept_of(model, &part);
            self.launch_on(node, model, launch, kept);
        }
        None
    }

    /// The places of the processes. The pool has chosen nodes that reach each other, and hears of a node that leaves before it orders
    /// a launch there.
    fn gang_members(
        &self,
        replica: ReplicaId,
        parts: &[(NodeId, Vec<Share>)],
    ) -> Result<Vec<GangMember>, String> {
        let mut nodes = Vec::new();
        let mut addresses = Vec::new();
        for (id, _) in parts {
            let node = self.nodes.get(*id);
            let node = node.ok_or_else(|| format!("node {id} has left"))?;
            nodes.push(node.name.clone());
            addresses.push(node.relay.address.ip());
        }
        let leader_address = *addresses.first().ok_or("it has no node")?;
        let shift = port_shift(&self.config.state.dir);
        let member = |(rank, address)| GangMember {
            rank,
            nodes: nodes.clone(),
            leader_address,
            leader_port: replica.meeting_port(shift),
            address,
        };
        Ok((0..).zip(addresses.iter().copied()).map(member).collect())
    }

    /// The processes of a replica with this placement; none if it is on a single node.
    pub(crate) fn members_of(&self, placement: &[Share]) -> Vec<MemberFacts> {
        let parts = self.devices.by_node(placement);
        if parts.len() < 2 {
            return Vec::new();
        }
        let member = |(node, _): &(NodeId, Vec<Share>)| MemberFacts {
            node: *node,
            node_name: self.nodes.name(*node).unwrap_or_default().to_owned(),
            pid: None,
            has_ended: false,
        };
        parts.iter().map(member).collect()
    }

    /// Handles a report of one process of a replica. Requests, readiness and load are the leader's.
    pub(super) fn member_report(&mut self, node: NodeId, replica: ReplicaId, report: EngineReport) {
        let Some(facts) = self.engines.get(replica) else {
            return;
        };
        let (model, is_ready) = (facts.model, facts.ready);
        let Some((rank, place)) = place_of(&facts.members, node) else {
            return;
        };
        match report {
            EngineReport::Exited(exit) => self.member_exited(node, replica, &place, &exit),
            EngineReport::Dead { reason: why } | EngineReport::Ended { message: why } => {
                self.lost(replica, model, format!("{place}: {why}"));
            }
            EngineReport::Progress { .. } if is_ready => {}
            EngineReport::Ready { .. }
            | EngineReport::Memory { .. }
            | EngineReport::Load(_)
            | EngineReport::Contained { .. }
                if rank > 0 => {}
            EngineReport::Started { pid } if rank > 0 => {
                self.member_started(node, replica, Some(pid));
            }
            report => {
                if let EngineReport::Started { pid } = report {
                    self.member_started(node, replica, Some(pid));
                }
                if let Some(endpoint) = self.nodes.endpoint(node, replica) {
                    self.report(replica, report.report(endpoint));
                }
            }
        }
    }

    pub(super) fn member_started(&mut self, node: NodeId, replica: ReplicaId, pid: Option<u32>) {
        let facts = self.engines.get_mut(replica).into_iter();
        let mut members = facts.flat_map(|facts| &mut facts.members);
        if let Some(member) = members.find(|member| member.node == node) {
            member.pid = pid;
        }
        self.publishing.outdated();
    }

    /// The process on this node has ended. The pool then orders the others to end.
    fn member_exited(&mut self, node: NodeId, replica: ReplicaId, place: &str, exit: &ExitReport) {
        let with_node = self.ends_with_node(node);
        let message = exit.failure.tell(&exit.last_output, &exit.status);
        let outcome = self.exit_of(replica, exit, with_node.is_some());
        let why = with_node.unwrap_or_else(|| CutReason::Crashed(format!("{place}: {message}")));
        self.member_is_gone(node, replica, why);
        self.turn(Event::MemberExited {
            replica,
            node,
            exit: outcome,
        });
        self.publish();
        self.devices.look_again();
    }

    /// Forgets the process on a node that is gone or has come back without it. Returns false for a replica on a single node.
    pub(super) fn forgets_member(&mut self, node: NodeId, replica: ReplicaId, why: &str) -> bool {
        let facts = self.engines.get(replica);
        let Some(facts) = facts.filter(|facts| !facts.members.is_empty()) else {
            return false;
        };
        if let Some((_, place)) = place_of(&facts.members, node) {
            let why = CutReason::Crashed(format!("{place}: {why}"));
            self.member_is_gone(node, replica, why);
        }
        true
    }

    /// Ends the replica's requests. Its facts stay until its last process has ended.
    fn member_is_gone(&mut self, node: NodeId, replica: ReplicaId, why: CutReason) {
        let Some(facts) = self.engines.get_mut(replica) else {
            return;
        };
        let model = facts.model;
        for member in &mut facts.members {
            member.has_ended |= member.node == node;
        }
        let is_last = facts.members.iter().all(|member| member.has_ended);
        if let Some(gate) = self.engines.gate(replica) {
            gate.cut(why);
        }
        self.publishing.withdraw(replica, model);
        if is_last {
            self.measured_to_the_end(replica, model);
            self.engines.remove(replica);
            self.engines.drop_gate(replica);
        }
    }

    /// Ends the replicas of the last controller of which a process has not returned and will not: its node has come back without it
    /// or is gone (N8).
    pub(super) fn end_incomplete_gangs(&mut self) {
        let may_list = |name: &str| self.nodes.may_list(name);
        let ending = self.nodes.returning.incomplete(may_list);
        for (replica, missing) in ending {
            let processes = self.nodes.returning.take(replica);
            tracing::warn!(
                "{replica} is stopped on {} nodes: its process on node {missing} has not returned (D2, M8)",
                processes.len()
            );
            for (node, engine, _) in processes {
                let grace_ms = engine.kept.stop_grace_ms;
                let replica = engine.replica;
                self.nodes.order(node, Order::Stop { replica, grace_ms });
            }
        }
    }
}

/// The rank of the process on this node, and its place in words; `None` if it has ended.
fn place_of(members: &[MemberFacts], node: NodeId) -> Option<(usize, String)> {
    let mut all = members.iter().enumerate();
    let is_it = |(_, member): &(usize, &MemberFacts)| member.node == node && !member.has_ended;
    let (rank, member) = all.find(is_it)?;
    Some((rank, format!("rank {rank} on node {}", member.node_name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn m8_nodes_on_loopback_addresses_reach_only_each_other() {
        for (address, reach) in [
            ("127.0.0.1", GangReach::Machine),
            ("127.8.0.1", GangReach::Machine),
            ("::1", GangReach::Machine),
            ("::ffff:127.0.0.1", GangReach::Machine),
            ("10.0.0.2", GangReach::Network),
            ("::ffff:10.0.0.2", GangReach::Network),
            ("fd00::2", GangReach::Network),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(reach_from(address), reach, "{address}");
        }
    }

    #[test]
    fn m8_pools_with_separate_folders_meet_at_different_ports_and_replicas_of_a_pool_too() {
        let folders = ["/var/lib/model-pool", "/srv/pool/data", "data"];
        let shifts = folders.map(|folder| port_shift(Path::new(folder)));
        let mut first: Vec<u16> = Vec::new();
        for shift in shifts {
            let ports = (1..=500).map(|id| ReplicaId(id).meeting_port(shift));
            let ports: Vec<u16> = ports.collect();
            first.push(ports[0]);
            let all: BTreeSet<u16> = ports.into_iter().collect();
            assert_eq!(all, (29_500..30_000).collect());
        }
        let apart: BTreeSet<u16> = first.iter().copied().collect();
        assert_eq!(apart.len(), folders.len(), "{first:?}");
    }
}
