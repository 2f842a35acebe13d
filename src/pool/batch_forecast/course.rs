//! A course of the batches: models begin when there is room for them, and run in the parts of the hours that they are expected to have.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Course, List, PERMILLE, scaled};
use crate::facts::room_hours::{HOUR, PARTS};
use crate::types::ids::{Bytes, DeviceId, ModelId, NodeId, ReplicaId, Span, Time};

/// The course does not reach further.
const HORIZON: Span = Span::from_secs(60 * 24 * 3_600);
/// A forecast takes a bounded time.
const STEPS_MAX: usize = 4_000;
/// The batches of other models count as unknown.
pub(super) const MODELS_MAX: usize = 256;
/// The models without room after which no others are tried at the same time.
const TRIES: usize = 16;
const READ_FOR: Span = HOUR;
/// Further devices on which a model may run count up to this number.
const SPARES_MAX: usize = 8;

impl Course<'_> {
    /// The ends by batch and model; `None` beyond the horizon. Batches that are missing are unknown.
    pub(super) fn run(mut self) -> BTreeMap<(u64, ModelId), Option<Time>> {
        let begins = self.now;
        let end = begins + HORIZON;
        let all: Vec<(u64, ModelId)> = self.waiting.iter().flat_map(keys).collect();
        let others = self.waiting.split_off(self.waiting.len().min(MODELS_MAX));
        let unknown = self.waiting.iter().filter(|list| list.is_unknown);
        let mut unknown: BTreeSet<(u64, ModelId)> = unknown.chain(&others).flat_map(keys).collect();
        let mut ends: BTreeMap<(u64, ModelId), Option<Time>> = BTreeMap::new();
        self.begin_loaded();
        for _ in 0..STEPS_MAX {
            self.place_waiting(begins);
            if self.running.iter().all(|list| list.is_unknown) || self.now >= end {
                break;
            }
            let next = self.next_time().min(end);
            self.advance(next, &mut ends);
        }
        // A model with an unknown wait ahead of it is unknown, too.
        let is_cut = self.running.iter().any(|list| !list.is_unknown) && self.now < end;
        if is_cut || self.running.iter().any(|list| list.is_unknown) {
            unknown.extend(self.waiting.iter().flat_map(keys));
        }
        if is_cut {
            unknown.extend(self.running.iter().flat_map(keys));
        }
        for key in all {
            if !unknown.contains(&key) {
                ends.entry(key).or_insert(None);
            }
        }
        ends
    }

    /// Models that are loaded stay loaded for their batches (B6).
    fn begin_loaded(&mut self) {
        let waiting = core::mem::take(&mut self.waiting);
        for mut list in waiting {
            let loaded = self.pool.replica_for_batches(list.model);
            let lasts = |id: ReplicaId| {
                let mut shares = self.pool.replicas[&id].shares.iter();
                shares.all(|share| self.lasts(share.device))
            };
            let Some((id, left)) = loaded.filter(|(id, _)| lasts(*id)) else {
                self.waiting.push(list);
                continue;
            };
            list.runs_from = self.now + Span(scaled(left.0, self.care.load));
            // The memory of models that stay is not for batches at all.
            let model = &self.pool.models[&list.model];
            let stays = self.pool.keeps_from_batches(list.model, model);
            let held = |bytes: Bytes| if stays { Bytes::ZERO } else { bytes };
            let shares = self.pool.replicas[&id].shares.iter();
            let place = shares.map(|share| (share.device, held(share.bytes)));
            self.begin(&mut list, place.collect());
            self.running.push(list);
        }
    }

    /// Returns true if the node of the device counts.
    fn lasts(&self, id: DeviceId) -> bool {
        let node = self.pool.devices[&id].node;
        self.care.counts_batch_nodes || !self.pool.nodes.is_for_batches(node)
    }

    /// Takes the memory of a model that begins.
    fn begin(&mut self, list: &mut List, place: Vec<(DeviceId, Bytes)>) {
        for (device, bytes) in &place {
            let used = self.used.entry(*device).or_default();
            *used = *used + *bytes;
        }
        if let [(own, _)] = place[..] {
            let may_evict = self.may_evict(list, self.now);
            let others = self.rooms(list, may_evict).map(|(id, ..)| id);
            let others = others.filter(|id| *id != own);
            list.spares = others.take(SPARES_MAX).collect();
        }
        list.place = place;
    }

    fn may_evict(&self, list: &List, at: Time) -> bool {
        let by_hours = self.hours.iter().rev().find(|hour| hour.from <= at);
        let for_deadline = self.deadline_evicts && list.must_begin.is_some_and(|by| by <= at);
        by_hours.is_some_and(|hour| hour.may_evict) || for_deadline
    }

    /// Loads all waiting models for which there is room, in the order of their deadlines (B7).
    fn place_waiting(&mut self, begins: Time) {
        let now = self.now;
        if !self.has_room {
            return;
        }
        self.waiting.sort_by_key(|list| {
            let due = list.must_begin.filter(|by| *by <= now);
            (due.unwrap_or(Time(u64::MAX - list.lines)), list.model)
        });
        self.has_room = false;
        let mut failed = 0;
        let waiting = core::mem::take(&mut self.waiting);
        for mut list in waiting {
            let may_load = failed < TRIES && self.pool.may_load_for_batches(list.model);
            let place = may_load.then(|| self.place_for(&list, begins)).flatten();
            let Some((devices, wait)) = place else {
                failed += usize::from(may_load);
                self.waiting.push(list);
                continue;
            };
            list.runs_from = now + wait + list.load;
            let bytes = list.bytes;
            let place = devices.into_iter().map(|device| (device, bytes));
            self.begin(&mut list, place.collect());
            self.running.push(list);
        }
    }

    /// The devices with memory for a model, each with the time until it is free at present.
    fn rooms(
        &self,
        list: &List,
        may_evict: bool,
    ) -> impl Iterator<Item = (DeviceId, NodeId, Span)> {
        let allowed = self.pool.models[&list.model].spec.allowed.as_ref();
        let devices = self.pool.devices.iter();
        devices.filter_map(move |(id, device)| {
            let is_allowed = allowed.is_none_or(|allowed| allowed.contains(id));
            let takes = is_allowed && !device.takes_nothing() && self.lasts(*id);
            let fits = takes && self.spare_of(*id, may_evict) >= list.bytes;
            fits.then(|| (*id, device.node, self.kept[usize::from(may_evict)][id].1))
        })
    }

    /// The memory of a device that other batches of the course leave.
    fn spare_of(&self, id: DeviceId, may_evict: bool) -> Bytes {
        let device = &self.pool.devices[&id];
        let (kept, _) = self.kept[usize::from(may_evict)][&id];
        let used = self.used.get(&id).copied().unwrap_or_default();
        let taken = kept + used + device.foreign;
        device.capacity().saturating_sub(taken)
    }

    /// The devices for a model, and the time until their memory is free: the earliest on one node.
    fn place_for(&self, list: &List, begins: Time) -> Option<(Vec<DeviceId>, Span)> {
        let may_evict = self.may_evict(list, self.now);
        let mut by_node: BTreeMap<NodeId, Vec<(Span, DeviceId)>> = BTreeMap::new();
        for (id, node, wait) in self.rooms(list, may_evict) {
            // The present use of the memory says nothing about later times.
            let wait = if self.now == begins { wait } else { Span::ZERO };
            by_node.entry(node).or_default().push((wait, id));
        }
        let count = list.devices.max(1) as usize;
        let best = by_node.into_values().filter_map(|mut devices| {
            devices.sort();
            let chosen = devices.get(..count)?;
            let wait = chosen.last()?.0;
            Some((wait, chosen.iter().map(|(_, id)| *id).collect()))
        });
        let (wait, devices) = best.min()?;
        Some((devices, wait))
    }

    /// The end of the hour, or an earlier time at which something changes.
    fn next_time(&self) -> Time {
        let wall = self.pool.service.wall(self.now);
        let hour_ends = self.now + Span(HOUR.0 - wall.0 % HOUR.0);
        let changes = self.hours.iter().map(|hour| hour.from);
        let mut next = changes
            .filter(|at| *at > self.now)
            .fold(hour_ends, Time::min);
        for list in self.running.iter().filter(|list| !list.is_unknown) {
            if list.runs_from > self.now {
                next = next.min(list.runs_from);
                continue;
            }
            let speed = self.speed(list);
            if speed > 0 {
                let takes = u128::from(list.left) * u128::from(PERMILLE);
                let takes = u64::try_from(takes.div_ceil(u128::from(speed))).unwrap_or(u64::MAX);
                next = next.min(self.now + Span(takes.max(1)));
            }
        }
        next
    }

    fn advance(&mut self, next: Time, ends: &mut BTreeMap<(u64, ModelId), Option<Time>>) {
        let passed = next.since(self.now);
        let speeds: Vec<u64> = self.running.iter().map(|list| self.speed(list)).collect();
        let now = self.now;
        self.now = next;
        for (list, speed) in self.running.iter_mut().zip(speeds) {
            if list.is_unknown || list.runs_from > now {
                continue;
            }
            list.left = list.left.saturating_sub(scaled(passed.0, speed));
            if list.left == 0
                && let Some(part) = list.parts.pop_front()
            {
                ends.insert((part.batch, list.model), Some(next));
                list.left = list.parts.front().map_or(0, |part| part.takes);
            }
        }
        let (ended, running) = core::mem::take(&mut self.running)
            .into_iter()
            .partition(|list| list.parts.is_empty());
        self.running = running;
        let ended: Vec<List> = ended;
        for list in ended {
            self.has_room = true;
            for (device, bytes) in &list.place {
                let used = self.used.entry(*device).or_default();
                *used = used.saturating_sub(*bytes);
            }
        }
    }

    /// The part of the present hour for which the model runs, in thousandths.
    fn speed(&self, list: &List) -> u64 {
        let hour = self.pool.service.wall(self.now).0 / HOUR.0;
        let may_evict = self.may_evict(list, self.now);
        let own = self.pool.room_hours.of_model(list.model, hour);
        let place = list.place.iter();
        let free = place.map(|(id, _)| self.room(list, *id, hour, may_evict));
        let mut free = free.min().unwrap_or_default();
        let spares = list.spares.iter();
        for id in spares.filter(|id| self.spare_of(**id, may_evict) >= list.bytes) {
            let room = self.room(list, *id, hour, may_evict);
            free = if self.care.adds_spares {
                free + scaled(PERMILLE - free, room)
            } else {
                free.max(room)
            };
        }
        let room = free.saturating_add(own).min(PERMILLE);
        PERMILLE.saturating_sub(scaled(PERMILLE - room, self.care.without_room))
    }

    /// The part of an hour for which a device has room for the model, less the loads that it costs, in thousandths.
    fn room(&self, list: &List, id: DeviceId, hour: u64, may_evict: bool) -> u64 {
        let hours = &self.pool.room_hours;
        let Some(device) = self.pool.devices.get(&id) else {
            return self.care.unread;
        };
        let capacity = device.capacity().saturating_sub(device.foreign);
        let spare = capacity.saturating_sub(list.bytes);
        let parts = u128::from(spare.0) * PARTS as u128 / u128::from(capacity.0.max(1));
        let parts = usize::try_from(parts).unwrap_or(PARTS);
        let share = hours.of_device(id, hour, parts, may_evict);
        let Some(share) = share.filter(|_| hours.read_for(id) >= READ_FOR) else {
            return self.care.unread;
        };
        let most = if share.is_read {
            PERMILLE
        } else {
            self.care.unread_hour
        };
        // After each time without room, the model is loaded again.
        let yields = scaled(list.yields.0, self.care.yields);
        let again = list.load.0.saturating_add(yields);
        let loads = scaled(again, share.taken).saturating_mul(PERMILLE) / HOUR.0;
        share.permille.min(most).saturating_sub(loads)
    }
}

fn keys(list: &List) -> impl Iterator<Item = (u64, ModelId)> {
    list.parts.iter().map(|part| (part.batch, list.model))
}
