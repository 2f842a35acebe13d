//! What is counted and remembered of models between two writes to the store.

use std::collections::BTreeMap;

use pool::ModelId;
use store::Measurements;

#[derive(Default)]
pub(super) struct Usage {
    pub measurements: Measurements,
    /// Remembered demand as the store has it.
    pub remembered: BTreeMap<ModelId, Vec<u64>>,
    /// Seats taken times how long, since it was last kept.
    pub busy_ms: BTreeMap<ModelId, u64>,
    /// Requests that had been seated when it was last kept.
    pub seated: BTreeMap<ModelId, u64>,
    /// The same for those that waited, with how long in milliseconds.
    pub waited: BTreeMap<ModelId, (u64, u64)>,
}
