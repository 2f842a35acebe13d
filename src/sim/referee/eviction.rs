//! The referee's rules for evictions: P2–P5, when a load is planned and when a replica is stopped.
//! One file because all of its rules judge the same plan.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::cheapest::Asker;
use super::{OpenRequest, Planned, Referee, ReplicaRecord};
use pool::{
    Bytes, DeviceId, KeepHotScope, KeyId, LoadOrder, ModelId, Priority, Record, ReplicaId, Share,
    Span, StopReason, Time,
};

/// The most by which the figure of a key's service changes within a step.
const LEVELS_IN_A_STEP: u64 = 2;
/// The lead, in levels, from which a key comes before another one.
const LEAD: u64 = 15;

impl Referee {
    /// Judges an eviction by the current priorities when the gate closes, and whether it was necessary once the load is known.
    pub(super) fn evicted(&mut self, now: Time, victim: ReplicaId, reason: &str) {
        let Some(seen) = self.replicas.get(&victim) else {
            self.broken
                .push(format!("P5: {victim} is evicted and does not exist"));
            return;
        };
        if seen.ready.is_none() {
            self.broken
                .push(format!("P5: {victim} is evicted while it loads"));
        }
        let forced = reason.contains("forced");
        if self.protected(seen.model, now) && !forced {
            self.broken.push(format!(
                "P4: {victim} is always-hot and was evicted: {reason}"
            ));
        }
        self.victims.push(victim);
        if let Some(seen) = self.replicas.get_mut(&victim) {
            seen.marked = !core::mem::take(&mut seen.stays_open);
        }
    }

    pub(super) fn load_decided(&mut self, now: Time, load: ReplicaId, record: &Record) {
        let victims = core::mem::take(&mut self.victims);
        let name = record.model.as_deref().unwrap_or_default();
        let Some(&model) = self.names.get(name) else {
            self.broken.push(format!("{load} is for no known model"));
            return;
        };
        let order = record.order.and_then(|id| {
            let (_, mut order) = self.loads.get(&id)?.clone();
            // After the store has it, the model's own priority applies, which its lease may have reverted.
            order.priority = order.priority.filter(|_| self.received.contains_key(&id));
            Some(order)
        });
        if order.is_none() {
            self.loads_too_soon(now, load, model, &record.reason);
        }
        // An earlier planned and dropped waking of the same sleeper had the same id.
        self.planned.remove(&load);
        let wakes = self.replicas.get(&load).and_then(ReplicaRecord::to_wake);
        if wakes.is_none() {
            self.figure_is_corrected(load, model, &record.placement);
        }
        let is_woken = wakes.is_some();
        let shares = wakes.unwrap_or_else(|| record.placement.clone());
        let for_requests = order.is_none() && record.reason.ends_with("waiting");
        if !victims.is_empty() {
            let since = if for_requests {
                self.waits_since(model)
            } else {
                Time(0)
            };
            self.priorities_allow(now, load, (model, since), order.as_ref(), &victims);
            self.victims_are_needed(load, model, &shares, &victims, is_woken);
            if !is_woken {
                let received = order.as_ref().and_then(|order| order.priority);
                let asker = Asker {
                    model,
                    priority: received.unwrap_or_else(|| self.priority(model, now)),
                    forced: order.as_ref().is_some_and(|order| order.force),
                };
                self.victims_are_cheapest(now, load, asker, &shares, &victims);
            }
        }
        let planned = Planned {
            model,
            shares,
            for_requests,
        };
        self.planned.insert(load, planned);
    }

    fn priorities_allow(
        &mut self,
        now: Time,
        load: ReplicaId,
        (model, since): (ModelId, Time),
        order: Option<&LoadOrder>,
        victims: &[ReplicaId],
    ) {
        let received = order.and_then(|order| order.priority);
        let priority = received.unwrap_or_else(|| self.priority(model, now));
        let forced = order.is_some_and(|order| order.force);
        let mut wrong = Vec::new();
        for victim in victims {
            let Some(seen) = self.replicas.get(victim) else {
                continue;
            };
            // A sleeper serves no requests, whatever its priority.
            if seen.sleeper.is_some() {
                continue;
            }
            let own: Priority = self.priority(seen.model, now);
            if own > priority && !forced && !self.yields(now, seen) {
                wrong.push(format!(
                    "P2: {victim} of priority {own} leaves for {load} of {priority}"
                ));
            }
            if own >= priority && self.is_leased(seen.model, now) && !forced {
                wrong.push(format!(
                    "P7: {victim} is leased at priority {own} and leaves for {load} of {priority}"
                ));
            }
            if seen.model == model {
                wrong.push(format!("P5: {victim} leaves for {load} of the same model"));
            }
            let unserved = !seen.used && self.has_waiting(seen.model);
            if unserved && !forced {
                wrong.push(format!(
                    "P5: {victim} leaves for {load} before its waiting requests have been served"
                ));
            }
            let earlier = self.comes_before(seen.model, since, model);
            if own == priority && earlier && !forced {
                wrong.push(format!(
                    "P5: {victim} leaves for {load}, and a request has waited longer for it"
                ));
            }
        }
        self.broken.extend(wrong);
    }

    pub(super) fn has_waiting(&self, model: ModelId) -> bool {
        self.waiting_for(model).next().is_some()
    }

    fn waiting_for(&self, model: ModelId) -> impl Iterator<Item = &OpenRequest> {
        let open = self.open_tickets.values();
        open.filter(move |request| request.model == model)
    }

    fn waits_since(&self, model: ModelId) -> Time {
        let first = self.waiting_for(model).map(|request| request.since).min();
        first.unwrap_or(Time(u64::MAX))
    }

    /// Returns true if a request for the victim's model came before the load's, and its key has been served less than all others that
    /// the load is for (P5, P9).
    fn comes_before(&self, victim: ModelId, since: Time, load: ModelId) -> bool {
        let level = |key: KeyId| self.levels.get(&key).copied().unwrap_or_default();
        let earlier = |request: &&OpenRequest| request.since < since;
        self.waiting_for(victim).filter(earlier).any(|request| {
            // Requests that were granted or refused in this step have changed the figures since.
            let most = level(request.key) + LEVELS_IN_A_STEP;
            let comes_first = |other: &OpenRequest| level(other.key) + LEAD <= most;
            !self.waiting_for(load).any(comes_first)
        })
    }

    /// Without any of its victims the load would not fit, with all of them it does, and no place was free without evictions.
    fn victims_are_needed(
        &mut self,
        load: ReplicaId,
        model: ModelId,
        placement: &[Share],
        victims: &[ReplicaId],
        is_woken: bool,
    ) {
        let mut wrong = Vec::new();
        for victim in victims {
            let others = victims.iter().filter(|id| *id != victim).copied();
            let others: Vec<ReplicaId> = others.collect();
            let fits = |share: &Share| {
                let free = self.surely_free(share.device, victims);
                free + signed(self.freed(share.device, &others)) >= signed(share.bytes)
            };
            let frees_host = self.frees_host(*victim, model, placement);
            if !frees_host && placement.iter().all(fits) {
                wrong.push(format!("P5: {victim} leaves for {load} without need"));
            }
        }
        for share in placement {
            let free = self.possibly_free(share.device, victims);
            let most = free + signed(self.freed(share.device, victims));
            if most < signed(share.bytes) {
                wrong.push(format!(
                    "P5: {victims:?} leave for {load}, which still does not fit {}: {most} bytes for {}",
                    share.device, share.bytes
                ));
            }
        }
        // Waking may evict others and still be faster.
        if !is_woken
            && !self.has_part(model)
            && let Some(place) = self.place_without(model, placement, victims, &[])
        {
            wrong.push(format!(
                "P5: {victims:?} leave for {load}, which fits on {place:?} without evictions"
            ));
        }
        self.broken.extend(wrong);
    }

    fn freed(&self, device: DeviceId, victims: &[ReplicaId]) -> Bytes {
        victims
            .iter()
            .filter_map(|victim| self.replicas.get(victim))
            .flat_map(|seen| &seen.shares)
            .filter(|share| share.device == device)
            .map(|share| share.bytes)
            .chain(
                victims
                    .iter()
                    .map(|id| self.devices[&device].excess_of(*id)),
            )
            .sum()
    }

    /// The memory of replicas that would stay without these evictions.
    fn staying(&self, device: DeviceId, victims: &[ReplicaId]) -> Bytes {
        let of = |(id, seen): (&ReplicaId, &ReplicaRecord)| {
            let share = seen.shares.iter().find(|share| share.device == device)?;
            let all = seen.stays() || victims.contains(id);
            let parking = self.specs[&seen.model].parking.as_ref();
            match (all, parking.filter(|_| seen.falls_asleep())) {
                (true, _) => Some(share.bytes),
                (false, Some(parking)) => Some(share.bytes.min(parking.resident_per_device)),
                (false, None) => None,
            }
        };
        self.replicas.iter().filter_map(of).sum()
    }

    fn promised(&self, device: DeviceId, surely: bool) -> Bytes {
        self.planned
            .iter()
            .filter(|(id, _)| !surely || self.kept.contains(id))
            .flat_map(|(_, load)| &load.shares)
            .filter(|share| share.device == device)
            .map(|share| share.bytes)
            .sum()
    }

    /// The memory that is certainly free in the end if these victims stay. Negative if replicas hold more than their shares.
    fn surely_free(&self, device: DeviceId, victims: &[ReplicaId]) -> i128 {
        let memory = &self.devices[&device];
        if memory.cordoned || !memory.is_certain() {
            // No set of victims outweighs an unknown amount.
            return i128::MIN / 2;
        }
        let taken = memory.at_most_unavailable() + self.staying(device, victims);
        signed(memory.capacity) - signed(taken + self.promised(device, false))
    }

    /// The upper bound of the same: leaving replicas free their excess too.
    fn possibly_free(&self, device: DeviceId, victims: &[ReplicaId]) -> i128 {
        let memory = &self.devices[&device];
        let unavailable = if memory.is_certain() {
            let leaves =
                |(id, seen): &(&ReplicaId, &ReplicaRecord)| !seen.stays() && !victims.contains(id);
            let leaving = self.replicas.iter().filter(leaves);
            let more: Bytes = leaving.map(|(id, _)| memory.excess_of(*id)).sum();
            memory.at_most_unavailable().saturating_sub(more)
        } else {
            Bytes::ZERO
        };
        let taken = unavailable + self.staying(device, victims);
        signed(memory.capacity) - signed(taken + self.promised(device, true))
    }

    /// The same number of devices of the same kind on one node, with enough free memory for each share if `leave` leave and the
    /// victims stay.
    pub(super) fn place_without(
        &self,
        model: ModelId,
        placement: &[Share],
        victims: &[ReplicaId],
        leave: &[ReplicaId],
    ) -> Option<Vec<DeviceId>> {
        let first = placement.first()?;
        let (kind, bytes) = (self.devices[&first.device].kind, first.bytes);
        let allowed = self.specs[&model].allowed.as_ref();
        let fits = |device: &DeviceId| {
            let memory = &self.devices[device];
            memory.kind == kind
                && !memory.cordoned
                && bytes <= memory.capacity
                && allowed.is_none_or(|allowed| allowed.contains(device))
                && self.surely_free(*device, victims) + signed(self.freed(*device, leave))
                    >= signed(bytes)
        };
        let fitting: Vec<DeviceId> = self
            .devices
            .keys()
            .copied()
            .filter(|device| fits(device))
            .collect();
        let mut by_node = BTreeMap::<_, Vec<DeviceId>>::new();
        for device in fitting {
            let node = self.devices[&device].node;
            by_node.entry(node).or_default().push(device);
        }
        by_node
            .into_values()
            .find(|devices| devices.len() >= placement.len())
    }

    pub(super) fn stop(
        &mut self,
        now: Time,
        replica: ReplicaId,
        reason: &StopReason,
        in_flight: u32,
    ) {
        let Some(seen) = self.replicas.get_mut(&replica) else {
            return;
        };
        if seen.stopping.is_some() {
            self.broken.push(format!("{replica} was stopped twice"));
        }
        seen.stopping = Some(reason.clone());
        self.reason_holds(now, replica, reason, in_flight);
    }

    /// The rule that a reason names permits that the replica ends or falls asleep now.
    pub(super) fn reason_holds(
        &mut self,
        now: Time,
        replica: ReplicaId,
        reason: &StopReason,
        in_flight: u32,
    ) {
        let Some(seen) = self.replicas.get(&replica).cloned() else {
            return;
        };
        let model = seen.model;
        let mut wrong = |text: String| self.broken.push(format!("{text} ({replica}: {reason})"));
        match reason {
            StopReason::KeepHot { .. } => {
                let idle = seen.idle_since.map_or(Span::ZERO, |since| now.since(since));
                let over = self.overrides.get(&model).and_then(|over| over.keep_hot);
                let keep_hot = over.unwrap_or(self.specs[&model].keep_hot);
                if in_flight > 0 || idle < keep_hot {
                    wrong(format!("L2: {in_flight} in flight, idle for {idle}"));
                }
                let closed = seen.closed.unwrap_or(now);
                let by_device = self.specs[&model].keep_hot_scope == KeepHotScope::Device;
                let used = self.last_use_beside(replica, closed);
                if by_device && over.is_none() && closed.since(used) < keep_hot {
                    self.broken.push(format!(
                        "L2: {replica} left at {closed}, and its device was in use until {used}"
                    ));
                }
            }
            StopReason::TurnEnded { by, .. } => {
                if in_flight > 0 {
                    wrong(format!("P3: {in_flight} streams of an equal are cut"));
                }
                let turn = self.specs[&model].max_turn.unwrap_or(Span::ZERO);
                if held_until_closed(&seen) < turn {
                    wrong(format!("P3: its turn is {turn}"));
                }
                if !self.names.contains_key(by) {
                    wrong("an unknown model takes the turn".to_owned());
                }
            }
            StopReason::Yielded {
                by, own, priority, ..
            } => {
                if in_flight > 0 {
                    wrong(format!(
                        "P3: an idle model leaves with {in_flight} in flight"
                    ));
                }
                let spec = &self.specs[&model];
                let residence = match (spec.min_resident, spec.max_turn) {
                    (Some(residence), Some(turn)) => residence.min(turn),
                    // The pool's derived value is unknown here.
                    _ => Span::ZERO,
                };
                if own == priority && held_until_closed(&seen) < residence {
                    wrong(format!("P3: it stays for {residence}"));
                }
                if own < priority {
                    wrong("P2: a lower one does not yield, it is preempted".to_owned());
                }
                if !self.names.contains_key(by) {
                    wrong("it yields to an unknown model".to_owned());
                }
            }
            // Storms have no batches, and a request may have used it.
            StopReason::BatchYielded { .. } if in_flight > 0 => {
                wrong(format!("B5: {in_flight} requests use it"));
            }
            StopReason::Preempted { priority, own, .. } => {
                let drained = seen.closed.map_or(Span::ZERO, |closed| now.since(closed));
                if own >= priority {
                    wrong("P2: not strictly lower".to_owned());
                }
                if in_flight > 0 && drained < self.limits.preempt_drain {
                    wrong(format!("P2: {in_flight} streams cut after {drained}"));
                }
            }
            StopReason::SleeperDropped { .. } => self.victims.push(replica),
            StopReason::Cordoned { .. } => {
                let known = seen
                    .shares
                    .iter()
                    .any(|share| self.devices[&share.device].cordoned);
                if !known && seen.due.is_none() {
                    wrong("M7: none of its devices is out of service".to_owned());
                }
            }
            _ => {}
        }
    }
}

impl Referee {
    /// The end of the last request before `at` on another replica that shares a device with this one.
    fn last_use_beside(&self, replica: ReplicaId, at: Time) -> Time {
        let shares = &self.replicas[&replica].shares;
        let shares_device = |other: &&ReplicaRecord| {
            let same = |share: &Share| shares.iter().any(|own| own.device == share.device);
            other.shares.iter().any(same)
        };
        let others = self.replicas.iter().filter(|(id, _)| **id != replica);
        let others = others.map(|(_, other)| other).filter(shares_device);
        // Becoming ready counts while a replica stays, and no longer once it has left without a request.
        let ends = others
            .filter(|other| other.used)
            .filter_map(|other| other.idle_since);
        ends.filter(|end| *end <= at).max().unwrap_or(Time(0))
    }
}

/// The time it was ready before its gate closed.
fn held_until_closed(seen: &ReplicaRecord) -> Span {
    let ready = seen.ready.unwrap_or(seen.launched);
    seen.closed
        .map_or(Span(u64::MAX), |closed| closed.since(ready))
}

fn signed(bytes: Bytes) -> i128 {
    i128::from(bytes.0)
}
