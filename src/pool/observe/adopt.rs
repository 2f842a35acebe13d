//! Adopts ready engines of an earlier controller as if they had been loaded here: their memory is reserved and their keep-hot time
//! continues (D2). An engine that no longer fits holds the available memory until it is gone. Facts only.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::{MemoryChange, RecordKind};
use crate::types::ids::{Bytes, ModelId, ReplicaId, Span, Time};
use crate::types::keep_alive::KeepAliveState;
use crate::types::model::NodeSpan;
use crate::types::occupancy::Seats;
use crate::types::reason::{LoadReason, StopReason};
use crate::types::replica::{Phase, Replica};
use crate::types::share::Share;

/// An engine found after a restart.
pub(crate) struct Found {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub placement: Vec<Share>,
    pub ready_for: Span,
    pub in_flight: u32,
    pub last_end: Option<Time>,
}

impl Pool {
    pub(crate) fn replica_adopted(&mut self, found: Found, actions: &mut Actions) {
        let now = self.now;
        let id = found.replica;
        // Replica ids are never reused.
        self.replicas.takes_id(id);
        if self.replicas.contains_key(&id) || self.planned.contains_key(&id) {
            return;
        }
        // It is already being ended (N4).
        if self.nodes.has_given_up(id) && !self.replicas.is_from_before(id) {
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
        if live {
            // It serves with these settings. Loads that failed in the meantime may have waited for the place where it runs.
            model.forget_failures();
            model.has_returned = true;
        }
        let wished = model.wish.as_ref().map_or(0, |wish| wish.replicas as usize);
        if live && model.replicas.len() >= wished {
            self.models.set_restoring(found.model, false);
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
        let gang = self.gang_of(&shares);
        let lines = self.batches.take_remembered(id);
        let is_unused = found.in_flight == 0 && found.last_end.is_none();
        let why = match lines.filter(|_| is_unused) {
            Some(lines) => LoadReason::Batch {
                lines,
                for_deadline: false,
            },
            None => LoadReason::Adopted,
        };
        let replica = Replica {
            model: found.model,
            shares,
            phase,
            why,
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
            may_be_spared: false,
            parked: None,
            leaves_with: None,
            gang,
            entered_at: self.now,
        };
        // A part of it may have fallen silent before the others returned.
        let silent = self.nodes.silent();
        let since = self.nodes_of(&replica).filter_map(|node| silent.get(&node));
        let ends: Vec<Time> = since
            .map(|since| *since + self.limits.silent_grace)
            .collect();
        for grace_ends in ends {
            self.look_again(grace_ends, found.model);
        }
        self.replicas.insert(id, replica);
        self.schedule_moves_of(id);
        if live {
            self.begin_scaling(found.model);
        }
        self.is_off_the_node(id);
        self.touch_model(found.model);
        self.touch(id);
        self.grows_at(id);
        actions.record(record);
        if let Some(why) = adoption_error {
            self.stop_adopted(id, found.model, why, actions);
        }
    }

    pub(crate) fn load_not_begun(&mut self, id: ReplicaId) {
        if let Some(adopted) = self.replicas.get_mut(&id)
            && matches!(adopted.phase, Phase::Launching { .. })
        {
            adopted.may_be_spared = true;
            self.touch(id);
        }
    }

    /// The reason why the engine cannot become a replica.
    fn adoption_error(&self, found: &Found) -> Option<String> {
        let model = self.models.get(&found.model).filter(|model| !model.removed);
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
            if device.unreserved() < share.bytes {
                let (name, needs, free) = (&device.name, share.bytes, device.unreserved());
                return Some(format!(
                    "it holds {needs} of {name}, which has {free} left (M3)"
                ));
            }
        }
        match model.spec.nodes {
            NodeSpan::One if nodes.len() > 1 => {
                Some("its devices are of several nodes now (M5)".to_owned())
            }
            NodeSpan::Exactly(count) if nodes.len() != count as usize => Some(format!(
                "it is on {} nodes, and its model file sets {count} (M8)",
                nodes.len()
            )),
            NodeSpan::One | NodeSpan::AsNeeded | NodeSpan::Exactly(_) => None,
        }
    }

    /// Reserves this memory until the engine is gone, clamped to what is free: reservations never exceed the capacity (M3).
    fn clamp_to_free(&self, placement: &[Share]) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::new();
        for share in placement {
            let Some(device) = self.devices.get(&share.device) else {
                continue;
            };
            let known = shares.iter().any(|known| known.device == share.device);
            if known {
                continue;
            }
            let bytes: Bytes = share.bytes.min(device.unreserved());
            shares.push(Share {
                device: share.device,
                bytes,
            });
        }
        shares
    }

    /// Stops an engine of an unknown model or device without a reservation.
    fn stop_unheld(&self, found: &Found, adoption_error: Option<String>, actions: &mut Actions) {
        let why = adoption_error.unwrap_or_else(|| "its memory use is unknown".to_owned());
        let model = self
            .models
            .contains_key(&found.model)
            .then_some(found.model);
        let reason = format!("found after a restart, and not kept: {why} (D2)");
        let mut record = self.record(RecordKind::Adopt, model, reason);
        record.replica = Some(found.replica);
        actions.record(record);
        self.stop_adopted(found.replica, found.model, why, actions);
    }
}

#[cfg(test)]
mod tests;
