//! Batch work: requests from files, below priority 0 (B4). Lines run in seats that interactive requests leave free. The counts of
//! gates do not include them, and an interrupted line runs again later.

use crate::types::ids::ModelId;

/// The batch work for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDemand {
    pub model: ModelId,
    /// The requests that still wait for a result.
    pub lines: u64,
    /// The administrator's hours or a deadline allow the load to evict.
    pub may_evict: bool,
}

/// The memory that a load for batches may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchRoom {
    Free,
    /// Also the memory of models of priority 0 that have been idle for long.
    LongIdle,
}
