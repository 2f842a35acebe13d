//! The production shell: one task owns the pool; everything else is a handle or a driver.
//!
//! ```text
//!  http ──seat──▶ gate of a ready replica ──▶ Lease            (never waits for the loop)
//!    │                    ▲ closes, opens, reads
//!    │ waits, orders      │
//!    └──Message──▶ inbox ─▶ Control: event → pool.step → execute ─▶ engine::run, one task a replica
//!                    ▲            │                                  keeper: the one that writes the store
//!                    └────────────┴── reports, Saved, readings ──────────────┘
//! readers: Snapshot (pool view, processes, devices) and Routes, swapped whole
//! ```
//!
//! | task      | lives            | ends                                    |
//! |-----------|------------------|-----------------------------------------|
//! | control   | with the process | when the pool has finished               |
//! | keeper    | with control     | when every job is written                |
//! | inventory | with control     | with control                             |
//! | watch     | with control     | with control                             |
//! | engine    | one per replica  | with exactly one `Exited`                |

mod adopting;
mod clock;
mod control;
mod elsewhere;
mod execute;
mod fetching;
mod gate;
mod handle;
mod inventory_task;
mod keeper;
mod launching;
mod measuring;
mod newcomers;
mod parking;
mod parts;
mod read_ahead;
mod registry;
mod restore;
mod routing;
mod snapshot;
mod trimming;
mod vital;
mod watch;
mod watch_task;

pub use adopting::{SeatsTaken, refusal};
pub use clock::Clock;
pub use control::spawn;
pub use fetching::FetchFacts;
pub use gate::{Cut, Lease};
pub use handle::{Busy, Handle, Ordered, Seat, Waiting};
pub use newcomers::{NamedBy, NewcomerError};
pub use parts::Parts;
pub use registry::ChangeError;
pub use routing::Route;
pub use snapshot::{DeviceSnapshot, LoadStage, ModelFacts, ProcessFacts, Snapshot, Stale};
pub use vital::Heartbeat;
pub use watch::{Finding, LoadPath};

// What the surfaces above need of the drivers below, so that they know the controller alone.
pub use crate::engine::{
    Endpoint, Failure, LogLine, LogStream, Remote, ReplicaLog, Stream, connect,
};
pub use crate::oidc::{Identity, Oidc, OidcError};
pub use crate::source::{Settings as SourceSettings, Sources};
pub use crate::store::{
    AuditEntry, AuditQuery, HistoryQuery, KeyRecord, KeyText, KeyUse, NewKey, Retention, Role,
    Store, StoreFault, StoredAudit, StoredRecord, find_key, generate_key, hash_key,
};
