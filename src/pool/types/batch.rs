//! Batch work: requests from files, below priority 0 (B4). Lines run in seats that interactive requests leave free. The counts of
//! gates do not include them, and an interrupted line runs again later.

use alloc::collections::BTreeMap;

use crate::types::ids::{ModelId, Span, Time};

/// The batch work for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDemand {
    pub model: ModelId,
    /// The requests that still wait for a result.
    pub lines: u64,
    /// The administrator's hours allow the load to evict.
    pub may_evict: bool,
    /// The time by which the load has to begin for the earliest deadline (B7); `None` if it is unknown.
    pub must_begin: Option<Time>,
    /// From then on, the load may evict outside of the hours, too.
    pub deadline_evicts: bool,
}

/// The memory that a load for batches may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchRoom {
    Free,
    /// Also the memory of models of priority 0 that have been idle for long.
    LongIdle,
}

/// The open requests of a batch for a model, for a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchWork {
    /// A number of the caller.
    pub batch: u64,
    pub model: ModelId,
    pub lines: u64,
    /// The time that a thousand of them take while the model is loaded; `None` if it was never measured.
    pub thousand_takes: Option<Span>,
    pub deadline: Time,
}

/// From this time on, loads for batches may evict, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHour {
    pub from: Time,
    pub may_evict: bool,
}

/// The forecast of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// The speed of a model is unknown.
    Unknown,
    /// Not within the time for which the pool looks ahead.
    Never,
    /// The expected end, and a time after which it rarely is.
    At { expected: Time, latest: Time },
}

impl BatchEnd {
    /// Returns true if the batch very probably ends in time; `None` if that is unknown.
    pub fn will_hold(self, deadline: Time) -> Option<bool> {
        match self {
            BatchEnd::Unknown => None,
            BatchEnd::Never => Some(false),
            BatchEnd::At { latest, .. } => Some(latest <= deadline),
        }
    }

    /// Returns true if a miss is more likely than not.
    pub(crate) fn is_likely_missed(self, deadline: Time) -> bool {
        match self {
            BatchEnd::Unknown => false,
            BatchEnd::Never => true,
            BatchEnd::At { expected, .. } => expected > deadline,
        }
    }
}

/// The part of a window during which forecasts must expect a miss before it is certain enough for a warning, and the multiple of the
/// rest of the window from which one forecast suffices. In 300 random worlds of the simulator, 12 % of the batches that hold their
/// windows then get a warning, and 88 % of the others do.
const EXPECTED_FOR_PART: u64 = 8;
const WIDE: u64 = 8;

/// Decides when a miss of a window is certain enough for a warning. Forecasts change with the load of the pool, and most of those
/// that expect a narrow miss are wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissWatch {
    /// The first of the forecasts that have expected a miss since.
    expected_since: Option<Time>,
}

impl MissWatch {
    /// Takes a forecast of a batch that was created and ends at these times. Returns true if a warning is due: the forecasts have
    /// expected a miss for a part of the window, or the rest of the requests takes many times the rest of the window.
    pub fn is_due(&mut self, end: BatchEnd, now: Time, (created, deadline): (Time, Time)) -> bool {
        if !end.is_likely_missed(deadline) {
            self.expected_since = None;
            return false;
        }
        let since = *self.expected_since.get_or_insert(now);
        let is_wide = match end {
            BatchEnd::At { expected, .. } => expected.since(now).0 / WIDE > deadline.since(now).0,
            BatchEnd::Never | BatchEnd::Unknown => false,
        };
        is_wide || now.since(since).0 >= deadline.since(created).0 / EXPECTED_FOR_PART
    }
}

/// The forecasts of all batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOutlook {
    /// By the caller's numbers.
    pub ends: BTreeMap<u64, BatchEnd>,
    /// The time by which the load of a model has to begin for its earliest deadline (B7).
    pub must_begin: BTreeMap<ModelId, Time>,
}
