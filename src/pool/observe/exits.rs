//! Records that a replica's process has ended: its memory, the load that counted on it, and what the failure means for the model
//! (L3, M1, M4). Facts only.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::{MemoryChange, RecordKind};
use crate::types::event::{Exit, Remedy};
use crate::types::ids::{Bytes, ModelId, NodeId, ReplicaId, Span};
use crate::types::reason::StopReason;
use crate::types::replica::{Phase, Replica};

/// The amount added to a figure that proved too small, if no better figure is known.
const MORE_AT_LEAST: Bytes = Bytes(Bytes::GIB / 2);

impl Pool {
    /// The engine is dead, though parts of it may remain. The replica takes no more requests, and its memory becomes free once it
    /// is gone.
    pub(crate) fn replica_lost(&mut self, id: ReplicaId) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        // A replica that loads, drains or stops has no open gate.
        let Phase::Ready { since } = replica.phase else {
            return;
        };
        replica.gate = None;
        replica.phase = Phase::Stopping {
            since: now,
            reason: StopReason::Crashed {
                ready_for: now.since(since),
            },
            was_launching: false,
        };
        let model = replica.model;
        if replica.leaves_with.take().is_none() {
            for share in &replica.shares {
                let device = self.devices.get_mut(&share.device).expect("held");
                device.starts_leaving(share.bytes);
            }
        }
        self.replicas.no_longer_leaves_later(id);
        self.touch_model(model);
        self.grows_at(id);
    }

    pub(crate) fn replica_exited(&mut self, id: ReplicaId, exit: Exit, actions: &mut Actions) {
        let now = self.now;
        self.grows_at(id);
        self.keys_end(id);
        self.host_returns(id);
        let Some(replica) = self.replicas.remove(id) else {
            return self.is_off_the_node(id);
        };
        let memory = self.take_back(id, &replica);
        let nodes: Vec<NodeId> = self.nodes_of(&replica).collect();
        for node in nodes {
            self.schedule_moves(node);
        }
        if let Some(parked) = &replica.parked {
            let returning = matches!(replica.phase, Phase::Stopping { .. });
            self.leaves_host(self.node_of(&replica), parked, returning);
        }
        if self.replicas.no_longer_asleep(id) && self.planned.contains_key(&id) {
            self.abandon(id);
        }
        self.read_ends(id);
        self.touch_model(replica.model);
        let model = self
            .models
            .get_mut(&replica.model)
            .expect("a replica's model stays");
        model.replicas.remove(&id);
        model.has_returned &= model.replicas.len() > 1;
        for planned in self.planned.values_mut() {
            planned.victims.remove(&id);
        }
        for order in self.orders.values_mut() {
            order.targets.remove(&id);
        }
        let message = match &exit {
            Exit::Requested => String::new(),
            Exit::Failed { message, .. } | Exit::OutOfMemory { message, .. } => message.clone(),
        };
        let (kind, reason) = match (&replica.phase, &exit) {
            (
                Phase::Stopping {
                    reason: reason @ StopReason::LoadTimedOut { .. },
                    ..
                },
                _,
            ) => (
                RecordKind::LoadFailed,
                format!(
                    "{reason}{}{message}",
                    if message.is_empty() { "" } else { ": " }
                ),
            ),
            (
                Phase::Stopping {
                    reason: reason @ StopReason::DidNotWake { .. },
                    ..
                },
                _,
            ) => (RecordKind::LoadFailed, reason.to_string()),
            (phase, Exit::OutOfMemory { needed, .. }) if ended_in_load(phase) => {
                let learned = self.learn_from_oom(&replica, *needed);
                (RecordKind::LoadFailed, format!("{message}{learned}"))
            }
            (phase, Exit::Failed { .. }) if ended_in_load(phase) => {
                (RecordKind::LoadFailed, message.clone())
            }
            // The shell reports the end of an engine whose node ends, too, as requested.
            (
                Phase::Ready { .. }
                | Phase::Draining { .. }
                | Phase::Parking { .. }
                | Phase::Asleep { .. }
                | Phase::Stopping {
                    reason: StopReason::Crashed { .. } | StopReason::MemberEnded { .. },
                    ..
                },
                Exit::Requested,
            ) => (
                RecordKind::Gone,
                "its node ends, and its engine with it (N3)".to_string(),
            ),
            (
                Phase::Stopping {
                    reason: StopReason::Crashed { .. } | StopReason::MemberEnded { .. },
                    ..
                },
                _,
            ) => (RecordKind::Crash, message.clone()),
            (Phase::Stopping { reason, .. }, _) => (RecordKind::Gone, reason.to_string()),
            (Phase::Launching { .. }, _) if replica.parked.is_some() => {
                (RecordKind::LoadFailed, format!("did not wake: {message}"))
            }
            (Phase::Launching { .. }, Exit::OutOfMemory { needed, .. }) => {
                let learned = self.learn_from_oom(&replica, *needed);
                (RecordKind::LoadFailed, format!("{message}{learned}"))
            }
            (Phase::Launching { .. }, _) => (RecordKind::LoadFailed, message.clone()),
            (Phase::Parking { .. } | Phase::Asleep { .. }, _) => {
                (RecordKind::Crash, format!("ended while asleep: {message}"))
            }
            (Phase::Draining { .. }, _) => (
                RecordKind::Crash,
                format!("ended while draining: {message}"),
            ),
            (Phase::Ready { .. }, _) => (RecordKind::Crash, message.clone()),
        };
        let mut record = self.record(kind, Some(replica.model), reason.clone());
        if let Phase::Stopping { reason, .. } = &replica.phase {
            record.cause = Some(reason.name());
        }
        record.replica = Some(id);
        record.memory = memory;
        record.took = Some(match &replica.phase {
            Phase::Stopping { since, .. } if kind != RecordKind::Crash => now.since(*since),
            _ => now.since(replica.launched),
        });
        // A load that is ended has nothing to finish, so it does not show how long a serving replica takes to stop.
        let was_launching = matches!(
            replica.phase,
            Phase::Stopping {
                was_launching: true,
                ..
            }
        );
        if kind == RecordKind::Gone
            && !was_launching
            && !matches!(record.cause, Some("node_lost"))
            && let Some(took) = record.took
        {
            let model = self.models.get_mut(&replica.model).expect("stays");
            model.stop_takes = match model.stop_takes {
                Span::ZERO => took,
                known => Span(known.0.midpoint(took.0)),
            };
            self.grows_at_model(replica.model);
        }
        actions.record(record);
        let ready_for = match replica.phase {
            Phase::Ready { since } => now.since(since),
            Phase::Draining { ready_since, .. } => now.since(ready_since),
            Phase::Stopping {
                reason:
                    StopReason::Crashed { ready_for } | StopReason::MemberEnded { ready_for, .. },
                ..
            } => ready_for,
            _ => Span::ZERO,
        };
        let remedy = match exit {
            Exit::Failed { remedy, .. } => remedy,
            _ => Remedy::Time,
        };
        // If waking fails, no request is refused: the next replica is loaded instead.
        let woken = replica.parked.is_some();
        // The last output of an engine that was being stopped says nothing about the next load.
        let was_stopped =
            matches!(replica.phase, Phase::Stopping { .. }) && !ended_in_load(&replica.phase);
        let again = match exit {
            _ if woken || was_stopped || kind != RecordKind::LoadFailed => false,
            Exit::OutOfMemory { .. } => self.plans_again(replica.model),
            _ => remedy == Remedy::Retry && self.tries_again(replica.model),
        };
        match kind {
            _ if woken => {}
            RecordKind::LoadFailed if again => {}
            RecordKind::LoadFailed => self.load_failed(replica.model, reason, remedy, actions),
            // A crash soon after the start means that the load did not really succeed.
            RecordKind::Crash if ready_for < self.limits.healthy_after => {
                self.count_failure(replica.model, reason, remedy);
                let model = self.models.get_mut(&replica.model).expect("stays");
                model.crashes = model.crashes.saturating_add(1);
            }
            RecordKind::Crash => self
                .models
                .get_mut(&replica.model)
                .expect("stays")
                .forget_failures(),
            _ => {}
        }
        self.forget_wish_if_gone(replica.model, &replica.phase, actions);
    }

    fn take_back(&mut self, id: ReplicaId, replica: &Replica) -> Vec<MemoryChange> {
        let now = self.now;
        let mut memory = Vec::new();
        for share in replica.keeps() {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.starts_leaving(share.bytes);
        }
        for share in &replica.shares {
            let device = self.devices.get_mut(&share.device).expect("held");
            let before = device.reserved;
            device.release(id, share.bytes, replica.is_leaving(), now);
            let was_cut = replica.in_flight > 0;
            device.used = device
                .used
                .max(if was_cut { now } else { replica.used_until() });
            memory.push(MemoryChange {
                device: share.device,
                before,
                after: device.reserved,
            });
        }
        memory
    }

    /// Raises the model's figure after a load ran out of memory (M1).
    fn learn_from_oom(&mut self, replica: &Replica, needed: Option<Bytes>) -> String {
        let gang = replica.gang.as_ref().map(|gang| gang.devices);
        let devices = gang.unwrap_or(replica.shares.len() as u32);
        let model = self.models.get_mut(&replica.model).expect("stays");
        if model.spec.need_is_fixed {
            return "; its memory figure was set by an administrator and stays (M1)".into();
        }
        let mut to = Bytes::ZERO;
        for share in &replica.shares {
            let more = Bytes((share.bytes.0 / 4).max(MORE_AT_LEAST.0));
            to = needed.unwrap_or(Bytes::ZERO).max(share.bytes + more);
            let kind = self.devices[&share.device].kind;
            model.learned.insert((devices, kind), to);
        }
        format!("; {to} on each device from now on (M1)")
    }

    /// Returns true the first time: a wrong estimate is corrected and planned again once.
    fn plans_again(&mut self, id: ModelId) -> bool {
        let model = self.models.get_mut(&id).expect("stays");
        !model.spec.need_is_fixed && !core::mem::replace(&mut model.retried_after_oom, true)
    }

    /// Returns true the first time: a failure that the model did not cause does not count once.
    fn tries_again(&mut self, id: ModelId) -> bool {
        let model = self.models.get_mut(&id).expect("stays");
        !core::mem::replace(&mut model.retried_after_oom, true)
    }

    pub(crate) fn count_failure(&mut self, id: ModelId, message: String, remedy: Remedy) {
        let (first, max) = (self.limits.cooldown_first, self.limits.cooldown_max);
        let now = self.now;
        let model = self.models.get_mut(&id).expect("a replica's model stays");
        if model.has_served_since_failure(now, self.limits.healthy_after) {
            model.forget_failures();
        }
        model.failed_at = Some(now);
        model.failures = model.failures.saturating_add(1);
        model.permanent_failure = remedy == Remedy::Change;
        let doubled = first.0.saturating_mul(1 << (model.failures - 1).min(20));
        let until = now + Span(doubled.min(max.0));
        model.cooling_until = Some(until);
        model.last_failure = Some(message);
        model.retried_after_oom = false;
        self.look_again(until, id);
    }
}

/// Returns true if a process of the replica on one of its nodes ended during the load, and the others were stopped.
fn ended_in_load(phase: &Phase) -> bool {
    matches!(
        phase,
        Phase::Stopping {
            reason: StopReason::MemberEnded { .. } | StopReason::NodeLost { .. },
            was_launching: true,
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceId, DeviceReading, Event, KeyId, Limits, ModelSpec, Ticket, Time};

    const TAKES: Span = Span::from_secs(4);

    #[test]
    fn only_a_replica_that_served_updates_the_expected_stop_time() {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let (device, model) = (DeviceId(0), ModelId(0));
        let reading = DeviceReading {
            name: "gpu0".into(),
            total: Bytes(1_000),
            ..DeviceReading::default()
        };
        let spec = ModelSpec {
            name: "a".into(),
            bytes_per_device: Bytes(1),
            ..ModelSpec::default()
        };
        let (ticket, key) = (Ticket(1), KeyId(0));
        let mut now = Time(1);
        let events = [
            Event::DeviceRead { device, reading },
            Event::ModelSet { model, spec },
            Event::RequestArrived { ticket, model, key },
        ];
        pool.step_all(now, events);
        for (is_ready, learned) in [(false, Span::ZERO), (true, TAKES)] {
            let replica = *pool.replicas.keys().next().expect("launched");
            if is_ready {
                pool.step(now, Event::ReplicaReady { replica });
            }
            pool.stop(replica, StopReason::Changed, &mut Actions::default());
            now = now + TAKES;
            let exit = Exit::Requested;
            pool.step(now, Event::ReplicaExited { replica, exit });
            assert_eq!(pool.models[&model].stop_takes, learned);
        }
    }
}
