//! Engine processes of a replay: the time they take to stop, fall asleep and wake, and the resulting counts.

use super::accounts::Stay;
use super::run::{Due, Play};
use pool::{ModelId, ReplicaId, Span, StopReason};

impl Play<'_> {
    /// Falling asleep takes as long as waking.
    pub(super) fn parks(&mut self, replica: ReplicaId) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&replica) else {
            return;
        };
        let model = live.model;
        let nothing = Stay::asleep(model, live.stay.devices.clone(), now);
        let stay = core::mem::replace(&mut live.stay, nothing);
        self.accounts.left(stay, now, "sleep");
        self.accounts.evicted(model, "sleep");
        let takes = self.wake_time(model);
        self.push(now + takes, Due::Asleep(replica));
    }

    pub(super) fn wakes(&mut self, replica: ReplicaId) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&replica) else {
            return;
        };
        let model = live.model;
        let bytes = self.scenario.models[model.0 as usize].bytes_per_device;
        let stay = Stay::new(model, live.stay.devices.clone(), bytes, now);
        let slept = core::mem::replace(&mut live.stay, stay);
        live.closed = false;
        live.mode = None;
        self.accounts.left(slept, now, "woken");
        self.accounts.load_began(model);
        let takes = self.wake_time(model);
        self.push(now + takes, Due::Ready(replica));
    }

    fn wake_time(&self, model: ModelId) -> Span {
        let spec = &self.scenario.models[model.0 as usize];
        spec.parking
            .as_ref()
            .map_or(spec.reload, |parking| parking.wakes_in)
    }

    pub(super) fn stops(&mut self, replica: ReplicaId, reason: &StopReason) {
        let Some(live) = self.live.get_mut(&replica) else {
            return;
        };
        let model = live.model;
        live.stopping = true;
        live.reason = reason.name();
        let cut = core::mem::take(&mut live.in_flight);
        if cut > 0 {
            live.stay.idle(self.now);
        }
        self.accounts.cut(u64::from(cut));
        self.accounts.evicted(model, reason.name());
        let own = self.pool.priority(model);
        let by = match reason {
            StopReason::Preempted { priority, .. } => Some(*priority),
            StopReason::TurnEnded { by, .. } => {
                self.names.get(by).map(|model| self.pool.priority(*model))
            }
            // P6 lets an idle model of higher priority leave.
            _ => None,
        };
        if by.is_some_and(|by| by < own) {
            self.accounts.inversion();
        }
        let at = self.now + self.scenario.stop_takes;
        self.push(at, Due::Gone(replica));
    }
}
