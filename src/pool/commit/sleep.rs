//! Turns falling asleep and waking into facts: what a sleeper frees and keeps on its devices, and what it takes from the host (L1).
//! `parking` decides which replica sleeps and which is woken.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::action::{Action, RecordKind};
use crate::types::event::HostReading;
use crate::types::ids::{Bytes, NodeId, ReplicaId, Span};
use crate::types::model::Tier;
use crate::types::reason::StopReason;
use crate::types::replica::Parked;
use crate::types::replica::Phase;

impl Pool {
    pub(crate) fn host_read(&mut self, node: NodeId, reading: &HostReading) {
        // Visits only replicas on this node, because each of a thousand nodes reports every second.
        let devices = self.nodes.get(&node).into_iter().flatten();
        let devices = devices.filter_map(|id| self.devices.get(id));
        let holders: BTreeSet<ReplicaId> = devices
            .flat_map(|device| &device.holders)
            .copied()
            .collect();
        let falling: Bytes = holders
            .iter()
            .filter_map(|id| self.replicas.get(id))
            .filter(|replica| matches!(replica.phase, Phase::Parking { .. }))
            .filter_map(|replica| replica.parked.as_ref().map(|parked| parked.host))
            .sum();
        self.hosts.entry(node).or_default().read(reading, falling);
    }

    /// Orders the engine to sleep. The memory of its devices starts to leave, as when an engine is stopped.
    pub(crate) fn fall_asleep(
        &mut self,
        id: ReplicaId,
        drops: Vec<ReplicaId>,
        actions: &mut Vec<Action>,
    ) {
        let by = self.name(self.replicas[&id].model);
        for drop in drops {
            self.stop(drop, StopReason::HostFor { by: by.clone() }, actions);
        }
        let now = self.now;
        let deadline = now + self.limits.sleep_deadline;
        let node = self.node_of(&self.replicas[&id]);
        let replica = self.replicas.get_mut(&id).expect("drained");
        let model = &self.models[&replica.model];
        let parking = model.spec.parking.as_ref().expect("it may sleep");
        let (host, keeps) = (parking.host, replica.would_keep(parking));
        let Phase::Draining { reason, .. } = replica.phase.clone() else {
            return;
        };
        replica.phase = Phase::Parking {
            since: now,
            deadline,
            reason,
        };
        let awake = replica.shares.clone();
        for share in &keeps {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.stays(share.bytes);
        }
        replica.parked = Some(Parked {
            host,
            awake,
            keeps,
            wake_failure: None,
        });
        let model = replica.model;
        self.hosts.get_mut(&node).expect("it has room").give(host);
        self.touch_model(model);
        actions.push(Action::Park { replica: id });
    }

    pub(crate) fn replica_asleep(&mut self, id: ReplicaId, actions: &mut Vec<Action>) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let Phase::Parking { since, reason, .. } = replica.phase.clone() else {
            return;
        };
        let phase = core::mem::replace(
            &mut replica.phase,
            Phase::Asleep {
                since: now,
                reason: reason.clone(),
            },
        );
        let model = replica.model;
        let keeps = replica.parked.as_ref().map(|parked| parked.keeps.clone());
        let before = core::mem::replace(&mut replica.shares, keeps.unwrap_or_default());
        for (share, kept) in before.iter().zip(&replica.shares) {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.shrink(id, share.bytes, kept.bytes, now);
            if device.settling_since().is_some() {
                self.settling.insert(share.device);
            }
        }
        let shares = replica.shares.clone();
        self.asleep.insert(id);
        self.touch_model(model);
        self.grows_at(id);
        let mut record = self.record(
            RecordKind::Sleep,
            Some(model),
            format!("asleep in the host's memory: {reason}"),
        );
        record.replica = Some(id);
        record.placement = shares;
        record.took = Some(now.since(since));
        actions.push(Action::Record(record));
        self.forget_wish_if_gone(model, &phase, actions);
    }

    /// The replica could not be put to sleep, so it is stopped instead.
    pub(crate) fn sleep_failed(&mut self, id: ReplicaId, message: &str, actions: &mut Vec<Action>) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let Phase::Parking {
            since, deadline, ..
        } = &mut replica.phase
        else {
            return;
        };
        let took = now.since(*since);
        *deadline = now;
        let model = replica.model;
        self.touch(id);
        let text = format!("could not be put to sleep and is ended instead: {message}");
        let mut record = self.record(RecordKind::Sleep, Some(model), text);
        record.replica = Some(id);
        record.took = Some(took);
        actions.push(Action::Record(record));
    }

    /// The engine could not be woken; `plan` ends it.
    pub(crate) fn wake_failed(&mut self, id: ReplicaId, message: String) {
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        if let (Phase::Launching { .. }, Some(parked)) = (&replica.phase, &mut replica.parked) {
            parked.wake_failure = Some(message);
            self.touch(id);
        }
    }

    /// Starts a planned load that wakes a sleeper. The replica holds all its memory again.
    pub(crate) fn wake_up(&mut self, id: ReplicaId, actions: &mut Vec<Action>) {
        let planned = self.unpromise(id);
        for share in &planned.shares {
            let device = self.devices.get_mut(&share.device).expect("planned");
            device.reserve(id, share.bytes);
        }
        let now = self.now;
        let wake = self.models[&planned.model].wake();
        let deadline = Span(wake.0.saturating_mul(10)).max(self.limits.wake_deadline);
        let replica = self.replicas.get_mut(&id).expect("a sleeper");
        let parked = replica.parked.clone().expect("a sleeper");
        replica.shares = parked.awake;
        replica.why = planned.why;
        replica.launched = now;
        replica.tier = Some(Tier::Asleep);
        replica.reads_until = None;
        replica.leave_when_served = None;
        replica.entered_when_launched = replica.entered;
        replica.phase = Phase::Launching {
            since: now,
            deadline: now + deadline,
        };
        self.asleep.remove(&id);
        self.agenda.replicas.extend(&planned.victims);
        self.launched_enough(planned.model);
        self.touch_model(planned.model);
        actions.push(Action::Wake {
            replica: id,
            deadline,
        });
    }

    /// Returns host memory after the weights are back on the devices or the process is gone.
    pub(crate) fn leaves_host(&mut self, node: NodeId, parked: &Parked, was_returning: bool) {
        if let Some(host) = self.hosts.get_mut(&node) {
            host.take_back(parked.host, was_returning);
        }
    }
}
