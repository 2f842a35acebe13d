//! Batches in a replay: their requests take the seats that others leave, as a flow, so a hundred thousand of them are a few events.
//! The speeds are learned and the forecasts made as in the gateway.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use super::batch_rules::{BatchReferee, Terms};
use super::report::{BatchReport, BatchResult};
use super::run::{Due, Play};
use super::scenario::BatchTimes;
use pool::{
    BatchDemand, BatchHour, BatchWork, Event, GateMode, ModelId, Record, RecordKind, ReplicaId,
    Span, Time,
};

const DAY: Span = Span::from_secs(86_400);
/// The time between two forecasts of all batches.
const FORECAST_EVERY: Span = Span::from_secs(1_800);
/// The shortest time of a measurement of a speed, and the weight of the latest one, as a part.
const MEASURED: Span = Span::from_secs(5);
const LATEST_PART: u64 = 4;
/// The hours of a forecast.
const HOURS_AHEAD: u64 = 31;
/// The open requests of a model are reported in steps, as by the gateway.
const BITS_KEPT: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BatchDue {
    Arrives(usize),
    /// The first batch of a model may have ended. Only the latest event of a model counts.
    Runs(ModelId, u64),
    Expires(usize),
    /// A batch has ended.
    Reports,
    /// New forecasts, and times in which loads may evict.
    Looks,
}

/// The open batches of a model.
#[derive(Debug, Default)]
struct Line {
    /// Oldest first.
    open: VecDeque<usize>,
    since: Time,
    /// The seats that its requests have.
    seats: u64,
    version: u64,
}

/// The time that a thousand requests of a model take.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    thousand_takes: Option<Span>,
    lines_thousandths: u64,
    ran: Span,
}

#[derive(Debug, Default)]
pub(super) struct Batches {
    results: Vec<BatchResult>,
    /// The rest of each batch, in milliseconds of a seat.
    left: Vec<u64>,
    lines: BTreeMap<ModelId, Line>,
    speeds: BTreeMap<ModelId, Speed>,
    demands: Vec<BatchDemand>,
    must_begin: BTreeMap<ModelId, Time>,
    /// Batches that have not arrived.
    pending: usize,
    /// Batches without a first forecast.
    fresh: Vec<usize>,
    is_looking: bool,
    planned: BTreeSet<ReplicaId>,
    /// True if the last load of a model, by its name, was for batches.
    for_batches: BTreeMap<String, bool>,
    /// Models with open requests of which a replica leaves, each with the model that takes its place, if it is known.
    leaving: Vec<(ModelId, Option<String>)>,
    /// Models that have been loaded since their requests arrived.
    seen: BTreeSet<ModelId>,
    /// Models of which a replica has left for something else since their last load.
    lost: BTreeSet<ModelId>,
    pub(super) referee: BatchReferee,
    loads: u64,
    forced: u64,
    evicted: u64,
}

impl Batches {
    pub fn is_any_open(&self) -> bool {
        self.lines.values().any(|line| !line.open.is_empty()) || self.pending > 0
    }

    pub fn report(&self) -> Option<BatchReport> {
        (!self.results.is_empty()).then(|| BatchReport {
            batches: self.results.clone(),
            loads: self.loads,
            forced: self.forced,
            evicted: self.evicted,
        })
    }

    fn is_open(&self, model: ModelId) -> bool {
        let line = self.lines.get(&model);
        line.is_some_and(|line| !line.open.is_empty())
    }
}

impl Speed {
    fn ran(&mut self, lines_thousandths: u64, ran: Span) {
        self.lines_thousandths += lines_thousandths;
        self.ran = self.ran + ran;
        if self.ran < MEASURED || self.lines_thousandths == 0 {
            return;
        }
        let takes = self.ran.0.saturating_mul(1_000_000) / self.lines_thousandths;
        let takes = self.thousand_takes.map_or(takes, |known| {
            (known.0.saturating_mul(LATEST_PART - 1) + takes) / LATEST_PART
        });
        (self.lines_thousandths, self.ran) = (0, Span::ZERO);
        self.thousand_takes = Some(Span(takes));
    }
}

impl Play<'_> {
    pub(super) fn begin_batches(&mut self) {
        for (nth, batch) in self.scenario.batches.iter().enumerate() {
            self.push(batch.at, Due::Batch(BatchDue::Arrives(nth)));
        }
        self.batches.pending = self.scenario.batches.len();
    }

    pub(super) fn batch_happens(&mut self, due: BatchDue) {
        match due {
            BatchDue::Arrives(nth) => self.batch_arrives(nth),
            BatchDue::Runs(model, version) => {
                let line = self.batches.lines.get(&model);
                if line.is_some_and(|line| line.version == version) {
                    self.batch_room_changes(model);
                    self.report_batches();
                }
            }
            BatchDue::Expires(nth) => {
                let model = self.scenario.batches[nth].model;
                self.batch_runs(model);
                if self.batches.results[nth].ended.is_none() {
                    self.batch_leaves(model, nth);
                    self.batch_room_changes(model);
                    self.report_batches();
                }
            }
            BatchDue::Reports => self.report_batches(),
            BatchDue::Looks => {
                let models: Vec<ModelId> = self.batches.lines.keys().copied().collect();
                for model in models {
                    self.batch_runs(model);
                }
                self.look_at_batches();
                self.report_batches();
                if self.batches.is_any_open() {
                    let next = self.now + FORECAST_EVERY;
                    let changes = self.batch_hours().into_iter().skip(1);
                    for change in changes.take_while(|change| change.from < next) {
                        self.push(change.from, Due::Batch(BatchDue::Reports));
                    }
                    self.push(self.now + FORECAST_EVERY, Due::Batch(BatchDue::Looks));
                } else {
                    self.batches.is_looking = false;
                }
            }
        }
    }

    fn batch_arrives(&mut self, nth: usize) {
        let arrival = self.scenario.batches[nth];
        self.batch_runs(arrival.model);
        let takes = arrival.lines.saturating_mul(arrival.service.0.max(1));
        self.batches.left.push(takes);
        self.batches.pending -= 1;
        let line = self.batches.lines.entry(arrival.model).or_default();
        if line.open.is_empty() {
            line.since = self.now;
            self.batches.seen.remove(&arrival.model);
            self.batches.lost.remove(&arrival.model);
        }
        line.open.push_back(nth);
        self.batches.results.push(BatchResult {
            arrival,
            ended: None,
            left: 0,
            forecast: pool::BatchEnd::Unknown,
            warned: None,
        });
        let deadline = arrival.at + arrival.window;
        self.push(deadline, Due::Batch(BatchDue::Expires(nth)));
        if !core::mem::replace(&mut self.batches.is_looking, true) {
            self.push(self.now, Due::Batch(BatchDue::Looks));
        }
        self.batches.fresh.push(nth);
        self.look_at_batches();
        self.batch_room_changes(arrival.model);
        self.report_batches();
    }

    /// Makes the forecasts of all open batches.
    fn look_at_batches(&mut self) {
        let now = self.now;
        let mut open: Vec<usize> = Vec::new();
        let mut works: Vec<BatchWork> = Vec::new();
        for line in self.batches.lines.values() {
            for &nth in &line.open {
                let arrival = self.scenario.batches[nth];
                let speed = self.batches.speeds.get(&arrival.model);
                open.push(nth);
                works.push(BatchWork {
                    batch: nth as u64,
                    model: arrival.model,
                    lines: self.batches.left[nth].div_ceil(arrival.service.0.max(1)),
                    thousand_takes: speed.and_then(|speed| speed.thousand_takes),
                    deadline: arrival.at + arrival.window,
                });
            }
        }
        let hours = self.batch_hours();
        let evicts = self.scenario.deadline_evicts;
        let outlook = self.pool.batch_outlook(now, &works, &hours, evicts);
        let fresh = core::mem::take(&mut self.batches.fresh);
        for nth in open {
            let Some(&end) = outlook.ends.get(&(nth as u64)) else {
                continue;
            };
            let result = &mut self.batches.results[nth];
            if fresh.contains(&nth) {
                result.forecast = end;
            }
            if end.is_likely_missed(result.deadline()) {
                result.warned.get_or_insert(now);
            }
        }
        self.batches.must_begin = outlook.must_begin;
    }

    /// The times at which loads for batches may evict, from now on.
    fn batch_hours(&self) -> Vec<BatchHour> {
        let (from, length) = match self.scenario.batch_times {
            BatchTimes::Always => (Span::ZERO, DAY),
            BatchTimes::Never => (Span::ZERO, Span::ZERO),
            BatchTimes::Daily { from, length } => (from, length),
        };
        let now = BatchHour {
            from: self.now,
            may_evict: self.may_evict_for_batches(self.now),
        };
        let mut hours = vec![now];
        if length == Span::ZERO || length >= DAY {
            return hours;
        }
        let today = self.now.0 / DAY.0;
        for day in today.saturating_sub(1)..today + HOURS_AHEAD {
            let begins = Time(day * DAY.0 + from.0);
            for (at, may_evict) in [(begins, true), (begins + length, false)] {
                if at > self.now {
                    hours.push(BatchHour {
                        from: at,
                        may_evict,
                    });
                }
            }
        }
        hours
    }

    fn may_evict_for_batches(&self, at: Time) -> bool {
        match self.scenario.batch_times {
            BatchTimes::Always => true,
            BatchTimes::Never => false,
            BatchTimes::Daily { from, length } => {
                let today = (at.0 + DAY.0 - from.0 % DAY.0) % DAY.0;
                today < length.0
            }
        }
    }

    /// Reports the open requests to the pool if they have changed.
    fn report_batches(&mut self) {
        let may_evict = self.may_evict_for_batches(self.now);
        let mut demands = Vec::new();
        for (model, line) in &self.batches.lines {
            let left = line.open.iter().map(|&nth| {
                let service = self.scenario.batches[nth].service.0.max(1);
                self.batches.left[nth].div_ceil(service)
            });
            let lines: u64 = left.sum();
            if lines > 0 {
                demands.push(BatchDemand {
                    model: *model,
                    lines: rounded(lines),
                    may_evict,
                    must_begin: self.batches.must_begin.get(model).copied(),
                    deadline_evicts: self.scenario.deadline_evicts,
                });
            }
        }
        if demands != self.batches.demands {
            self.batches.demands.clone_from(&demands);
            self.step(vec![Event::BatchesSet { demands }]);
        }
    }

    /// Counts the requests that have run since the last change, and ends batches.
    fn batch_runs(&mut self, model: ModelId) {
        let now = self.now;
        let Some(line) = self.batches.lines.get_mut(&model) else {
            return;
        };
        let passed = now.since(line.since);
        line.since = now;
        let (mut run, seats) = (passed.0.saturating_mul(line.seats), line.seats);
        let mut has_ended = false;
        while let Some(&nth) = line.open.front().filter(|_| seats > 0) {
            let service = self.scenario.batches[nth].service.0.max(1);
            let left = &mut self.batches.left[nth];
            let part = run.min(*left);
            *left -= part;
            run -= part;
            let speed = self.batches.speeds.entry(model).or_default();
            speed.ran(part.saturating_mul(1_000) / service, Span(part / seats));
            if *left > 0 {
                break;
            }
            self.batches.results[nth].ended = Some(now);
            line.open.pop_front();
            has_ended = true;
        }
        if has_ended {
            self.push(now, Due::Batch(BatchDue::Reports));
        }
    }

    fn batch_leaves(&mut self, model: ModelId, nth: usize) {
        if let Some(line) = self.batches.lines.get_mut(&model) {
            line.open.retain(|open| *open != nth);
        }
        let service = self.scenario.batches[nth].service.0.max(1);
        let left = core::mem::take(&mut self.batches.left[nth]);
        self.batches.results[nth].left = left.div_ceil(service);
    }

    /// Takes the seats that others leave now. A request that loses its seat runs again.
    pub(super) fn batch_room_changes(&mut self, model: ModelId) {
        if !self.batches.is_open(model) {
            return;
        }
        self.batch_runs(model);
        let seats = u64::from(
            self.scenario.models[model.0 as usize]
                .seats_per_replica
                .max(1),
        );
        let free = self.of_model[model.0 as usize].iter().map(|id| {
            let gate = &self.live[id];
            let is_open = gate.mode == Some(GateMode::Open) && !gate.closed && !gate.stopping;
            if is_open {
                seats.saturating_sub(u64::from(gate.in_flight))
            } else {
                0
            }
        });
        let room: u64 = free.sum();
        let now = self.now;
        let Some(line) = self.batches.lines.get_mut(&model) else {
            return;
        };
        let Some(&nth) = line.open.front() else {
            line.seats = 0;
            return;
        };
        let arrival = self.scenario.batches[nth];
        let service = arrival.service.0.max(1);
        let left = &mut self.batches.left[nth];
        let waiting = left.div_ceil(service);
        let taken = room.min(waiting);
        // On average, half of each cut request had run.
        let cut = line.seats.saturating_sub(room);
        let all = arrival.lines.saturating_mul(service);
        *left = left.saturating_add(cut * service / 2).min(all);
        line.seats = taken;
        line.version += 1;
        if taken > 0 {
            let at = now + Span(left.div_ceil(taken).max(1));
            let due = BatchDue::Runs(model, line.version);
            self.push(at, Due::Batch(due));
        }
    }

    /// Notes which loads are for batches, and which replicas leave before their batches have ended.
    pub(super) fn batch_recorded(&mut self, record: &Record) {
        if self.scenario.batches.is_empty() {
            return;
        }
        let Some(replica) = record.replica else {
            return;
        };
        let victim = self.live.get(&replica);
        self.batches.referee.recorded(record, victim);
        match (record.kind, record.cause) {
            (RecordKind::Load, cause) => {
                let is_for_batches = cause == Some("batch");
                let name = record.model.clone().unwrap_or_default();
                self.batches.for_batches.insert(name, is_for_batches);
                if is_for_batches {
                    self.batches.planned.insert(replica);
                }
            }
            (RecordKind::Evict | RecordKind::Drain, cause) => {
                let left = self.live.get(&replica).map(|live| live.model);
                let Some(model) = left.filter(|model| self.batches.is_open(*model)) else {
                    return;
                };
                self.batches.evicted += u64::from(cause == Some("batch_yielded"));
                let by = taker(&record.reason).filter(|_| cause == Some("batch_yielded"));
                // Keep-hot should not end it (B6).
                if cause != Some("keep_hot") {
                    self.batches
                        .leaving
                        .push((model, by.map(ToOwned::to_owned)));
                }
            }
            _ => {}
        }
    }

    /// Notes the models that have lost a replica to something else than batches. The loads of the step are known now.
    pub(super) fn batch_step_ends(&mut self) {
        let terms = Terms {
            now: self.now,
            may_evict: self.may_evict_for_batches(self.now),
            names: &self.names,
        };
        let demands = &self.batches.demands;
        let found = self
            .batches
            .referee
            .step_ends(&terms, demands, |model| self.pool.priority(model));
        found
            .into_iter()
            .for_each(|found| self.accounts.broken(found));
        for (model, by) in core::mem::take(&mut self.batches.leaving) {
            let known = by.and_then(|by| self.batches.for_batches.get(&by).copied());
            if known != Some(true) {
                self.batches.lost.insert(model);
            }
        }
    }

    pub(super) fn batch_load_begins(&mut self, replica: ReplicaId, model: ModelId) {
        if !self.batches.planned.remove(&replica) {
            return;
        }
        let batches = &mut self.batches;
        batches.loads += 1;
        let is_first = batches.seen.insert(model);
        let was_lost = batches.lost.remove(&model);
        batches.forced += u64::from(is_first || was_lost);
    }
}

/// The model that takes the memory of a replica that served only batches.
fn taker(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("serves only batches, and ")?;
    rest.split_once(" needs its memory").map(|(by, _)| by)
}

/// Keeps the highest bits.
fn rounded(lines: u64) -> u64 {
    let shift = (u64::BITS - lines.leading_zeros()).saturating_sub(BITS_KEPT);
    (lines >> shift) << shift
}
