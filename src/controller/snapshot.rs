//! What readers see: one consistent snapshot, replaced as a whole. Reading it never touches the loop, and never loads,
//! wakes or keeps a model (L2).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::fetches::FetchFacts;
use super::remote_device::{REMOTE_DEVICE, REMOTE_DEVICE_NAME};
use catalog::{Entry, WeightsListing};
use config::Provider;
use engine::{ActivityMeter, EngineLoad, ReplicaLog, Stage};
use inventory::{DeviceInfo, DeviceUse};
use pool::{Bytes, DeviceId, KindId, ModelId, ModelView, NodeId, PoolView, ReplicaId, Span, Time};

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub pool: PoolView,
    pub models: Arc<BTreeMap<ModelId, ModelFacts>>,
    pub processes: BTreeMap<ReplicaId, ProcessFacts>,
    pub fetches: BTreeMap<ModelId, FetchFacts>,
    /// The last logs of each model, oldest first; engines that are gone included.
    pub logs: BTreeMap<ModelId, Vec<(ReplicaId, Arc<ReplicaLog>)>>,
    pub devices: Arc<BTreeMap<DeviceId, DeviceSnapshot>>,
    pub provider: Provider,
    /// Nodes that have joined, and are not gone.
    pub nodes: BTreeMap<NodeId, NodeFacts>,
    /// What is on each node that has any of it.
    pub on_nodes: BTreeMap<NodeId, OnNode>,
    /// Engines run on the controller's machine alone.
    pub runs_alone: bool,
    /// Devices that measure the same, by what they call themselves.
    pub kinds: BTreeMap<String, KindId>,
}

/// What the catalogue knows of a model, beside what the pool knows.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    pub entry: Arc<Entry>,
    /// `file`, `measured`, `estimate`, `unfetched` or `unseen`.
    pub need_source: &'static str,
    /// What each device was estimated to need, without any measurement; 0: nothing tells.
    pub estimated: Bytes,
    /// Which weights the estimate is of, where there are files.
    pub weights: Option<u64>,
    /// Of the files that it was figured from.
    pub files_mark: u64,
    /// The pool counts its engine's program as missing.
    pub lacks_program: bool,
    /// What the pool has fetched for it, if that is complete.
    pub listing: Option<Arc<WeightsListing>>,
}

impl ModelFacts {
    /// What measurements belong to: the way the engine is started, and the weights.
    pub fn arguments(&self) -> String {
        measured_as(&self.entry, self.weights)
    }
}

/// The same for an entry with these weights.
pub(super) fn measured_as(entry: &Entry, weights: Option<u64>) -> String {
    match weights {
        Some(weights) => format!("{} {weights:016x}", entry.arguments()),
        None => entry.arguments(),
    }
}

/// What is known of one engine process.
#[derive(Clone, Debug)]
pub struct ProcessFacts {
    pub pid: Option<u32>,
    /// The process that leads its container, where it runs in one.
    pub contained: Option<u32>,
    /// While it loads.
    pub stage: Option<LoadStage>,
    /// The process tree's own host memory.
    pub memory: Option<Bytes>,
    pub peak: Option<Bytes>,
    /// The most it was measured to hold on one of its devices.
    pub device_peak: Option<Bytes>,
    pub devices: Vec<DeviceId>,
    /// What it says of its own load.
    pub load: EngineLoad,
    /// How long it took to load.
    pub took: Option<Span>,
    /// What it was started with, in short: measurements belong to that.
    pub arguments: String,
    pub ready: bool,
    /// What its requests show of it, shared with its gate and with the tasks that watch it.
    pub activity: Arc<ActivityMeter>,
    /// Since when it is dead and does not end.
    pub dead: Option<Time>,
    pub log: Arc<ReplicaLog>,
    pub model: ModelId,
    /// Where it runs.
    pub node: NodeId,
}

/// What is known of a node, beside what the pool knows.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub name: String,
    pub version: String,
    /// Where its connection comes from.
    pub address: SocketAddr,
    /// Where requests for its engines go.
    pub relay: SocketAddr,
    pub is_encrypted: bool,
    pub joined_at: Time,
    pub is_leaving: bool,
}

/// What the connection of a node looks at several times a second: found once for a snapshot, and not by each of a thousand
/// connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnNode {
    pub replicas: Vec<ReplicaId>,
    /// Memory of ended processes is awaited on one of its devices (M4).
    pub settles: bool,
}

impl OnNode {
    pub(super) fn all(
        pool: &PoolView,
        processes: &BTreeMap<ReplicaId, ProcessFacts>,
    ) -> BTreeMap<NodeId, OnNode> {
        let mut all: BTreeMap<NodeId, OnNode> = BTreeMap::new();
        for (&replica, process) in processes {
            all.entry(process.node).or_default().replicas.push(replica);
        }
        for device in pool.devices.iter().filter(|it| it.settling > Bytes::ZERO) {
            all.entry(device.node).or_default().settles = true;
        }
        all
    }
}

/// How far a load has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadStage {
    pub stage: Stage,
    /// Where the engine counts.
    pub percent: Option<u8>,
    /// What the engine itself calls it, if it says.
    pub engine_text: Option<String>,
    /// Since when nothing of it has changed.
    pub since: Time,
}

impl fmt::Display for LoadStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)?;
        if let Some(percent) = self.percent {
            write!(f, " {percent} %")?;
        }
        match &self.engine_text {
            Some(words) => write!(f, " ({words})"),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug)]
pub struct DeviceSnapshot {
    /// Shared: a snapshot is cloned for each picture that readers get, and there may be thousands of devices.
    pub info: Arc<DeviceInfo>,
    pub used: Option<DeviceUse>,
    /// When the last figures were taken.
    pub read_at: Option<Time>,
    /// It cannot be read, and what is shown is old.
    pub stale: Option<Stale>,
    /// What replicas were measured to hold.
    pub own: BTreeMap<ReplicaId, Bytes>,
}

impl DeviceSnapshot {
    pub(super) fn unread(info: DeviceInfo) -> DeviceSnapshot {
        DeviceSnapshot {
            info: Arc::new(info),
            used: None,
            read_at: None,
            stale: None,
            own: BTreeMap::new(),
        }
    }
}

/// Why figures are old, and how old they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    pub since: Time,
    pub why: String,
}

impl Snapshot {
    pub fn model(&self, name: &str) -> Option<&ModelView> {
        self.pool.models.iter().find(|model| model.name == name)
    }

    /// The replicas that have a process on the node, or will have one.
    pub fn replicas_on(&self, node: NodeId) -> &[ReplicaId] {
        let on = self.on_nodes.get(&node);
        on.map(|it| it.replicas.as_slice()).unwrap_or_default()
    }

    pub fn kind_name(&self, kind: KindId) -> String {
        let named = self.kinds.iter().find(|(_, known)| **known == kind);
        named.map_or_else(|| kind.to_string(), |(name, _)| name.clone())
    }

    pub fn device_name(&self, device: DeviceId) -> String {
        match self.devices.get(&device) {
            Some(known) => known.info.name.clone(),
            None if device == REMOTE_DEVICE => REMOTE_DEVICE_NAME.to_owned(),
            None => device.to_string(),
        }
    }
}
