//! The events of batches in a replay: their arrivals and ends, the seats that they take, and the replicas that they load and lose.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use super::BatchDue;
use crate::replay::batch_rules::Terms;
use crate::replay::report::BatchResult;
use crate::replay::run::{Due, Play};
use pool::{GateMode, ModelId, Record, RecordKind, ReplicaId, Span};

/// The time between two forecasts of all batches.
const FORECAST_EVERY: Span = Span::from_secs(1_800);

impl Play<'_> {
    pub fn begin_batches(&mut self) {
        for (nth, batch) in self.scenario.batches.iter().enumerate() {
            self.push(batch.at, Due::Batch(BatchDue::Arrives(nth)));
        }
        self.batches.pending = self.scenario.batches.len();
    }

    pub fn batch_happens(&mut self, due: BatchDue) {
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
            promised: None,
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
    pub fn batch_room_changes(&mut self, model: ModelId) {
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
    pub fn batch_recorded(&mut self, record: &Record) {
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
    pub fn batch_step_ends(&mut self) {
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

    pub fn batch_load_begins(&mut self, replica: ReplicaId, model: ModelId) {
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
