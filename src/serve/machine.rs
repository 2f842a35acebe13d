//! The parts of the start that may fail while an old process still serves: devices, the schedule, the edge and the listener.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::evening;
use super::files;
use super::opening::{absolute, line, open_inventory};
use super::takeover::InheritedSocket;
use crate::cuda;
use config::{Config, OnRestart};
use controller::Clock;
use engine::{CudaProgram, GuardianSettings, Guardians};
use http::{Edge, Listener};
use inventory::Inventory;
use schedule::Evening;

/// This machine as the configuration describes it.
pub(super) struct Machine {
    pub state_dir: PathBuf,
    /// The folder of sockets. Must be the same after a restart, because guardians are found there.
    pub runtime_dir: PathBuf,
    pub inventory: Inventory,
    pub cuda: CudaProgram,
    pub evening: Evening,
    pub edge: Arc<Edge>,
}

impl Machine {
    pub async fn open(config: &Config, clock: Clock) -> Result<Machine, String> {
        let state_dir = absolute(&config.state.dir)?;
        Ok(Machine {
            runtime_dir: state_dir.join("run"),
            state_dir,
            inventory: open_inventory(config).await?,
            cuda: cuda::find(config).await?,
            evening: evening::from_config(config)?,
            edge: Arc::new(Edge::open(config, clock, files::allow_many()).map_err(line)?),
        })
    }

    pub fn guardians(&self, executable: PathBuf, config: &Config) -> Guardians {
        Guardians::new(GuardianSettings {
            executable,
            runtime_dir: self.runtime_dir.clone(),
            journal_dir: self.state_dir.join("engines"),
            keep: config.pool.on_restart == OnRestart::Adopt,
            adopt_within: Duration::from_millis(config.pool.adopt_within.0.0),
        })
    }
}

/// Takes the listener of the process that this one replaces, or opens one.
pub(super) async fn open_listener(
    config: &Config,
    inherited: Option<&InheritedSocket>,
) -> Result<Listener, String> {
    let inherited = inherited.map(|old| old.listener(&config.server.listen));
    match inherited.transpose().map_err(line)?.flatten() {
        Some(listener) => Ok(listener),
        None => Listener::bind(&config.server).await.map_err(line),
    }
}

/// The path of this program.
pub(super) fn executable() -> Result<PathBuf, String> {
    std::env::current_exe()
        .map_err(|error| format!("cannot find the program's own binary: {error}"))
}
