//! The decision core: events in, actions out.
//!
//! The core reads no clock, draws no random numbers, does not await, lock or log, and does no I/O; `no_std` makes the compiler
//! enforce that. `controller` drives it in production and `sim` under a virtual clock: the same events produce the same actions.
//!
//! ```text
//!              observe            plan::next          commit
//!   Event ──────────────▶ facts ────────▶ Decision ────────▶ facts + Action
//!                           ▲                                  │
//!                           └────────── until no decision ─────┘
//! ```
//!
//! A request for a ready model does not come here: it takes a seat at the replica's gate. The pool reads the gates' counts
//! (`GatesRead`) and orders gates closed (`CloseGate`). Only the gate knows whether it is idle, so the gate responds (`GateClosed`,
//! `GateBusy`).

#![no_std]

#[macro_use]
extern crate alloc;

mod batch_forecast;
mod commit;
mod facts;
mod forecast;
mod observe;
mod plan;
mod preview;
mod step;
mod types;
mod view;

pub use facts::state::Pool;
pub use plan::measurement::{MeasuredPeak, peak_after_exit, peak_after_reading};
pub use plan::orders::REPLICAS_MAX;
pub use plan::prefetch::{PrefetchCandidate, ReadAheadHistory, read_ahead_budget};
pub use plan::readings::reading_interval;
pub use preview::LoadPreview;
pub use types::action::{
    Action, Answer, Evicted, GateMode, LoadResult, MemoryChange, Outcome, Record, RecordKind, Wish,
};
pub use types::autoscaling::Scaling;
pub use types::batch::{BatchDemand, BatchEnd, BatchHour, BatchOutlook, BatchWork, MissWatch};
pub use types::decision::{Candidate, NodePlan, Plan, Prospect, Verdict, Victim, blocked};
pub use types::event::{
    CleanupScope, Command, DeviceReading, Event, Exit, FetchEnd, GateReading, HostReading,
    LoadOrder, Remedy,
};
pub use types::explanation::{CONSIDERED_MAX, Considered, Explanation, Standing};
pub use types::forecast::{Forecast, ForecastErrors, WaitRange, is_precise};
pub use types::gang::GangReach;
pub use types::groups::{GROUP_DEPTH_MAX, GROUPS_MAX, Group, Groups, GroupsError, WEIGHT_MAX};
pub use types::ids::{
    Bytes, DemandId, DeviceId, GroupId, KeyId, KindId, LoaderId, ModelId, NodeId, OrderId,
    Priority, ReplicaId, ShapeId, Span, Ticket, Time,
};
pub use types::keep_alive::KeepAlive;
pub use types::key_seats::{KeySeats, ReplicaKeys, TokenTime};
pub use types::link::Link;
pub use types::meaning::{END_CAUSES, LOAD_CAUSES, REFUSAL_CAUSES, causes};
pub use types::model::{
    Cordon, IdleYields, KeepHotBounds, KeepHotScope, Layout, Limits, LoadWish, Loader, ModelSpec,
    NodeSpan, Override, OverrideChange, Parking, Tier, UNTIL_NEEDED,
};
pub use types::node_demand::{
    BatchNodes, NodeAmounts, NodeBudget, NodeOutlook, NodeRoom, NodeSet, NodeShape, NodeShapeView,
    NodeUse, NodesSpent, PendingNode,
};
pub use types::objective::Objective;
pub use types::obstacle::{Blocker, NodeAway, Obstacle, OldNode, Protection, Unfit};
pub use types::order_effect::{FirstPlacement, LoadEffect, OrderEffect};
pub use types::policy::{Part, Policy};
pub use types::rank::Cost;
pub use types::reason::{LoadReason, Refusal, StopReason};
pub use types::replica_state::ReplicaState;
pub use types::resident_adapters::{AdapterAccess, FilesFingerprint, ResidentAdapters};
pub use types::shadow_costs::ShadowCosts;
pub use types::share::Share;
pub use types::stall::StallReason;
pub use types::tokens::{ServiceClass, TokenCosts, Tokens};
pub use view::check::{Violation, check};
pub use view::holdings::{DeviceMemory, Holding};
pub use view::nodes::{NodeState, NodeView};
pub use view::pool::{
    DeviceView, HostView, ModelState, ModelView, OrderView, PoolView, ReplicaView, WaitingView,
};
