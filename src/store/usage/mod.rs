//! Requests per model and minute, and the memory that models were measured to need.

mod measurements;
mod minutes;
mod seconds;

pub use measurements::{Circumstances, Measurement, Measurements};
pub use minutes::{DayUsage, UsageMinute};
pub use seconds::Seconds;
