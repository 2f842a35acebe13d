//! The parts that `serve` starts the controller with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::heartbeat::Heartbeat;
use super::model_needs::FirstFigures;
use crate::clock::Clock;
use crate::gates::EarlierSeats;
use catalog::Catalog;
use config::LiveConfig;
use engine::{AdoptionResult, CudaProgram, Guardians, ServeWriters};
use inventory::Inventory;
use pool::{Cordon, Time};
use source::Sources;
use store::{KeptWish, Measurements, Store};

/// Everything that the controller is made of.
pub struct Parts {
    pub config: LiveConfig,
    pub catalog: Catalog,
    /// Figures of `catalog`.
    pub figures: FirstFigures,
    pub measurements: Measurements,
    pub store: Arc<Store>,
    pub wishes: Vec<KeptWish>,
    /// Cordons by the device's UUID or name.
    pub cordons: Vec<(String, Cordon)>,
    /// Numbers and names of the nodes that had joined when the last controller ended.
    pub nodes: Vec<(u32, String)>,
    /// The time up to which the ledger of each device is stored, by the machine's clock.
    pub ledger_seen: BTreeMap<String, Time>,
    /// Results of `Pool::remembered`, by model name.
    pub remembered: BTreeMap<String, Vec<u64>>,
    pub inventory: Inventory,
    /// The largest replica and order numbers of earlier runs. Numbers are never reused.
    pub last_replica: u64,
    pub last_order: u64,
    /// The start lies between the evening cleanup and the morning (E2).
    pub night: bool,
    /// Our own binary, which also contains the embedded engine.
    pub executable: PathBuf,
    /// The embedded engine for NVIDIA GPUs, as found at the start.
    pub cuda: CudaProgram,
    pub runtime_dir: PathBuf,
    pub log_dir: PathBuf,
    pub sources: Arc<Sources>,
    pub guardians: Arc<Guardians>,
    /// Writers of the models in Ray Serve.
    pub serve_writers: Arc<ServeWriters>,
    /// Engines and applications that an earlier controller left behind.
    pub found: AdoptionResult,
    /// Requests that an earlier controller still serves to their end.
    pub seats: EarlierSeats,
    pub heartbeat: Option<Heartbeat>,
    pub clock: Clock,
}

/// The loop's initial input.
pub(crate) struct Start {
    pub inventory: Inventory,
    pub cordons: Vec<(String, Cordon)>,
    pub nodes: Vec<(u32, String)>,
    pub remembered: BTreeMap<String, Vec<u64>>,
    pub wishes: Vec<KeptWish>,
    pub catalog: Catalog,
    pub figures: FirstFigures,
    pub found: AdoptionResult,
}
