//! Requests per model and minute, what the pool did in each minute, the use of groups, the time of devices, and the memory that models
//! were measured to need.

mod groups;
mod ledger;
mod ledger_batch;
mod measurements;
mod minutes;
mod pool_minutes;
mod seconds;

pub use groups::{GroupSum, GroupUsage, GroupUseCount};
pub use ledger::LedgerSum;
pub use ledger_batch::{LedgerAmount, LedgerBatch, LedgerKey};
pub use measurements::{Circumstances, Measurement, Measurements};
pub use minutes::{DayUsage, UsageMinute};
pub use pool_minutes::PoolMinute;
pub use seconds::Seconds;
