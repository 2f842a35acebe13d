//! The decision core: events in, actions out.
//!
//! Nothing here reads a clock, draws a random number, awaits, locks, logs or does I/O: without the standard
//! library the compiler holds that. Two callers
//! drive it with the same events and get the same actions: `controller` in production and `sim` under
//! a virtual clock.
//!
//! ```text
//!              observe            plan::next          commit
//!   Event ──────────────▶ facts ────────▶ Decision ────────▶ facts + Action
//!                           ▲                                  │
//!                           └────────── until no decision ─────┘
//! ```
//!
//! A request for a model that is ready never comes here: it takes a seat at the replica's gate. The
//! pool reads what the gates counted (`GatesRead`) and has them closed (`CloseGate`): the gate alone
//! knows whether it is idle, so the gate answers (`GateClosed`, `GateBusy`).

#![no_std]

#[macro_use]
extern crate alloc;

mod action;
mod adopt;
mod agenda;
mod ask;
mod cheapest;
mod check;
mod commit;
mod decision;
mod demand;
mod demand_index;
mod device;
mod devices;
mod event;
mod exits;
mod fetching;
mod gates;
mod group;
mod host;
mod ids;
mod keep_hot;
mod load_planning;
mod load_times;
mod loads;
mod model;
mod observe;
mod obstacles;
mod order_intake;
mod order_start;
mod orders;
mod parking;
mod place;
mod plan;
mod prefetch;
mod queue;
mod rank;
mod reason;
mod record;
mod refusals;
mod remembered;
mod replica;
mod scaling;
mod sleep;
mod state;
mod tries;
mod victims;
mod view;
mod wishes;

pub use action::{
    Action, Answer, Evicted, GateMode, LoadResult, MemoryChange, Outcome, Record, RecordKind,
    Share, Wish,
};
pub use check::{Violation, check};
pub use decision::{Candidate, Plan, Prospect, Verdict, Victim};
pub use event::{
    CleanupScope, Command, DeviceReading, Event, Exit, FetchEnd, GateReading, HostReading, Link,
    LoadOrder, Remedy,
};
pub use ids::{
    Bytes, DeviceId, KeyId, KindId, LoaderId, ModelId, NodeId, OrderId, Priority, ReplicaId, Span,
    Ticket, Time,
};
pub use model::{
    Cordon, KeepHotBounds, Layout, Limits, LoadWish, Loader, ModelSpec, Override, OverrideChange,
    Parking, Tier,
};
pub use orders::REPLICAS_MAX;
pub use prefetch::PrefetchCandidate;
pub use rank::Cost;
pub use reason::{Blocker, LoadReason, Obstacle, Protection, Refusal, StopReason, Unfit};
pub use scaling::Scaling;
pub use state::Pool;
pub use view::{
    DeviceView, HostView, ModelState, ModelView, OrderView, PoolView, ReplicaState, ReplicaView,
    WaitingView,
};
