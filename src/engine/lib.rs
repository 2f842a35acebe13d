//! Engines: one call of [`run`] runs one engine process from launch to exit and reports its events. This crate starts, watches,
//! logs and stops engine processes. The pool decides about models, devices, stops and retries. A guardian (see `guardian`) stands
//! between the controller and each engine, and ensures that the engine outlives the controller only when it should; `adoption`
//! finds the engines of an earlier run.
//!
//! ```text
//!            ┌──────────┐ spawned  ┌─────────┐ 2xx of the health route  ┌───────┐
//!  run() ───▶│ starting │─────────▶│ loading │─────────────────────────▶│ ready │
//!            └────┬─────┘ Started  └────┬────┘ Ready                    └───┬───┘
//!                 │ fault               │ stop: KILL                        │ stop: TERM, grace, KILL
//!                 ▼                     ▼ died                              ▼ died
//!              Exited ◀──────── its guardian swept and reaped all of it ◀───┘
//! ```
//!
//! An [`EngineDriver`] starts and reads one *kind* of engine. To add a kind, add one file with a driver, one variant of
//! [`Program`], and one row in `launch/table.rs`. Remote endpoints and Ray Serve applications have no local process, and run in
//! `lifecycle/remote.rs` and `lifecycle/application.rs`.

mod connection;
mod failures;
mod guardians;
mod health;
mod launch;
mod lifecycle;
mod memory;
mod ray_serve;

pub use connection::{
    Endpoint, Fingerprint, NoFingerprint, NodePlace, RELAY_CONNECTED, RELAY_LINE_MAX, RELAY_MARK,
    RELAY_NO_ENGINE, RelayAddress, RelaySecret, Remote, Stream, WrongCertificate, connect,
    connect_pinned, connect_trusted, keep_alive, keep_alive_patiently, socket_path_problem,
    trust_authorities,
};
pub use failures::{CudaTrouble, EngineError, Failure, missing_program};
pub use guardian::Masking;
pub use guardians::{
    GuardianSettings, Guardians, LaunchFacts, LogLine, LogStream, Orphan, Record, RecordedWatch,
    ReplicaLog, Use, kill_orphans, recorded_models,
};
pub use health::{
    ActivityMeter, ActivityReport, Beat, HealthResponse, LivenessLimits, SleepBy, Stage, Watch,
    fall_asleep, probe, run_command, wake,
};
pub use launch::{
    CUDA_PROGRAM, CandleDevice, CandleProgram, CommandProgram, CudaProgram, CudaSearch,
    DeviceAddress, DeviceKind, EngineDriver, EngineLoad, ExitReport, Launch, Listen,
    PreparedCommand, Program, ReadyCuda, Report, ServerProgram, find_cuda,
};
pub use lifecycle::{
    APPLICATION_GONE_WITHIN, AdoptedApplication, AdoptedEngine, AdoptionResult, PendingQueries,
    resolve, resolve_applications, resolve_each, run, run_adopted, run_application,
};
pub use memory::{OutOfMemory, ReadAhead, ReadEnd, tier_of, weights_mark, with_children};
pub use ray_api::{KeepRays, Ledger as RayLedger, RayWrite, UsedRay};
pub use ray_serve::{Fate, ServeProgram, ServeWriters, UnadoptedEngine};
