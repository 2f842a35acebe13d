//! Forecasts when batches end: their models are loaded one after another in the order of B4 and B7, and run in the share of each hour
//! that others have left on the last day. One course expects the usual, the other one is careful. Read-only.

mod course;
mod lists;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::batch::{BatchEnd, BatchHour, BatchOutlook, BatchWork};
use crate::types::ids::{Bytes, DeviceId, ModelId, Span, Time};

/// The share of an hour on a device that has not been read for long, in thousandths: as expected, and with care.
const UNREAD_PERMILLE: (u64, u64) = (700, 400);
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
    /// The largest share of an hour of the day that has not been read.
    unread_hour: u64,
    /// Another device with room is counted as independent of the model's own one. Otherwise, the better one counts.
    adds_spares: bool,
    /// Nodes that were requested for batches count. They are given back when their budget is used up (B8).
    counts_batch_nodes: bool,
}

const EXPECTED: Care = Care {
    work: PERMILLE,
    guessed_work: PERMILLE,
    load: PERMILLE,
    yields: 0,
    without_room: PERMILLE,
    unread: UNREAD_PERMILLE.0,
    unread_hour: PERMILLE,
    adds_spares: true,
    counts_batch_nodes: true,
};
const CAREFUL: Care = Care {
    work: 1_500,
    guessed_work: 4_000,
    load: 1_500,
    yields: PERMILLE,
    without_room: 1_600,
    unread: UNREAD_PERMILLE.1,
    unread_hour: 900,
    adds_spares: false,
    counts_batch_nodes: false,
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
    /// The devices of its replica, each with the memory that other batches cannot have.
    place: Vec<(DeviceId, Bytes)>,
    /// Other devices that can hold it, if it needs a single one.
    spares: Vec<DeviceId>,
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
