//! Requests per model and minute, the time of devices, and the memory that models were measured to need.

mod ledger;
mod measurements;
mod minutes;
mod seconds;

pub use ledger::{LedgerAmount, LedgerBatch, LedgerKey, LedgerSum};
pub use measurements::{Circumstances, Measurement, Measurements};
pub use minutes::{DayUsage, UsageMinute};
pub use seconds::Seconds;
