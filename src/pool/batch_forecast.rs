//! Forecasts when batches end: their models are loaded one after another in the order of B4 and B7, and run in the share of each hour
//! that others have left on the last day. One course expects the usual, the other one is careful. Read-only.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::facts::models::Model;
use crate::facts::room_hours::{HOUR, PARTS};
use crate::facts::state::Pool;
use crate::plan::batches::may_leave_for_batches;
use crate::plan::yields::yields_after;
use crate::types::batch::{BatchEnd, BatchHour, BatchOutlook, BatchWork};
use crate::types::ids::{Bytes, DeviceId, ModelId, NodeId, ReplicaId, Span, Time};
use crate::types::replica::Phase;
use crate::types::requirements::Requirements;

/// The course does not reach further.
const HORIZON: Span = Span::from_secs(60 * 24 * 3_600);
/// A forecast takes a bounded time.
const STEPS_MAX: usize = 4_000;
/// The batches of other models count as unknown.
const MODELS_MAX: usize = 256;
/// The models without room after which no others are tried at the same time.
const TRIES: usize = 16;
/// Without a measurement, a request in a full replica is expected to take this many times as long as an interactive one.
const CROWDED: u64 = 2;
/// The share of an hour on a device that has not been read for long, in thousandths: as expected, and with care.
const UNREAD_PERMILLE: (u64, u64) = (700, 400);
const READ_FOR: Span = HOUR;
const PERMILLE: u64 = 1_000;

/// The allowances of a course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Care {
    /// The time of the requests and of loads, in thousandths of what is expected.
    work: u64,
    /// The same without a measurement.
    guessed_work: u64,
    load: u64,
    /// The time until an idle model leaves, in addition to each load after a time without room.
    yields: u64,
    /// The time without room, in thousandths of what it was on the last day.
    without_room: u64,
    unread: u64,
}

const EXPECTED: Care = Care {
    work: PERMILLE,
    guessed_work: PERMILLE,
    load: PERMILLE,
    yields: 0,
    without_room: PERMILLE,
    unread: UNREAD_PERMILLE.0,
};
const CAREFUL: Care = Care {
    work: 1_500,
    guessed_work: 4_000,
    load: 1_500,
    yields: PERMILLE,
    without_room: 1_600,
    unread: UNREAD_PERMILLE.1,
};

/// The requests of a batch for the model of its list.
#[derive(Clone, Copy, Debug)]
struct Part {
    batch: u64,
    /// Milliseconds on a loaded model.
    takes: u64,
    deadline: Time,
}

/// The batches of a model, in the order in which they run.
#[derive(Clone, Debug)]
struct List {
    model: ModelId,
    lines: u64,
    parts: VecDeque<Part>,
    /// A speed is unknown: it runs for ever.
    is_unknown: bool,
    devices: u32,
    bytes: Bytes,
    load: Span,
    /// The time after which an idle model leaves for it.
    yields: Span,
    must_begin: Option<Time>,
    place: Vec<DeviceId>,
    runs_from: Time,
    /// The rest of the first part, in milliseconds.
    left: u64,
}

struct Course<'a> {
    pool: &'a Pool,
    care: Care,
    hours: &'a [BatchHour],
    deadline_evicts: bool,
    now: Time,
    waiting: Vec<List>,
    running: Vec<List>,
    used: BTreeMap<DeviceId, Bytes>,
    /// The memory of devices that batches can never have, and the time until they can have the rest: without and with evictions.
    kept: &'a [BTreeMap<DeviceId, (Bytes, Span)>; 2],
    /// Memory has become free, so models that wait may have room.
    has_room: bool,
}

impl Pool {
    /// The forecasts of all batches. `works` is in the order in which the batches of a model run; `hours` begins with the present.
    pub fn batch_outlook(
        &self,
        now: Time,
        works: &[BatchWork],
        hours: &[BatchHour],
        deadline_evicts: bool,
    ) -> BatchOutlook {
        let now = self.now.max(now);
        let (careful, must_begin) = self.lists(works, now, CAREFUL);
        let (expected, _) = self.lists(works, now, EXPECTED);
        let kept = [false, true].map(|may_evict| {
            let devices = self.devices.keys();
            let kept = devices.map(|id| (*id, self.kept_from_batches(*id, may_evict)));
            kept.collect()
        });
        let course = |lists: Vec<List>, care| Course {
            pool: self,
            care,
            hours,
            deadline_evicts,
            now,
            waiting: lists,
            running: Vec::new(),
            used: BTreeMap::new(),
            kept: &kept,
            has_room: true,
        };
        let latest = course(careful, CAREFUL).run();
        let expected = course(expected, EXPECTED).run();
        let mut ends: BTreeMap<u64, BatchEnd> = BTreeMap::new();
        for work in works.iter().filter(|work| work.lines > 0) {
            let key = (work.batch, work.model);
            let end = match (expected.get(&key), latest.get(&key)) {
                (Some(Some(expected)), Some(Some(latest))) => BatchEnd::At {
                    expected: *expected,
                    latest: *latest,
                },
                (Some(Some(expected)), Some(None)) => BatchEnd::At {
                    expected: *expected,
                    latest: Time(u64::MAX),
                },
                (Some(None), _) => BatchEnd::Never,
                _ => BatchEnd::Unknown,
            };
            let known = ends.entry(work.batch).or_insert(end);
            *known = later(*known, end);
        }
        BatchOutlook { ends, must_begin }
    }

    /// The lists of all models, with the time by which the load of each has to begin.
    fn lists(
        &self,
        works: &[BatchWork],
        now: Time,
        care: Care,
    ) -> (Vec<List>, BTreeMap<ModelId, Time>) {
        let mut lists: BTreeMap<ModelId, List> = BTreeMap::new();
        for work in works.iter().filter(|work| work.lines > 0) {
            let Some(model) = self.models.get(&work.model) else {
                continue;
            };
            let list = lists
                .entry(work.model)
                .or_insert_with(|| self.list_of(work.model, model, now, care));
            list.lines = list.lines.saturating_add(work.lines);
            let takes = work.thousand_takes.or_else(|| thousand_takes(model));
            list.is_unknown |= takes.is_none();
            let allowance = match work.thousand_takes {
                Some(_) => care.work,
                None => care.guessed_work,
            };
            let takes = u128::from(takes.unwrap_or_default().0) * u128::from(work.lines) / 1_000;
            let takes = u64::try_from(takes).unwrap_or(u64::MAX);
            list.parts.push_back(Part {
                batch: work.batch,
                takes: scaled(takes, allowance).max(1),
                deadline: work.deadline,
            });
        }
        let mut must_begin = BTreeMap::new();
        for list in lists.values_mut() {
            let mut needs = list.load + list.yields;
            for part in &list.parts {
                needs = needs + Span(part.takes);
                let by = Time(part.deadline.0.saturating_sub(needs.0));
                list.must_begin = list.must_begin.into_iter().chain([by]).min();
            }
            list.left = list.parts.front().map_or(0, |part| part.takes);
            if let Some(by) = list.must_begin.filter(|_| !list.is_unknown) {
                must_begin.insert(list.model, by);
            }
        }
        let mut lists: Vec<List> = lists.into_values().collect();
        lists.sort_by_key(|list| (u64::MAX - list.lines, list.model));
        (lists, must_begin)
    }

    fn list_of(&self, id: ModelId, model: &Model, now: Time, care: Care) -> List {
        let requirements = Requirements::new(self, id, now);
        let yields = yields_after(self, model).unwrap_or_default();
        let load = self.return_time(model) + self.fetched_in(id);
        List {
            model: id,
            lines: 0,
            parts: VecDeque::new(),
            is_unknown: false,
            devices: requirements.devices,
            bytes: requirements.bytes,
            load: Span(scaled(load.0, care.load)),
            yields,
            must_begin: None,
            place: Vec::new(),
            runs_from: now,
            left: 0,
        }
    }

    /// A replica of the model that serves or loads, with the time until it serves.
    fn replica_for_batches(&self, id: ModelId) -> Option<(ReplicaId, Span)> {
        let replicas = self.models[&id].replicas.iter();
        let live = replicas.filter_map(|id| match self.replicas[id].phase {
            Phase::Ready { .. } => Some((*id, Span::ZERO)),
            Phase::Launching { since, .. } => {
                let passed = self.now.since(since);
                Some((*id, Span(self.loads_in(*id).0.saturating_sub(passed.0))))
            }
            _ => None,
        });
        live.min_by_key(|(id, left)| (*left, *id))
    }

    /// The memory of a device that batches can never have, and the time until they can have the rest.
    fn kept_from_batches(&self, id: DeviceId, may_evict: bool) -> (Bytes, Span) {
        let (mut bytes, mut wait) = (Bytes::ZERO, Span::ZERO);
        for holder in &self.devices[&id].holders {
            let Some(replica) = self.replicas.get(holder) else {
                continue;
            };
            let model = &self.models[&replica.model];
            if self.serves_only_batches(replica, model) {
                continue;
            }
            let is_wished = model.wish.as_ref().is_some_and(|wish| wish.replicas > 0);
            if self.is_protected(replica.model) || is_wished {
                bytes = bytes + self.held(*holder, id);
                continue;
            }
            let yields = yields_after(self, model).filter(|_| may_evict);
            let keep_hot = self.keep_hot(replica.model);
            let after = yields.map_or(keep_hot, |yields| yields.min(keep_hot));
            if !(may_evict && may_leave_for_batches(self, replica, model)) {
                wait = wait.max(after);
            }
        }
        (bytes, wait)
    }
}

impl Course<'_> {
    /// The ends by batch and model; `None` beyond the horizon. Batches that are missing are unknown.
    fn run(mut self) -> BTreeMap<(u64, ModelId), Option<Time>> {
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
            let Some((id, left)) = self.pool.replica_for_batches(list.model) else {
                self.waiting.push(list);
                continue;
            };
            list.runs_from = self.now + Span(scaled(left.0, self.care.load));
            let shares = &self.pool.replicas[&id].shares;
            list.place = shares.iter().map(|share| share.device).collect();
            for share in shares {
                let used = self.used.entry(share.device).or_default();
                *used = *used + share.bytes;
            }
            self.running.push(list);
        }
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
            for device in &devices {
                let used = self.used.entry(*device).or_default();
                *used = *used + list.bytes;
            }
            list.runs_from = now + wait + list.load;
            list.place = devices;
            self.running.push(list);
        }
    }

    /// The devices for a model, and the time until their memory is free: the earliest on one node.
    fn place_for(&self, list: &List, begins: Time) -> Option<(Vec<DeviceId>, Span)> {
        let may_evict = self.may_evict(list, self.now);
        let allowed = self.pool.models[&list.model].spec.allowed.as_ref();
        let mut by_node: BTreeMap<NodeId, Vec<(Span, DeviceId)>> = BTreeMap::new();
        for (id, device) in self.pool.devices.iter() {
            let is_allowed = allowed.is_none_or(|allowed| allowed.contains(id));
            if !is_allowed || device.takes_nothing() {
                continue;
            }
            let (kept, wait) = self.kept[usize::from(may_evict)][id];
            let used = self.used.get(id).copied().unwrap_or_default();
            let taken = kept + used + device.foreign;
            if device.capacity().saturating_sub(taken) >= list.bytes {
                // The present use of the memory says nothing about later times.
                let wait = if self.now == begins { wait } else { Span::ZERO };
                by_node.entry(device.node).or_default().push((wait, *id));
            }
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
            for device in &list.place {
                let used = self.used.entry(*device).or_default();
                *used = used.saturating_sub(list.bytes);
            }
        }
    }

    /// The part of the present hour for which the model runs, in thousandths.
    fn speed(&self, list: &List) -> u64 {
        let hour = self.pool.service.wall(self.now).0 / HOUR.0;
        let may_evict = self.may_evict(list, self.now);
        let own = self.pool.room_hours.of_model(list.model, hour);
        let shares = list.place.iter().map(|id| {
            let device = self.pool.devices.get(id)?;
            let capacity = device.capacity().saturating_sub(device.foreign);
            let spare = capacity.saturating_sub(list.bytes);
            let parts = u128::from(spare.0) * PARTS as u128 / u128::from(capacity.0.max(1));
            let parts = usize::try_from(parts).unwrap_or(PARTS);
            let read_for = self.pool.room_hours.read_for(*id);
            let share = self.pool.room_hours.of_device(*id, hour, parts, may_evict);
            let share = share.filter(|_| read_for >= READ_FOR)?;
            // After each time without room, the model is loaded again.
            let yields = scaled(list.yields.0, self.care.yields);
            let again = list.load.0.saturating_add(yields);
            let loads = scaled(again, share.taken).saturating_mul(PERMILLE) / HOUR.0;
            Some(share.permille.saturating_sub(loads))
        });
        let free = shares.map(|share| share.unwrap_or(self.care.unread)).min();
        let room = free.unwrap_or_default().saturating_add(own).min(PERMILLE);
        PERMILLE.saturating_sub(scaled(PERMILLE - room, self.care.without_room))
    }
}

impl Pool {
    /// Returns true unless the model cannot be loaded for its batches at all.
    fn may_load_for_batches(&self, id: ModelId) -> bool {
        let model = &self.models[&id];
        let is_away = model.kept_away() || self.batches.is_kept_away(id);
        !model.removed && !is_away && !self.is_quarantined(model)
    }
}

fn keys(list: &List) -> impl Iterator<Item = (u64, ModelId)> {
    list.parts.iter().map(|part| (part.batch, list.model))
}

/// The time of a thousand requests in all seats, guessed from interactive ones.
fn thousand_takes(model: &Model) -> Option<Span> {
    let mean = model.request_times.mean()?;
    let seats = u64::from(model.spec.seats_per_replica.max(1));
    Some(Span(mean.0.saturating_mul(1_000 * CROWDED) / seats))
}

fn scaled(value: u64, permille: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(permille) / u128::from(PERMILLE);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The forecast of a batch from the forecasts of two of its models.
fn later(one: BatchEnd, other: BatchEnd) -> BatchEnd {
    match (one, other) {
        (BatchEnd::Never, _) | (_, BatchEnd::Never) => BatchEnd::Never,
        (BatchEnd::Unknown, _) | (_, BatchEnd::Unknown) => BatchEnd::Unknown,
        (
            BatchEnd::At { expected, latest },
            BatchEnd::At {
                expected: other_expected,
                latest: other_latest,
            },
        ) => BatchEnd::At {
            expected: expected.max(other_expected),
            latest: latest.max(other_latest),
        },
    }
}

#[cfg(test)]
mod tests;
