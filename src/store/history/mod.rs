//! The history of decisions, its queries and sums, and the audit of administrators' requests.

pub(crate) mod audit;
mod decisions;
mod past;
mod reads;
mod records;
mod report;

pub use audit::{AuditEntry, AuditQuery, StoredAudit};
pub use decisions::{StoredCandidate, StoredDecision};
pub use past::{ModelPast, PastStay, PoolHistory};
pub use reads::HistoryQuery;
pub(crate) use records::FORGOTTEN_AT_ONCE;
pub use records::{Retention, StoredMemory, StoredRecord, StoredShare};
pub use report::{EventCount, GroupEventCount, UseCount};
