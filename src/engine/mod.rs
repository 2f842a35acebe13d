//! Engines: one call of [`run`] runs one engine process from launch to reaped and reports what
//! happens to it. This module owns how engine processes are started, watched, logged and stopped.
//! It never chooses: which model, which devices, when to stop and whether to try again are decided
//! elsewhere, and it knows nothing of other replicas. Between us and each engine stands a guardian
//! (see `crate::guardian`), so that an engine outlives us when it should and never when it should
//! not; `adoption` finds those of an earlier run.
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
//! How one *kind* of engine is started and read is an [`EngineDriver`]: adding a kind is one file
//! with a driver, one variant of [`Program`], and one row in [`driver_of`].

mod adoption;
mod candle;
mod clean_up;
mod command;
mod endpoint;
mod environment;
mod failure;
mod fault;
mod group;
mod guard;
mod guardians;
mod health;
mod journal;
mod lack;
mod launch;
mod liveness;
mod log;
mod memory;
mod parking;
mod pulse;
mod read_ahead;
mod remote;
mod run;
mod scrape;
mod server;
mod stage;
mod talk;
mod tls;
mod weights;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

pub use crate::guardian::Masking;
pub use adoption::{Adopted, Fate, Found, Resolved, resolve};
pub use endpoint::{Endpoint, Stream, connect};
pub use failure::Failure;
pub use fault::EngineFault;
pub use group::{Orphan, kill_orphans};
pub use guardians::{GuardianSettings, Guardians, Use};
pub use health::{Answer, probe};
pub use journal::{Kept, Record};
pub use lack::Lack;
pub use launch::{
    CandleDevice, CandleProgram, CommandProgram, DeviceAddress, DeviceKind, ExitReport, Launch,
    Listen, Program, Report, ServerProgram,
};
pub use liveness::{LivenessLimits, Watch};
pub use log::{LogLine, LogStream, ReplicaLog};
pub use parking::{SleepBy, fall_asleep, wake};
pub use pulse::{Beat, Pulse};
pub use read_ahead::{ReadAhead, ReadEnd};
pub use remote::Remote;
pub use run::{run, run_adopted};
pub use scrape::EngineLoad;
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

    /// The route that tells how much of its weights are pages of mapped files, where it has one.
    fn memory_path(&self) -> Option<&'static str> {
        None
    }

    /// What a line of its output says about the load of `launch`.
    fn progress_of_line(&self, _launch: &Launch, _line: &str) -> Option<(String, Option<u8>)> {
        None
    }

    /// What its last words mean, with a line of advice, where this kind of engine knows more than
    /// all share.
    fn advice(&self, _launch: &Launch, _words: &str) -> Option<(Failure, &'static str)> {
        None
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
    /// What removes the container that the engine runs in, once its process is gone.
    pub cleanup: Option<Vec<OsString>>,
    /// What to do when there is no such program.
    pub install: Option<&'static str>,
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
            .field("cleanup", &self.cleanup.is_some())
            .finish_non_exhaustive()
    }
}

/// The table of drivers, one row for each kind of program.
fn driver_of(program: &Program) -> &'static dyn EngineDriver {
    match program {
        Program::Candle(_) => &candle::CandleDriver,
        // `run` gives an endpoint that is not started here to `remote` before it asks for a driver.
        Program::Command(_) | Program::Remote(_) => &command::CommandDriver,
        Program::Server(_) => &server::ServerDriver,
    }
}
