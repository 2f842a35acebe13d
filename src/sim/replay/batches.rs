//! Batches in a replay: their requests take the seats that others leave, as a flow, so a hundred thousand of them are a few events.
//! The speeds are learned and the forecasts made as in the gateway. `events` changes the state, and `forecasts` reports it to the pool.

mod events;
mod forecasts;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use super::batch_rules::BatchReferee;
use super::report::{BatchReport, BatchResult};
use pool::{BatchDemand, MissWatch, ModelId, ReplicaId, Span, Time};

/// The shortest time of a measurement of a speed, and the weight of the latest one, as a part.
const MEASURED: Span = Span::from_secs(5);
const LATEST_PART: u64 = 4;

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
    watches: BTreeMap<usize, MissWatch>,
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
