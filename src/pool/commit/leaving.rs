//! Carries out that a replica leaves: drains, stops, reopened gates, and engines that are lost or not adopted.

use alloc::string::{String, ToString};

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::{Action, GateMode, Record, RecordKind};
use crate::types::decision::Drain;
use crate::types::event::{Exit, Remedy};
use crate::types::ids::{ModelId, NodeId, OrderId, ReplicaId, Span};
use crate::types::reason::StopReason;
use crate::types::replica::Phase;

impl Pool {
    /// Ends a replica whose node is gone or came back without it. This is not a failure of the model unless its loads end this way
    /// repeatedly.
    pub(crate) fn vanishes(
        &mut self,
        id: ReplicaId,
        node: NodeId,
        why: &str,
        actions: &mut Actions,
    ) {
        if self.replicas[&id].gang.is_some() {
            return self.member_vanishes(id, node, why, actions);
        }
        let reason = StopReason::NodeLost {
            node: self.node_name(node),
            why: why.to_string(),
        };
        let exit = match self.replicas[&id].phase {
            Phase::Stopping { .. } => Exit::Requested,
            Phase::Launching { .. } => {
                let (replica, grace) = (id, Span::ZERO);
                let remedy = Remedy::Retry;
                let message = reason.to_string();
                actions.push(Action::Stop {
                    replica,
                    grace,
                    reason,
                });
                Exit::Failed { message, remedy }
            }
            _ => {
                // Streams still in flight are cut with the reason.
                self.stop(id, reason, actions);
                Exit::Requested
            }
        };
        self.replica_exited(id, exit, actions);
    }

    pub(super) fn drain(&mut self, drain: Drain, actions: &mut Actions) {
        let now = self.now;
        let Drain {
            replica: id,
            deadline,
            reason,
            only_if_idle,
            for_load,
        } = drain;
        let replica = self.replicas.get_mut(&id).expect("drained while alive");
        let model = replica.model;
        if let Phase::Draining {
            deadline: old,
            reason: why,
            for_load: load,
            ..
        } = &mut replica.phase
        {
            // Already draining: the new reason replaces the old one, with an earlier deadline.
            (*old, *why, *load) = (deadline, reason, for_load);
            self.touch(id);
            return;
        }
        let by_itself = matches!(
            reason,
            StopReason::KeepHot { .. } | StopReason::Unload { .. } | StopReason::Cleanup { .. }
        );
        let since = replica.ready_since().expect("only a ready replica drains");
        let announced = replica.leaves_with.take();
        let is_recorded = announced.as_ref().is_some_and(|with| with.reason == reason);
        let record = (!is_recorded).then(|| self.exit_record(id, &reason));
        self.replicas.no_longer_leaves_later(id);
        let replica = self.replicas.get_mut(&id).expect("drained while alive");
        replica.gate = None;
        replica.phase = Phase::Draining {
            ready_since: since,
            since: now,
            deadline,
            reason: reason.clone(),
            for_load,
            closed: false,
        };
        let (shares, entered) = (replica.shares.clone(), replica.entered);
        if announced.is_none() {
            for share in &shares {
                let device = self.devices.get_mut(&share.device).expect("held");
                device.starts_leaving(share.bytes);
            }
        }
        if by_itself {
            self.scaled_down(model);
        }
        if matches!(reason, StopReason::KeepHot { .. }) {
            // A load restored after a restart that did not finish within the keep-hot time is not restarted.
            self.models.set_restoring(model, false);
        }
        self.touch_model(model);
        self.grows_at(id);
        actions.push(Action::CloseGate {
            replica: id,
            if_idle_at: only_if_idle.then_some(entered),
        });
        if let Some(record) = record {
            actions.record(record);
        }
    }

    /// The history's record of a ready replica that leaves.
    pub(super) fn exit_record(&self, id: ReplicaId, reason: &StopReason) -> Record {
        let replica = &self.replicas[&id];
        let kind = match reason {
            StopReason::Preempted { .. }
            | StopReason::TurnEnded { .. }
            | StopReason::Yielded { .. }
            | StopReason::BatchYielded { .. }
            | StopReason::Forced { .. } => RecordKind::Evict,
            StopReason::Unload { .. } => RecordKind::Unload,
            _ => RecordKind::Drain,
        };
        let text = format!("{reason}; {} in flight", replica.in_flight);
        let mut record = self.record(kind, Some(replica.model), text);
        record.cause = Some(reason.name());
        record.replica = Some(id);
        record.order = reason.order();
        record.placement = replica.shares.clone();
        record.took = replica.ready_since().map(|since| self.now.since(since));
        record
    }

    pub(super) fn reopen(&mut self, id: ReplicaId, actions: &mut Actions) {
        let replica = self.replicas.get_mut(&id).expect("draining");
        let Phase::Draining { ready_since, .. } = replica.phase else {
            return;
        };
        replica.phase = Phase::Ready { since: ready_since };
        let model = replica.model;
        let queued = self.queues.wait_for(replica.model);
        // A replica on a silent node does not reopen.
        let gate = if queued {
            GateMode::Queued
        } else {
            GateMode::Open
        };
        replica.gate = Some(gate);
        actions.push(Action::SetGate { replica: id, gate });
        for share in replica.shares.clone() {
            self.devices
                .get_mut(&share.device)
                .expect("held")
                .stays(share.bytes);
        }
        self.touch_model(model);
        self.agenda.promises_change();
    }

    pub(crate) fn stop(&mut self, id: ReplicaId, reason: StopReason, actions: &mut Actions) {
        let now = self.now;
        if self.replicas.no_longer_asleep(id) && self.planned.contains_key(&id) {
            self.abandon(id);
        }
        self.replicas.no_longer_leaves_later(id);
        let replica = self.replicas.get_mut(&id).expect("stopped while alive");
        let was_leaving = replica.is_leaving();
        replica.leaves_with = None;
        for share in replica.keeps() {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.starts_leaving(share.bytes);
        }
        let was_launching = matches!(replica.phase, Phase::Launching { .. });
        let drained = match replica.phase {
            Phase::Draining { since, .. } => now.since(since),
            _ => Span::ZERO,
        };
        replica.phase = Phase::Stopping {
            since: now,
            reason: reason.clone(),
            was_launching,
        };
        let (shares, model) = (replica.shares.clone(), replica.model);
        let replica = &self.replicas[&id];
        let host = replica.parked.as_ref().map(|parked| parked.host);
        if drained > Span::ZERO {
            let known = &mut self.models.get_mut(&model).expect("stays").drain_takes;
            *known = Span(known.0.midpoint(drained.0));
        }
        let node = self.devices[&shares[0].device].node;
        if let Some(ledger) = self.nodes.host_mut(node) {
            ledger.starts_returning(host.unwrap_or_default());
        }
        if !was_leaving {
            for share in shares {
                self.devices
                    .get_mut(&share.device)
                    .expect("held")
                    .starts_leaving(share.bytes);
            }
        }
        self.touch_model(model);
        self.grows_at(id);
        // A load and a replica that has lost a process have nothing to finish, and end immediately.
        let gang = self.replicas[&id].gang.is_some();
        let is_broken = gang
            && matches!(
                reason,
                StopReason::MemberEnded { .. } | StopReason::NodeLost { .. }
            );
        let grace = if was_launching || is_broken {
            Span::ZERO
        } else {
            self.models[&model].spec.stop_grace
        };
        actions.push(Action::Stop {
            replica: id,
            grace,
            reason,
        });
    }

    pub(crate) fn stop_adopted(
        &self,
        replica: ReplicaId,
        model: ModelId,
        why: String,
        actions: &mut Actions,
    ) {
        let model = self.models.get(&model);
        let grace = model.map_or(Span::ZERO, |model| model.spec.stop_grace);
        actions.push(Action::Stop {
            replica,
            grace,
            reason: StopReason::NotAdopted { why },
        });
    }
}

impl StopReason {
    pub(crate) fn order(&self) -> Option<OrderId> {
        match self {
            StopReason::Unload { order }
            | StopReason::Cleanup { order }
            | StopReason::Reset { order }
            | StopReason::Cordoned { order, .. }
            | StopReason::NodeDrained { order, .. }
            | StopReason::Forced { order, .. } => Some(*order),
            _ => None,
        }
    }
}
