//! Engine processes of a replay: the time they take to stop, fall asleep and wake, and the resulting counts.

use super::run::{Due, Play};
use super::stay::Stay;
use pool::{Bytes, Event, HostReading, ModelId, NodeId, ReplicaId, Span, StopReason};

impl Play<'_> {
    pub(super) fn parks(&mut self, replica: ReplicaId) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&replica) else {
            return;
        };
        let model = live.model;
        let parking = self.scenario.models[model.0 as usize].parking.as_ref();
        let (resident, host) = parking.map_or((Bytes::ZERO, Bytes::ZERO), |parking| {
            (parking.resident_per_device, parking.host)
        });
        let asleep = live.stay.falls_asleep(resident, host, now);
        let stay = core::mem::replace(&mut live.stay, asleep);
        self.accounts.left(stay, now, "sleep");
        self.accounts.evicted(model, "sleep");
        let measured = self.scenario.park_times.get(&model).copied();
        let takes = measured.unwrap_or_else(|| self.wake_time(model));
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
        self.accounts.wake_began(model);
        let takes = self.wake_time(model);
        self.push(now + takes, Due::Ready(replica));
    }

    /// The engine sleeps now. Returns the reading of its host, as the inventory would report it.
    pub(super) fn is_in_host(&mut self, replica: ReplicaId) -> Option<Event> {
        let stay = &self.live.get(&replica)?.stay;
        let (host, device) = (stay.asleep?, stay.devices.first()?);
        let devices = &self.scenario.devices;
        let node = devices.iter().find(|(id, _)| id == device)?.1.node;
        self.sleepers.insert(replica, (node, host));
        self.host_reading(node)
    }

    /// The engine is awake or gone. Returns the reading of its host if it slept there.
    pub(super) fn leaves_host(&mut self, replica: ReplicaId) -> Option<Event> {
        let (node, _) = self.sleepers.remove(&replica)?;
        self.host_reading(node)
    }

    fn host_reading(&self, node: NodeId) -> Option<Event> {
        let hosts = &self.scenario.hosts;
        let (_, first) = hosts.iter().find(|(host, _)| *host == node)?;
        let here = self.sleepers.values().filter(|(host, _)| *host == node);
        let held: Bytes = here.map(|(_, bytes)| *bytes).sum();
        let reading = HostReading {
            available: first.available.saturating_sub(held),
            ..*first
        };
        Some(Event::HostRead { node, reading })
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
        self.batch_room_changes(model);
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
