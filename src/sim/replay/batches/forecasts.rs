//! The forecasts of batches in a replay, the times in which their loads may evict, and the reports of open requests to the pool.

use alloc::vec::Vec;

use crate::replay::run::Play;
use crate::replay::scenario::BatchTimes;
use pool::{BatchDemand, BatchHour, BatchWork, Event, Span, Time};

const DAY: Span = Span::from_secs(86_400);
/// The hours of a forecast.
const HOURS_AHEAD: u64 = 31;
/// The open requests of a model are reported in steps, as by the gateway.
const BITS_KEPT: u32 = 4;

impl Play<'_> {
    /// Makes the forecasts of all open batches.
    pub(super) fn look_at_batches(&mut self) {
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
            if end.will_hold(result.deadline()) == Some(true) {
                result.promised.get_or_insert(now);
            }
            let window = (result.arrival.at, result.deadline());
            let watch = self.batches.watches.entry(nth).or_default();
            if watch.is_due(end, now, window) {
                result.warned.get_or_insert(now);
            }
        }
        self.batches.must_begin = outlook.must_begin;
    }

    /// The times at which loads for batches may evict, from now on.
    pub(super) fn batch_hours(&self) -> Vec<BatchHour> {
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
        // The hours of a day may end on the next one, and those before the first day on the first.
        let today = self.now.0 / DAY.0;
        for day in today..=today + HOURS_AHEAD {
            let (begins, ends) = (day * DAY.0 + from.0, day * DAY.0 + from.0 + length.0);
            let changes = [(ends.checked_sub(DAY.0), false), (Some(begins), true)];
            for (at, may_evict) in changes {
                hours.extend(
                    at.map(Time)
                        .filter(|at| *at > self.now)
                        .map(|from| BatchHour { from, may_evict }),
                );
            }
        }
        hours
    }

    pub(super) fn may_evict_for_batches(&self, at: Time) -> bool {
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
    pub(super) fn report_batches(&mut self) {
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
}

/// Keeps the highest bits.
fn rounded(lines: u64) -> u64 {
    let shift = (u64::BITS - lines.leading_zeros()).saturating_sub(BITS_KEPT);
    (lines >> shift) << shift
}
