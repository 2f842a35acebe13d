//! The production shell of the pool: one task owns the pool, and everything else is a handle, a gate or a driver.
//!
//! ```text
//!  http ──seat──▶ gate of a ready replica ──▶ Lease            (never waits for the loop)
//!    │                    ▲ closes, opens, reads
//!    │ waits, orders      │
//!    └──Message──▶ inbox ─▶ Control: event → pool.step → execute ─▶ engine::run, one task per replica
//!                    ▲            │                            └──▶ keeper: wishes, history, usage ─▶ store
//!                    └────────────┴── reports, Saved, readings ──────────────┘
//! readers: Snapshot (pool view, processes, devices) and Routes, replaced atomically
//! ```
//!
//! | task           | number                                 | ends                                          |
//! |----------------|----------------------------------------|-----------------------------------------------|
//! | control        | one, on a thread, `pool`               | when the pool has finished, or is handed over |
//! | keeper         | one                                    | when control is gone and every job is written |
//! | inventory      | one                                    | with control                                  |
//! | watch          | one                                    | with control                                  |
//! | earlier        | one, for applications of Ray Serve     | with control                                  |
//! | engine         | one per replica                        | with exactly one `Exited`                     |
//! | weights lookup | one per launch                         | when it knows whether the page cache has them |
//! | fetch          | one per download                       | with exactly one `FetchEnded`                 |
//! | fetched lookup | one per failed load of fetched weights | when it knows whether the weights are there   |
//! | park, wake     | one per order to an engine             | with one `ParkingResult`                      |
//! | change         | at most one, of the catalogue          | with one `CatalogFigures`                     |
//! | read-ahead     | at most one, a thread                  | with one `ReadAheadEnded`; a load stops it    |
//!
//! `spawn` starts control and keeper. Control owns the others and aborts them when it ends.
//!
//! The keeper writes wishes, cordons, history, measurements, remembered demand, usage and the ledger, and trims old rows. Other
//! tables have other writers: a catalogue change writes its registration (`registry`), `http` writes keys and the audit, `serve`
//! writes daily token totals and the times of cleanups. The store serializes all writes.

mod client_plans;
mod clock;
mod control;
mod engines;
mod gates;
mod handle;
mod hub_registration;
mod journal;
mod lookups;
mod memory;
mod messages;
mod nodes;
mod planned;
mod programs;
mod run;
mod tasks;
mod view;
mod what_if;

pub use clock::Clock;
pub use control::{FirstFigures, Heartbeat, NODES_MAX, Parts, first_figures};
pub use engines::{ray_places, recipe_of_application, refusal};
pub use gates::{
    AdapterLoad, AdapterSeat, AdapterTurn, BatchRoom, CutReason, CutSignal, EarlierSeats,
    FirstTokens, KeepHotOverride, Lease, ReplicaAdapters, Route, SeatCounts, SeatUser, TokenMeter,
};
pub use handle::{ControllerBusy, Handle, PendingOrder, QueueEntry, Seat};
pub use journal::open_serve_writers;
pub use lookups::{
    ADAPTER_LOOKUPS_MAX, ADAPTER_MISSES_MAX, AdapterError, AdapterFound, HUB_LOOKUPS_MAX,
    HubRegistrationError, LookupCaller,
};
pub use memory::log_broken;
pub use messages::{ChangeError, NodePeer, OrderTerms, Registrar};
pub use nodes::admission::DEVICES_PER_ADDRESS_MAX;
pub use planned::{PlannedLoad, PlannedOrder};
pub use run::{CLUSTER_WITHIN, KEEPER_WITHIN, spawn};
pub use view::{
    ComparedWaits, DeviceSnapshot, DeviceTime, FetchFacts, Finding, LoadPath, LoadStage,
    LoadTimeline, LoadTimes, MemberFacts, ModelFacts, NodeFacts, NodeUse, ProcessFacts,
    RATIO_BOUNDS, Snapshot, Staleness, facts_of, may_use, restriction, size_of,
};
pub use what_if::{Assumptions, WhatIf, WhatIfReplica};
