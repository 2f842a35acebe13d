//! The settings of a node, from its command line and configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::target::Target;
use super::weights::WeightsSettings;
use engine::CudaProgram;
use inventory::Inventory;

/// The settings of a node.
pub struct Settings {
    /// Tried in turn; a single one leads. Never empty.
    pub controllers: Vec<Target>,
    pub name: String,
    pub token: String,
    /// Address of the listener for gateways. `None` chooses a free port, on loopback if the controller is local.
    pub listen: Option<SocketAddr>,
    /// Uses plain TCP to gateways on other machines.
    pub plain: bool,
    /// Folder of sockets, the journal and logs. Absolute, and used only by this process.
    pub data: PathBuf,
    pub executable: PathBuf,
    /// The embedded engine for NVIDIA GPUs, as found at the start.
    pub cuda: CudaProgram,
    pub inventory: Arc<Inventory>,
    pub weights: WeightsSettings,
    /// Used until a controller sends its own value.
    pub orphan_after: Duration,
    pub demand: Option<u64>,
    pub version: &'static str,
}

impl Settings {
    /// Folder of the sockets of guardians, engines and takeovers.
    pub fn runtime_dir(&self) -> PathBuf {
        self.data.join("run")
    }
}
