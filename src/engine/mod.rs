//! Engines: one call of [`run`] runs one engine process from launch to reaped and reports what
//! happens to it. This module owns how engine processes are started, watched, logged and stopped.
//! It never chooses: which model, which devices, when to stop and whether to try again are decided
//! elsewhere, and it knows nothing of other replicas.
//!
//! ```text
//!            ┌──────────┐ spawned  ┌─────────┐ 2xx of the health route  ┌───────┐
//!  run() ───▶│ starting │─────────▶│ loading │─────────────────────────▶│ ready │
//!            └────┬─────┘ Started  └────┬────┘ Ready                    └───┬───┘
//!                 │ fault               │ stop: KILL                        │ stop: TERM, grace, KILL
//!                 ▼                     ▼ died: sweep                       ▼ died: sweep
//!              Exited ◀──────────── group killed, leader reaped ◀───────────┘
//! ```
//!
//! How one *kind* of engine is started and read is an [`EngineDriver`]: adding a kind is one file
//! with a driver, one variant of [`Program`], and one row in [`driver_of`].

mod candle;
mod capture;
mod command;
mod endpoint;
mod environment;
mod failure;
mod fault;
mod group;
mod health;
mod lack;
mod launch;
mod liveness;
mod log;
mod masking;
mod memory;
mod parking;
mod process;
mod pulse;
mod remote;
mod run;
mod stage;
mod tls;
mod weights;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

pub use endpoint::{Endpoint, Stream, connect};
pub use failure::{Failure, Pattern};
pub use fault::EngineFault;
pub use group::{Orphan, kill_orphans};
pub use health::{Answer, probe};
pub use lack::Lack;
pub use launch::{
    CandleDevice, CandleProgram, CommandProgram, DeviceAddress, DeviceKind, ExitReport, Launch,
    Listen, Program, Report,
};
pub use liveness::{LivenessLimits, Watch};
pub use log::{LogLine, LogStream, ReplicaLog};
pub use masking::Masking;
pub use parking::{SleepRoutes, fall_asleep, wake};
pub use pulse::{Beat, Pulse};
pub use remote::Remote;
pub use run::run;
pub use stage::Stage;
pub use weights::{tier_of, weights_mark};

/// How one kind of engine is started, and how its health answers are read. Stateless.
pub trait EngineDriver: Send + Sync {
    /// The command line and the rest that starts `launch` so that it listens on `endpoint`.
    /// Errors when the recipe cannot be turned into a command line, naming the field.
    fn prepare(&self, launch: &Launch, endpoint: &Endpoint) -> Result<Prepared, EngineFault>;

    /// What the body of a 503 health answer says about the load: a stage in a word or two, and
    /// per cent when the engine counts them. `None` when the body says nothing.
    fn progress(&self, body: &[u8]) -> Option<(String, Option<u8>)>;

    /// Words of this kind of engine that tell why it failed, beside those that all engines share.
    fn failures(&self) -> &'static [Pattern] {
        &[]
    }
}

/// A command line that is ready to run. Its `Debug` shows no argument and no value, which may be
/// secrets.
pub struct Prepared {
    /// The program and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// What the recipe adds to the environment that every engine gets.
    pub env: BTreeMap<String, String>,
    /// Where the engine runs; `None` is where the controller runs.
    pub working_dir: Option<PathBuf>,
    /// The route whose 2xx answer means ready, with its leading slash.
    pub ready_path: String,
    /// Whether the engine's standard input is a pipe whose end tells it that the controller died.
    pub lifeline: bool,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("program", &self.argv.first())
            .field("arguments", &self.argv.len().saturating_sub(1))
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("working_dir", &self.working_dir)
            .field("ready_path", &self.ready_path)
            .field("lifeline", &self.lifeline)
            .finish()
    }
}

/// The table of drivers, one row for each kind of program.
fn driver_of(program: &Program) -> &'static dyn EngineDriver {
    match program {
        Program::Candle(_) => &candle::CandleDriver,
        // `run` gives an endpoint that is not started here to `remote` before it asks for a driver.
        Program::Command(_) | Program::Remote(_) => &command::CommandDriver,
    }
}
