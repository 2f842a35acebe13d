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
//! The keeper writes wishes, cordons, history, measurements, remembered demand and usage, and trims old rows. Other tables have
//! other writers: a catalogue change writes its registration (`registry`), `http` writes keys and the audit, `serve` writes daily
//! token totals and the times of cleanups. The store serializes all writes.

mod actions;
mod adapter_fetch;
mod adapter_files;
mod adapter_lookups;
mod adoption;
mod allowed_devices;
mod application_adoption;
mod arrivals;
mod caller_share;
mod catalog_change;
mod changed_gates;
mod clock;
mod cluster_nodes;
mod cluster_task;
mod control;
mod dedicated_thread;
mod device_facts;
mod device_reports;
mod devices;
mod earlier_applications;
mod earlier_seats;
mod engines;
mod fetch_tasks;
mod fetches;
mod gate;
mod handle;
mod heartbeat;
mod hub_lookups;
mod hub_registration;
mod inventory_task;
mod keeper;
mod launches;
mod load_timeline;
mod measurements;
mod message;
mod model_needs;
mod models;
mod node_admission;
mod node_engines;
mod node_greeting;
mod node_link;
mod node_logs;
mod node_messages;
mod node_presence;
mod nodes;
mod orders;
mod parking;
mod parts;
mod peers;
mod programs;
mod publication;
mod read_ahead;
mod reader;
mod registry;
mod remote_device;
mod replica_adapters;
mod restore;
mod routing;
mod run;
mod seat_counts;
mod snapshot;
mod trimming;
mod unload_orders;
mod unwritten_jobs;
mod usage;
mod used_rays;
mod watch;
mod watch_task;
mod what_if;

pub use adapter_lookups::{ADAPTER_LOOKUPS_MAX, ADAPTER_MISSES_MAX, AdapterError, AdapterFound};
pub use adoption::refusal;
pub use application_adoption::{ray_places, recipe_of_application};
pub use caller_share::LookupCaller;
pub use catalog_change::{ChangeError, Registrar};
pub use clock::Clock;
pub use device_facts::facts_of;
pub use earlier_seats::EarlierSeats;
pub use fetches::FetchFacts;
pub use gate::{CutReason, CutSignal, KeepHotOverride, Lease};
pub use handle::{ControllerBusy, Handle, PendingOrder, QueueEntry, Seat};
pub use heartbeat::Heartbeat;
pub use hub_lookups::{HUB_LOOKUPS_MAX, HubRegistrationError};
pub use load_timeline::{LoadTimeline, LoadTimes};
pub use model_needs::{FirstFigures, first_figures};
pub use node_messages::NodePeer;
pub use nodes::NODES_MAX;
pub use parts::Parts;
pub use registry::log_broken;
pub use replica_adapters::{AdapterLoad, AdapterSeat, AdapterTurn, ReplicaAdapters};
pub use routing::Route;
pub use run::{CLUSTER_WITHIN, KEEPER_WITHIN, spawn};
pub use seat_counts::SeatCounts;
pub use snapshot::{
    DeviceSnapshot, LoadStage, ModelFacts, NodeFacts, NodeUse, ProcessFacts, Snapshot, Staleness,
};
pub use used_rays::open_serve_writers;
pub use watch::{Finding, LoadPath};
pub use what_if::{Assumptions, WhatIf, WhatIfReplica};
