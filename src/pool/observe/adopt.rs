//! Ready engines of an earlier controller become replicas as if they had been loaded here, with their memory
//! reserved and their keep-hot time counting on (D2). An engine that no longer fits holds the memory that there is
//! until it is gone. Facts only.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::action::{Action, MemoryChange, RecordKind};
use crate::types::ids::{Bytes, ModelId, ReplicaId, Span, Time};
use crate::types::keep_alive::KeepAliveState;
use crate::types::occupancy::Seats;
use crate::types::reason::{LoadReason, StopReason};
use crate::types::replica::{Phase, Replica};
use crate::types::share::Share;

/// A found engine.
pub(crate) struct Found {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub placement: Vec<Share>,
    pub ready_for: Span,
    pub in_flight: u32,
    pub last_end: Option<Time>,
}

impl Pool {
    pub(crate) fn replica_adopted(&mut self, found: Found, actions: &mut Vec<Action>) {
        let now = self.now;
        let id = found.replica;
        // Numbers are never reused.
        self.replica_next = self.replica_next.max(id.0 + 1);
        if self.replicas.contains_key(&id) || self.planned.contains_key(&id) {
            return;
        }
        // It is being ended already (N4).
        if self.given_up.contains_key(&id) && id.0 >= self.replica_first {
            return;
        }
        let since = Time(now.0.saturating_sub(found.ready_for.0));
        let adoption_error = self.adoption_error(&found);
        let (phase, shares) = match &adoption_error {
            None => (Phase::Ready { since }, found.placement.clone()),
            Some(why) => {
                let reason = StopReason::NotAdopted { why: why.clone() };
                let phase = Phase::Stopping {
                    since: now,
                    reason,
                    was_launching: false,
                };
                (phase, self.clamp_to_free(&found.placement))
            }
        };
        let Some(model) = self.models.get_mut(&found.model) else {
            return self.stop_unheld(&found, adoption_error, actions);
        };
        if shares.is_empty() {
            return self.stop_unheld(&found, adoption_error, actions);
        }
        model.replicas.insert(id);
        let started_with = model.spec.started_with;
        model.last_used = model.last_used.max(found.last_end);
        if found.in_flight > 0 {
            model.last_used = Some(now);
        }
        let live = adoption_error.is_none();
        let wished = model.wish.as_ref().map_or(0, |wish| wish.replicas as usize);
        if live && model.replicas.len() >= wished {
            model.restoring = false;
            self.restoring.remove(&found.model);
        }
        let reason = match &adoption_error {
            None => format!("found ready for {} after a restart (D2)", found.ready_for),
            Some(why) => format!("found after a restart, and not kept: {why} (D2)"),
        };
        let mut record = self.record(RecordKind::Adopt, Some(found.model), reason);
        record.replica = Some(id);
        record.placement = shares.clone();
        for share in &shares {
            let device = self.devices.get_mut(&share.device).expect("looked at");
            let before = device.committed();
            device.reserve(id, share.bytes);
            if !live {
                device.starts_leaving(share.bytes);
            }
            record.memory.push(MemoryChange {
                device: share.device,
                before,
                after: device.committed(),
            });
        }
        let replica = Replica {
            model: found.model,
            shares,
            phase,
            why: LoadReason::Adopted,
            // A replica that was started with other settings is not adopted.
            started_with,
            launched: since,
            in_flight: found.in_flight,
            entered: 0,
            entered_when_launched: 0,
            seats: Seats::default(),
            last_end: found.last_end,
            keep_alive: KeepAliveState::since(found.last_end),
            gate: None,
            tier: None,
            reads_until: None,
            leave_when_served: None,
            parked: None,
        };
        self.replicas.insert(id, replica);
        if live {
            self.begin_scaling(found.model);
        }
        self.is_off_the_node(id);
        self.touch_model(found.model);
        self.touch(id);
        self.grows_at(id);
        actions.push(Action::Record(record));
        if let Some(why) = adoption_error {
            self.stop_adopted(&found, why, actions);
        }
    }

    /// Why it cannot become a replica.
    fn adoption_error(&self, found: &Found) -> Option<String> {
        let model = self.models.get(&found.model).filter(|it| !it.removed);
        let Some(model) = model else {
            return Some("the model is no longer in the catalogue".to_owned());
        };
        let different: BTreeSet<_> = found.placement.iter().map(|share| share.device).collect();
        if different.is_empty() || different.len() != found.placement.len() {
            return Some("its memory use is unknown".to_owned());
        }
        let mut nodes = BTreeSet::new();
        for share in &found.placement {
            let Some(device) = self.devices.get(&share.device) else {
                return Some(format!("its device {} is not there", share.device));
            };
            nodes.insert(device.node);
            let allowed = model.spec.allowed.as_ref();
            if allowed.is_some_and(|allowed| !allowed.contains(&share.device)) {
                return Some(format!("the model may no longer use {}", device.name));
            }
            if let Some(cordon) = device.closed() {
                let (name, reason) = (&device.name, &cordon.reason);
                return Some(format!("{name} is cordoned: {reason} (M7)"));
            }
            if device.free_for_found() < share.bytes {
                let (name, needs, free) = (&device.name, share.bytes, device.free_for_found());
                return Some(format!(
                    "it holds {needs} of {name}, which has {free} left (M3)"
                ));
            }
        }
        (nodes.len() != 1).then(|| "its devices are of several nodes now (M5)".to_owned())
    }

    /// No other replica can have this memory until it is gone; more than there is cannot be reserved (M3).
    fn clamp_to_free(&self, placement: &[Share]) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::new();
        let mut node = None;
        for share in placement {
            let Some(device) = self.devices.get(&share.device) else {
                continue;
            };
            let known = shares.iter().any(|it| it.device == share.device);
            if known || node.is_some_and(|node| node != device.node) {
                continue;
            }
            node = Some(device.node);
            let bytes: Bytes = share.bytes.min(device.free_for_found());
            shares.push(Share {
                device: share.device,
                bytes,
            });
        }
        shares
    }

    /// It belongs to no known model or device: it is stopped without any reservation.
    fn stop_unheld(
        &self,
        found: &Found,
        adoption_error: Option<String>,
        actions: &mut Vec<Action>,
    ) {
        let why = adoption_error.unwrap_or_else(|| "its memory use is unknown".to_owned());
        let model = self
            .models
            .contains_key(&found.model)
            .then_some(found.model);
        let reason = format!("found after a restart, and not kept: {why} (D2)");
        let mut record = self.record(RecordKind::Adopt, model, reason);
        record.replica = Some(found.replica);
        actions.push(Action::Record(record));
        self.stop_adopted(found, why, actions);
    }

    fn stop_adopted(&self, found: &Found, why: String, actions: &mut Vec<Action>) {
        let model = self.models.get(&found.model);
        let grace = model.map_or(Span::ZERO, |model| model.spec.stop_grace);
        actions.push(Action::Stop {
            replica: found.replica,
            grace,
            reason: StopReason::NotAdopted { why },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Command, DeviceId, DeviceReading, Event, GateMode, GateReading, Limits, ModelSpec, Pool,
        check,
    };
    use alloc::string::ToString;

    const MODEL: ModelId = ModelId(1);
    const START: Time = Time(1_000_000);

    fn pool(total_gib: u64) -> Pool {
        let mut pool = Pool::new(Limits::default(), false, ReplicaId(1));
        let reading = DeviceReading {
            name: "gpu0".to_owned(),
            total: Bytes(total_gib << 30),
            ..DeviceReading::default()
        };
        let device = DeviceId(0);
        pool.step(START, Event::DeviceRead { device, reading });
        let spec = ModelSpec {
            name: "a".to_owned(),
            ..ModelSpec::default()
        };
        pool.step(START, Event::ModelSet { model: MODEL, spec });
        pool
    }

    fn adopted(replica: u64, gib: u64, last_end: Option<Time>) -> Event {
        Event::ReplicaAdopted {
            replica: ReplicaId(replica),
            model: MODEL,
            placement: vec![Share {
                device: DeviceId(0),
                bytes: Bytes(gib << 30),
            }],
            ready_for: Span::from_secs(120),
            in_flight: 0,
            last_end,
        }
    }

    fn stops(actions: &[Action]) -> Vec<String> {
        let stop = |action: &Action| match action {
            Action::Stop { reason, .. } => Some(reason.to_string()),
            _ => None,
        };
        actions.iter().filter_map(stop).collect()
    }

    #[test]
    fn an_adopted_replica_serves_at_once_and_its_memory_is_reserved() {
        let mut pool = pool(16);
        let answer = pool.step(START, adopted(7, 10, None));
        let opens = Action::SetGate {
            replica: ReplicaId(7),
            gate: GateMode::Open,
        };
        assert!(answer.actions.contains(&opens), "{:?}", answer.actions);
        assert_eq!(pool.reserved(DeviceId(0)), Bytes(10 << 30));
        assert_eq!(check(&pool), []);
        // A second one of the same size does not fit (M3): it holds the rest until it is gone.
        let answer = pool.step(START, adopted(8, 10, None));
        let stops = stops(&answer.actions);
        assert!(stops[0].contains("6.0 GiB left (M3)"), "{stops:?}");
        assert_eq!(pool.reserved(DeviceId(0)), Bytes(16 << 30));
        assert_eq!(check(&pool), []);
        let exit = crate::Exit::Requested;
        let replica = ReplicaId(8);
        pool.step(START, Event::ReplicaExited { replica, exit });
        assert_eq!(pool.reserved(DeviceId(0)), Bytes(10 << 30));
        assert_eq!(check(&pool), []);
    }

    #[test]
    fn the_keep_hot_time_counts_on_from_the_last_request() {
        let mut pool = pool(16);
        let last_end = Time(START.0 - 60_000);
        let answer = pool.step(START, adopted(7, 1, Some(last_end)));
        assert_eq!(answer.wake, Some(last_end + Span::from_secs(600)));
        let readings = vec![GateReading {
            replica: ReplicaId(7),
            in_flight: 0,
            entered: 0,
            last_end: None,
            idle_before: None,
        }];
        pool.step(START + Span(5), Event::GatesRead { readings });
        let due = last_end + Span::from_secs(600);
        assert!(
            pool.step(Time(due.0 - 1), Event::TimerFired)
                .actions
                .is_empty()
        );
        let closes = Action::CloseGate {
            replica: ReplicaId(7),
            if_idle_at: Some(0),
        };
        assert!(pool.step(due, Event::TimerFired).actions.contains(&closes));
    }

    #[test]
    fn seats_that_the_earlier_controller_gave_keep_it_and_keep_hot_counts_from_their_end() {
        let mut pool = pool(16);
        let old = Time(START.0 - 900_000);
        let event = match adopted(7, 1, Some(old)) {
            Event::ReplicaAdopted {
                replica,
                model,
                placement,
                ready_for,
                last_end,
                ..
            } => Event::ReplicaAdopted {
                replica,
                model,
                placement,
                ready_for,
                in_flight: 2,
                last_end,
            },
            other => other,
        };
        pool.step(START, event);
        assert_eq!(check(&pool), []);
        let later = START + Span::from_secs(3_600);
        assert!(
            pool.step(later, Event::TimerFired).actions.is_empty(),
            "busy"
        );
        let readings = vec![GateReading {
            replica: ReplicaId(7),
            in_flight: 0,
            entered: 0,
            last_end: Some(later),
            idle_before: None,
        }];
        let answer = pool.step(later, Event::GatesRead { readings });
        assert_eq!(answer.wake, Some(later + Span::from_secs(600)));
    }

    #[test]
    fn a_new_replica_gets_another_number_and_a_shutdown_takes_the_adopted_one_too() {
        let mut pool = pool(16);
        pool.step(START, adopted(7, 1, None));
        let order = crate::OrderId(1);
        let command = Command::Shutdown { drain: Span::ZERO };
        pool.step(START, Event::OrderReceived { order, command });
        let drained = Event::GateClosed {
            replica: ReplicaId(7),
            in_flight: 0,
        };
        let answer = pool.step(START, drained);
        assert_eq!(stops(&answer.actions).len(), 1);
        assert_eq!(pool.replica_next, 8);
    }

    #[test]
    fn what_is_on_no_device_of_ours_is_stopped_and_counts_for_nothing() {
        let mut pool = pool(16);
        let event = Event::ReplicaAdopted {
            replica: ReplicaId(7),
            model: MODEL,
            placement: vec![Share {
                device: DeviceId(5),
                bytes: Bytes::ZERO,
            }],
            ready_for: Span::ZERO,
            in_flight: 0,
            last_end: None,
        };
        let answer = pool.step(START, event);
        assert!(stops(&answer.actions)[0].contains("is not there"));
        assert_eq!(check(&pool), []);
        let mut pool = self::pool(16);
        let event = match adopted(7, 1, None) {
            Event::ReplicaAdopted {
                replica,
                placement,
                ready_for,
                in_flight,
                last_end,
                ..
            } => Event::ReplicaAdopted {
                replica,
                model: ModelId(9),
                placement,
                ready_for,
                in_flight,
                last_end,
            },
            other => other,
        };
        let answer = pool.step(START, event);
        assert!(stops(&answer.actions)[0].contains("no longer in the catalogue"));
        assert_eq!(check(&pool), []);
    }
}
