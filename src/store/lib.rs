//! Durable state: administrators' wishes, registrations, keys, measurements, the history (D1, D3), and the audit. Owns the database
//! file, copies it, and contains all SQL. A call returns only when the change is on disk: SQLite with a write-ahead log and
//! `synchronous = FULL`, or PostgreSQL with `synchronous_commit = on`. Statements are written once for both (`query.rs`,
//! `dialect.rs`).
//!
//! ```text
//!   <name>.db        the database        <name>.db-wal, -shm   SQLite's own
//!   <name>.db.lock   held by the one model-pool that uses the file; contains its process id
//! ```
//!
//! Models are stored by name: their ids are assigned again at each start. Times are Unix milliseconds.

mod batches;
mod database;
mod history;
mod keys;
mod maintenance;
mod orders;
mod responses;
mod sql;
#[cfg(test)]
mod testing;
mod usage;

pub use batches::{BatchPage, FilePage, StoredBatch, StoredFile, UnusedObject};
pub use database::{Candidate, CandidateStatus, Leader, LeaderAddress, Store};
pub use history::{
    AuditEntry, AuditQuery, EventCount, GroupEventCount, HistoryQuery, ModelPast, PastStay,
    PoolHistory, Retention, StoredAudit, StoredCandidate, StoredDecision, StoredMemory,
    StoredRecord, StoredShare, UseCount,
};
pub use keys::{
    BatchUsage, FIRST_ADMIN_KEY, KeyHash, KeyRecord, KeyText, KeyUsage, KeyUse, NEW_ADMIN_KEY,
    NewKey, RevokedKey, Role, UnsavedUsage, find_key, generate_key, hash_key, is_before,
};
pub use maintenance::{
    Backup, BackupContents, BackupError, MoveError, MovedTable, RestoreResult, back_up, move_store,
    restore,
};
pub use orders::{
    KeptRay, KeptWish, NODE_DEVICES_KEPT_MAX, NODE_TOKEN_EXPIRES_SOON, NODES_KEPT_MAX, NodeNumbers,
    NodePass, NodeToken, TokenRefusal,
};
pub use responses::{
    AddedItems, BackgroundBounds, BackgroundHead, BackgroundLimit, BackgroundResponse, ChainBounds,
    ItemPage, ItemPlace, MOST_PER_GAME, NamedConversation, NewVote, Rating, ResponseBounds, START,
    StoredItem, StoredLink, StoredResponse, VoteResult,
};
pub use sql::{DatabaseLocation, StoreError, WriteTrouble};
pub use usage::{
    Circumstances, DayUsage, GroupSum, GroupUsage, GroupUseCount, LedgerAmount, LedgerBatch,
    LedgerKey, LedgerSum, Measurement, Measurements, PoolMinute, Seconds, UsageMinute,
};
