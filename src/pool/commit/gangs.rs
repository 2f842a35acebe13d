//! Ends a replica that spans several nodes when a process of it has ended (M8): the others are stopped, and the memory of each is
//! free once it has ended.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::Action;
use crate::types::event::{Exit, Remedy};
use crate::types::gang::MEETING_PORTS;
use crate::types::ids::{NodeId, ReplicaId, Span};
use crate::types::reason::StopReason;
use crate::types::replica::Phase;
use crate::types::share::Share;

impl Pool {
    /// The process of a replica on this node has ended.
    pub(crate) fn member_exited(
        &mut self,
        id: ReplicaId,
        node: NodeId,
        exit: Exit,
        actions: &mut Actions,
    ) {
        let Some(replica) = self.replicas.get(&id) else {
            return self.is_off_this_node(id, node);
        };
        let Some(gang) = &replica.gang else {
            if self.node_of(replica) == node {
                return self.replica_exited(id, exit, actions);
            }
            return self.is_off_this_node(id, node);
        };
        let Some(rank) = gang.rank_on(node) else {
            return self.is_off_this_node(id, node);
        };
        let name = self.node_name(node);
        let why = match &exit {
            Exit::Requested => "it was stopped there".to_string(),
            Exit::Failed { message, .. } | Exit::OutOfMemory { message, .. } => message.clone(),
        };
        let reason = StopReason::MemberEnded {
            node: name.clone(),
            rank: u32::try_from(rank).unwrap_or(u32::MAX),
            why,
            ready_for: self.ready_for(id),
        };
        let on = |message: &str| format!("rank {rank} on node {name}: {message}");
        let exit = match exit {
            Exit::Requested => Exit::Requested,
            Exit::Failed { message, remedy } => Exit::Failed {
                message: on(&message),
                remedy,
            },
            Exit::OutOfMemory { message, needed } => Exit::OutOfMemory {
                message: on(&message),
                needed,
            },
        };
        self.member_ends(id, node, reason, exit, actions);
    }

    /// The node of a member is gone or came back without it.
    pub(super) fn member_vanishes(
        &mut self,
        id: ReplicaId,
        node: NodeId,
        why: &str,
        actions: &mut Actions,
    ) {
        let gang = self.replicas[&id].gang.as_ref();
        let Some((rank, count)) =
            gang.and_then(|gang| Some((gang.rank_on(node)?, gang.members.len())))
        else {
            return;
        };
        let reason = StopReason::NodeLost {
            node: self.node_name(node),
            why: format!("{why}, with rank {rank} of its {count} processes"),
        };
        let exit = match self.replicas[&id].phase {
            Phase::Launching { .. } => Exit::Failed {
                message: reason.to_string(),
                remedy: Remedy::Retry,
            },
            _ => Exit::Requested,
        };
        self.member_ends(id, node, reason, exit, actions);
    }

    fn member_ends(
        &mut self,
        id: ReplicaId,
        node: NodeId,
        reason: StopReason,
        exit: Exit,
        actions: &mut Actions,
    ) {
        let replica = &self.replicas[&id];
        let gang = replica.gang.as_ref().expect("a gang");
        let is_first = gang.first_exit.is_none();
        let is_last = gang.running() <= 1;
        let is_stopping = matches!(replica.phase, Phase::Stopping { .. });
        if !is_stopping {
            self.stop(id, reason, actions);
        } else if is_first && replica.crashed() {
            // Its requests are lost already, and no order to end has reached the other processes.
            actions.push(Action::Stop {
                replica: id,
                grace: Span::ZERO,
                reason,
            });
        }
        let gang = self
            .replicas
            .get_mut(&id)
            .and_then(|replica| replica.gang.as_mut());
        let first = gang.expect("a gang").first_exit.get_or_insert(exit).clone();
        if is_last {
            return self.replica_exited(id, first, actions);
        }
        self.release_member(id, node);
    }

    /// The id of a replica with this placement. Replicas with the same leader's node meet at different ports as long as they exist
    /// together (M8).
    pub(super) fn new_id(&mut self, placement: &[Share]) -> ReplicaId {
        let Some(gang) = self.gang_of(placement) else {
            return self.replicas.new_id();
        };
        let others = self.gangs().filter(|(_, leader)| *leader == gang.leader());
        let taken: BTreeSet<u64> = others.map(|(other, _)| other.meeting_place()).collect();
        let mut ids = (0..MEETING_PORTS).map(|_| self.replicas.new_id());
        let id = ids.find(|id| !taken.contains(&id.meeting_place()));
        id.unwrap_or_else(|| self.replicas.new_id())
    }

    /// Frees the memory of a member whose process has ended. The replica is stopping.
    fn release_member(&mut self, id: ReplicaId, node: NodeId) {
        self.grows_at(id);
        let replica = self.replicas.get_mut(&id).expect("stopping");
        for member in &mut replica.gang.as_mut().expect("a gang").members {
            member.ended |= member.node == node;
        }
        let now = self.now;
        let shares = core::mem::take(&mut replica.shares);
        let devices = &self.devices;
        let (here, others): (Vec<Share>, Vec<Share>) = shares
            .into_iter()
            .partition(|share| devices[&share.device].node == node);
        replica.shares = others;
        for share in here {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.release(id, share.bytes, true, now);
            device.used = device.used.max(now);
        }
        self.disks.ends(id);
        self.schedule_moves(node);
        self.touch(id);
    }

    /// The time since the replica became ready; zero if it is not.
    fn ready_for(&self, id: ReplicaId) -> Span {
        match &self.replicas[&id].phase {
            Phase::Ready { since }
            | Phase::Draining {
                ready_since: since, ..
            } => self.now.since(*since),
            _ => Span::ZERO,
        }
    }
}
