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
//! [`Program`], and one row in [`driver_of`]. Remote endpoints and Ray Serve applications have no local process, and run in
//! `remote_run` and `ray_serve`.

mod activity;
mod adoption;
mod candle;
mod certificate_pin;
mod command;
mod container;
mod cuda_probe;
mod cuda_program;
mod cuda_trouble;
mod driver;
mod drivers;
mod endpoint;
mod environment;
mod error;
mod explain;
mod failure;
mod group;
mod guard;
mod guardian_link;
mod guardians;
mod health;
mod journal;
mod launch;
mod liveness;
mod log;
mod memory;
mod missing_program;
mod node_place;
mod oom;
mod parking;
mod path_watch;
mod proxy;
mod ray_serve;
mod ray_serve_adoption;
mod ray_serve_application;
mod ray_serve_end;
mod ray_serve_pending;
mod ray_serve_program;
mod ray_serve_queries;
mod ray_serve_silence;
#[cfg(test)]
mod ray_serve_testing;
mod read_ahead;
mod remote;
mod remote_run;
mod reserved_endpoint;
mod run;
mod scrape;
mod serial;
mod server;
mod sessions;
mod short_paths;
mod stage;
mod stream;
mod tls;
mod unadopted_engine;
mod weights;

pub use activity::{ActivityMeter, ActivityReport, Beat};
pub use adoption::{AdoptedEngine, AdoptionResult, resolve};
pub use certificate_pin::{
    Fingerprint, NoFingerprint, WrongCertificate, connect as connect_pinned,
};
pub use cuda_probe::{CudaSearch, find_cuda};
pub use cuda_program::{CUDA_PROGRAM, CudaProgram, ReadyCuda};
pub use cuda_trouble::CudaTrouble;
pub use driver::{EngineDriver, PreparedCommand};
pub use endpoint::{Endpoint, connect};
pub use error::EngineError;
pub use failure::Failure;
pub use group::{Orphan, kill_orphans};
pub use guardian::Masking;
pub use guardians::{GuardianSettings, Guardians, Use};
pub use health::{HealthResponse, probe};
pub use journal::{LaunchFacts, Record, recorded_models};
pub use launch::{
    CandleDevice, CandleProgram, CommandProgram, DeviceAddress, DeviceKind, ExitReport, Launch,
    Listen, Program, Report, ServerProgram,
};
pub use liveness::{LivenessLimits, Watch};
pub use log::{LogLine, LogStream, ReplicaLog};
pub use missing_program::missing_program;
pub use node_place::{
    NodePlace, RELAY_CONNECTED, RELAY_LINE_MAX, RELAY_MARK, RELAY_NO_ENGINE, RelayAddress,
    RelaySecret,
};
pub use oom::OutOfMemory;
pub use parking::{SleepBy, fall_asleep, run as run_command, wake};
pub use path_watch::{keep_alive, keep_alive_patiently};
pub use ray_api::{KeepRays, Ledger as RayLedger, RayWrite, UsedRay};
pub use ray_serve::run_application;
pub use ray_serve_adoption::{AdoptedApplication, resolve_applications};
pub use ray_serve_end::GONE_MAX as APPLICATION_GONE_WITHIN;
pub use ray_serve_program::{ServeProgram, ServeWriters};
pub use ray_serve_queries::PendingQueries;
pub use read_ahead::{ReadAhead, ReadEnd};
pub use remote::Remote;
pub use run::{run, run_adopted};
pub use scrape::EngineLoad;
pub use sessions::with_children;
pub use short_paths::socket_path_problem;
pub use stage::Stage;
pub use stream::{LocalSocket, Stream};
pub use tls::connect_trusted;
pub use unadopted_engine::{Fate, UnadoptedEngine};
pub use weights::{tier_of, weights_mark};

use drivers::driver_of;
