//! Turns falling asleep and waking into facts: what a sleeper frees and keeps on its devices, and what it takes from the host (L1).
//! `parking` decides which replica sleeps and which is woken.

use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::Action;
use crate::types::ids::{ReplicaId, Span};
use crate::types::model::Tier;
use crate::types::reason::StopReason;
use crate::types::replica::{Parked, Phase};

impl Pool {
    /// Orders the engine to sleep. The memory of its devices starts to leave, as when an engine is stopped.
    pub(crate) fn fall_asleep(
        &mut self,
        id: ReplicaId,
        drops: Vec<ReplicaId>,
        actions: &mut Actions,
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
            reason: reason.clone(),
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
        self.nodes.host_mut(node).expect("it has room").give(host);
        self.touch_model(model);
        // Its part of the host no longer counts as that of an awake replica.
        self.grows_at(id);
        actions.push(Action::Park {
            replica: id,
            reason,
        });
    }

    /// Starts a planned load that wakes a sleeper. The replica holds all its memory again.
    pub(crate) fn wake_up(&mut self, id: ReplicaId, actions: &mut Actions) {
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
        self.replicas.no_longer_asleep(id);
        self.agenda.touch_replicas(&planned.victims);
        self.launched_enough(planned.model);
        self.batches.may_return(planned.model);
        self.touch_model(planned.model);
        actions.push(Action::Wake {
            replica: id,
            deadline,
        });
    }
}
