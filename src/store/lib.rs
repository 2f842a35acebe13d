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

mod admin_key;
mod audit;
mod backup;
mod candidate;
mod connection;
mod cordons;
mod database;
mod database_location;
mod decisions;
mod dialect;
mod elo;
mod error;
mod facts;
mod file_watch;
mod history;
mod history_reads;
mod integers;
mod key_usage;
mod keys;
mod leadership;
mod measurements;
mod migration;
mod migrations;
mod nodes;
mod open;
mod open_postgres;
mod pool_history;
mod query;
mod report;
mod response_reads;
mod responses;
mod restore;
mod seconds;
mod tenure;
#[cfg(test)]
mod testing;
mod upkeep;
mod usage;
mod used_rays;
mod votes;
mod wishes;
mod write_problem;
mod writer;

pub use admin_key::{FIRST_ADMIN_KEY, NEW_ADMIN_KEY, RevokedKey};
pub use audit::{AuditEntry, AuditQuery, StoredAudit};
pub use backup::{Backup, BackupContents, BackupError, back_up};
pub use candidate::{Candidate, CandidateStatus, Leader};
pub use database::Store;
pub use database_location::DatabaseLocation;
pub use decisions::{StoredCandidate, StoredDecision};
pub use elo::{MOST_PER_GAME, START};
pub use error::StoreError;
pub use history::{Retention, StoredMemory, StoredRecord, StoredShare};
pub use history_reads::HistoryQuery;
pub use key_usage::{KeyUsage, UnsavedUsage};
pub use keys::{
    KeyHash, KeyRecord, KeyText, KeyUse, NewKey, Role, find_key, generate_key, hash_key, is_before,
};
pub use leadership::LeaderAddress;
pub use measurements::{Circumstances, Measurement, Measurements};
pub use migration::{MoveError, MovedTable, move_store};
pub use nodes::{
    NODE_DEVICES_KEPT_MAX, NODES_KEPT_MAX, NodeNumbers, NodePass, NodeToken, TokenRefusal,
};
pub use pool_history::{ModelPast, PastStay, PoolHistory};
pub use report::{EventCount, UseCount};
pub use response_reads::{ChainBounds, ItemPlace, StoredLink};
pub use responses::{ResponseBounds, StoredItem, StoredResponse};
pub use restore::{RestoreResult, restore};
pub use seconds::Seconds;
pub use usage::{DayUsage, UsageMinute};
pub use used_rays::KeptRay;
pub use votes::{NewVote, Rating, VoteResult};
pub use wishes::KeptWish;
pub use write_problem::WriteTrouble;

use integers::{from_integer, from_small, to_integer};
