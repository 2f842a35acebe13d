//! The state that readers see: one consistent snapshot, replaced atomically. Reading it never touches the loop, and never loads,
//! wakes or keeps a model (L2).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::fetches::FetchFacts;
use super::remote_device::{REMOTE_DEVICE, REMOTE_DEVICE_NAME};
use catalog::{Entry, MemorySplit, WeightsListing};
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
    /// The last logs of each model, oldest first. Engines that have ended are included.
    pub logs: BTreeMap<ModelId, Vec<(ReplicaId, Arc<ReplicaLog>)>>,
    pub devices: Arc<BTreeMap<DeviceId, DeviceSnapshot>>,
    pub provider: Provider,
    /// The time of each device by state since the start, as last written to the ledger.
    pub device_time: Arc<BTreeMap<(String, &'static str), DeviceTime>>,
    /// Nodes that have joined and have not left.
    pub nodes: BTreeMap<NodeId, NodeFacts>,
    /// Replicas and pending memory of each node that has any.
    pub on_nodes: BTreeMap<NodeId, NodeUse>,
    /// Engines run only on the controller's machine.
    pub runs_alone: bool,
    /// Kinds of devices whose measurements are comparable, by product name.
    pub kinds: BTreeMap<String, KindId>,
}

/// The time of a device in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTime {
    pub ms: u64,
    /// The energy while it is known, in millijoules, and the time for which it is.
    pub energy_mj: u64,
    pub energy_ms: u64,
}

/// Facts of a model from the catalogue, in addition to the pool's.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    pub entry: Arc<Entry>,
    /// `file`, `measured`, `estimate`, `unfetched` or `unseen`.
    pub need_source: &'static str,
    /// Estimated need per device, without any measurement; 0 if unknown.
    pub estimated: Bytes,
    /// The estimate by place, for engines that divide a model between GPUs and host memory.
    pub split: Option<MemorySplit>,
    /// Identifies the weights that the estimate is based on, if there are files.
    pub weights: Option<u64>,
    /// Fingerprint of the files that the figures were computed from.
    pub files_mark: u64,
    /// The pool counts the engine's program as missing.
    pub lacks_program: bool,
    /// The files that the pool has fetched for the model, if complete.
    pub listing: Option<Arc<WeightsListing>>,
}

impl ModelFacts {
    /// The key of measurements: the way the engine is started, and the weights.
    pub fn arguments(&self) -> String {
        measured_as(&self.entry, self.weights)
    }
}

/// The key of measurements for an entry with these weights.
pub(crate) fn measured_as(entry: &Entry, weights: Option<u64>) -> String {
    match weights {
        Some(weights) => format!("{} {weights:016x}", entry.arguments()),
        None => entry.arguments(),
    }
}

/// Facts of one engine process.
#[derive(Clone, Debug)]
pub struct ProcessFacts {
    pub pid: Option<u32>,
    /// The process that leads its container, if it runs in one.
    pub contained: Option<u32>,
    /// The stage of a load; `None` after it.
    pub stage: Option<LoadStage>,
    /// Host memory of the process tree.
    pub memory: Option<Bytes>,
    pub peak: Option<Bytes>,
    /// Largest memory measured on any of its devices.
    pub device_peak: Option<Bytes>,
    pub devices: Vec<DeviceId>,
    /// Load that the engine itself reports.
    pub load: EngineLoad,
    /// Time that the engine took to load.
    pub took: Option<Span>,
    /// Key of its measurements: a short form of the arguments it was started with.
    pub arguments: String,
    pub ready: bool,
    /// Activity of its requests, shared with its gate and with the tasks that watch it.
    pub activity: Arc<ActivityMeter>,
    /// Time at which it was found dead, if it does not end.
    pub dead: Option<Time>,
    pub log: Arc<ReplicaLog>,
    pub model: ModelId,
    /// The node it runs on; that of its leader if it spans several.
    pub node: NodeId,
    /// The processes of a replica that spans several nodes, by rank; empty for other replicas (M8).
    pub members: Vec<MemberFacts>,
}

impl ProcessFacts {
    /// The nodes on which it has a process.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let members = self.members.iter();
        let of_members = members
            .filter(|member| !member.has_ended)
            .map(|member| member.node);
        let single = self.members.is_empty().then_some(self.node);
        single.into_iter().chain(of_members)
    }

    pub fn is_on(&self, node: NodeId) -> bool {
        self.nodes().any(|on| on == node)
    }
}

/// One process of a replica that spans several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    pub node: NodeId,
    pub node_name: String,
    pub pid: Option<u32>,
    /// Its engine has ended, or its node is gone.
    pub has_ended: bool,
}

/// Facts of a node, in addition to the pool's.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub name: String,
    pub version: String,
    /// Address that the node connected from.
    pub address: SocketAddr,
    /// Address that requests for its engines are sent to.
    pub relay: SocketAddr,
    pub is_encrypted: bool,
    pub joined_at: Time,
    pub is_leaving: bool,
}

/// Data that a node's connection reads several times a second. Computed once per snapshot, and not by each of a thousand
/// connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUse {
    pub replicas: Vec<ReplicaId>,
    /// Memory of ended processes is still awaited on a device of the node (M4).
    pub settles: bool,
}

impl NodeUse {
    pub(crate) fn all(
        pool: &PoolView,
        processes: &BTreeMap<ReplicaId, ProcessFacts>,
    ) -> BTreeMap<NodeId, NodeUse> {
        let mut all: BTreeMap<NodeId, NodeUse> = BTreeMap::new();
        for (&replica, process) in processes {
            for node in process.nodes() {
                all.entry(node).or_default().replicas.push(replica);
            }
        }
        for device in pool
            .devices
            .iter()
            .filter(|device| device.settling > Bytes::ZERO)
        {
            all.entry(device.node).or_default().settles = true;
        }
        all
    }
}

/// Progress of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadStage {
    pub stage: Stage,
    /// `None` if the engine reports no progress.
    pub percent: Option<u8>,
    /// The engine's own name of the stage.
    pub engine_text: Option<String>,
    /// Time of the last change.
    pub since: Time,
}

impl LoadStage {
    pub(crate) fn new(
        stage: Stage,
        percent: Option<u8>,
        engine_text: Option<String>,
        since: Time,
    ) -> LoadStage {
        LoadStage {
            stage,
            percent,
            // The engine's own text may repeat the stage.
            engine_text: engine_text.filter(|engine_text| *engine_text != stage.to_string()),
            since,
        }
    }
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
    /// Shared: a snapshot is cloned for each state that readers get, and may hold thousands of devices.
    pub info: Arc<DeviceInfo>,
    pub used: Option<DeviceUse>,
    /// Time of the last figures.
    pub read_at: Option<Time>,
    /// Set if the device cannot be read and its figures are old.
    pub stale: Option<Staleness>,
    /// Memory measured for each replica.
    pub own: BTreeMap<ReplicaId, Bytes>,
}

impl DeviceSnapshot {
    pub(crate) fn unread(info: DeviceInfo) -> DeviceSnapshot {
        DeviceSnapshot {
            info: Arc::new(info),
            used: None,
            read_at: None,
            stale: None,
            own: BTreeMap::new(),
        }
    }
}

/// The reason figures are old, and their age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staleness {
    pub since: Time,
    pub why: String,
}

impl Snapshot {
    pub fn model(&self, name: &str) -> Option<&ModelView> {
        self.pool.models.iter().find(|model| model.name == name)
    }

    /// The replicas that have a process on the node, or are about to.
    pub fn replicas_on(&self, node: NodeId) -> &[ReplicaId] {
        let on = self.on_nodes.get(&node);
        on.map(|on_node| on_node.replicas.as_slice())
            .unwrap_or_default()
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
