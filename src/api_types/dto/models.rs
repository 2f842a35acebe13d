//! Models and their replicas, combined from the catalogue and the pool.
//! One file because the views of models share their nested types.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Needs, Share, at, shares};
use super::weights::WeightsView;
use catalog::BrokenModel;
use controller::{MemberFacts, ModelFacts, Snapshot};
use pool::{Bytes, Override, ReplicaId, ReplicaState, UNTIL_NEEDED};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelList {
    pub models: Vec<ModelView>,
}

/// A model with its complete state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelView {
    #[schema(example = "tiny-chat")]
    pub model: String,
    pub aliases: Vec<String>,
    /// LoRA adapters that are configured, loaded in a replica, or recently found by name; at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Vec<String>>,
    /// `candle`, `command`, `ray_serve`, or `remote` for a server outside the pool. `unknown` for a draining model that has left
    /// the catalogue, and for a model with a broken file.
    #[schema(example = "candle")]
    pub engine: &'static str,
    /// Path of the model's file, or `registered`, or `removed`.
    #[schema(example = "config/models/tiny-chat.yaml")]
    pub source: String,
    /// `cold`, `waiting`, `loading`, `ready`, `draining`, `cooling` or `quarantined`. `broken` if the model's file is invalid and
    /// the model is not served.
    #[schema(example = "ready")]
    pub state: &'static str,
    /// Error in the model's file. Unless the state is `broken`, the last valid version is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_error: Option<String>,
    pub priority: u32,
    /// Source of the priority (P1): `override`, `file`, `reference` or `default`.
    #[schema(example = "file")]
    pub priority_from: &'static str,
    /// True from priority 2 (P4).
    pub always_hot: bool,
    /// Null: it stays until another load needs its memory.
    pub keep_hot_ms: Option<u64>,
    /// Values that an administrator has set instead of the catalogue's.
    #[serde(rename = "override")]
    pub over: Option<OverrideView>,
    /// Number of replicas requested by an administrator.
    pub wished_replicas: u32,
    pub replicas: Vec<ReplicaView>,
    /// State of the weights. Absent if the pool does not download them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsView>,
    /// Requests in the model's queue.
    pub waiting: u32,
    pub needs: Needs,
    /// False for a model in Ray Serve: Ray places it, and the pool does not see its memory. Absent for other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_truth: Option<bool>,
    /// Estimated bytes per device, without measurements. Absent if no estimate is possible.
    pub estimated_bytes_per_device: Option<u64>,
    /// Memory measured, or learned from out-of-memory errors, per kind of device (M1). Replaces `needs` on that kind.
    pub learned: Vec<LearnedView>,
    /// Durations of recent loads, by source of the weights.
    pub load_times: Vec<LoadTimeView>,
    /// Consecutive failed loads (L3).
    pub failures: u32,
    pub last_failure: Option<String>,
    pub cooling_until_at: Option<String>,
    /// Expected duration of the next load.
    pub load_ms_expected: u64,
    /// Requests that got a seat since the start.
    pub requests_total: u64,
    pub last_used_at: Option<String>,
    /// Problems with the weights, and fields without effect in a newly registered document.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Memory of replicas on one kind of device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LearnedView {
    #[schema(example = "NVIDIA H100 80GB HBM3")]
    pub kind: String,
    pub bytes_per_device: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LoadTimeView {
    /// `asleep`, `page-cache`, `disk` or `network`.
    #[schema(example = "disk")]
    pub source: &'static str,
    pub ms: u64,
}

/// An administrator's overrides. Absent fields have the catalogue's values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OverrideView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_hot_ms: Option<u64>,
    /// End of the lease and of these values. The model stays loaded during the lease (L2, P7).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// An engine instance that is running or about to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReplicaView {
    #[schema(example = "r3")]
    pub replica: String,
    /// `planned`, `launching`, `ready`, `draining` or `stopping`.
    #[schema(example = "ready")]
    pub state: &'static str,
    /// `fetching`, `starting`, `loading` or `warming`, during a load.
    #[schema(example = "loading")]
    pub stage: Option<String>,
    #[schema(maximum = 100)]
    pub percent: Option<u8>,
    /// The engine's own name for its loading stage.
    #[schema(example = "weights")]
    pub stage_words: Option<String>,
    /// Time without a change of stage or percentage during a load.
    pub without_progress_ms: Option<u64>,
    /// Expected remaining load time, based on earlier loads; 0 if overdue.
    pub expected_ms: Option<u64>,
    /// Reserved devices and bytes.
    pub devices: Vec<Share>,
    pub in_flight: u32,
    pub ready_at: Option<String>,
    /// Time at which keep-hot unloads the replica unless it receives another request.
    pub expires_at: Option<String>,
    /// End of the lease. Keep-hot does not unload a ready replica before (L2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased_until_at: Option<String>,
    /// Measured bytes on all its devices.
    pub measured_bytes: Option<u64>,
    /// Requests that the engine reports as running, and as waiting in its own queue.
    pub engine_running: Option<u32>,
    pub engine_waiting: Option<u32>,
    /// Used part of the engine's cache, as the engine reports it.
    #[schema(maximum = 1000)]
    pub engine_cache_per_mille: Option<u32>,
    pub pid: Option<u32>,
    /// The processes of a replica that spans several nodes, by rank. The first is the leader, which takes the requests (M8).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberView>,
    /// Reason for the load, or for the replica's end.
    #[schema(example = "1 waiting")]
    pub reason: String,
}

/// One process of a replica that spans several nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MemberView {
    #[schema(example = 0)]
    pub rank: u32,
    #[schema(example = "gpu-1")]
    pub node: String,
    pub pid: Option<u32>,
    /// True if it has ended or its node is gone: the others are being stopped.
    pub has_ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RemoveResponse {
    pub model: String,
    pub removed: bool,
}

impl ModelList {
    pub fn from_snapshot(snapshot: &Snapshot) -> ModelList {
        let models = snapshot
            .pool
            .models
            .iter()
            .map(|model| ModelView::new(model, snapshot));
        let mut models: Vec<ModelView> = models.collect();
        models.sort_by(|left, right| left.model.cmp(&right.model));
        ModelList { models }
    }

    /// Adds the models with broken files. `served_by` returns the model that serves a name.
    pub fn with_broken(
        mut self,
        broken: &[BrokenModel],
        served_by: &dyn Fn(&str) -> Option<String>,
    ) -> ModelList {
        for broken in broken {
            if !broken.serves_last_good {
                self.models.push(ModelView::of_broken(broken));
                continue;
            }
            let name = served_by(&broken.name);
            let mut models = self.models.iter_mut();
            if let Some(served) = models.find(|model| Some(&model.model) == name.as_ref()) {
                served.file_error = Some(broken.error.clone());
            }
        }
        self.models
            .sort_by(|one, other| one.model.cmp(&other.model));
        self
    }
}

/// The model with this name. Aliases are not resolved.
pub fn find(snapshot: &Arc<Snapshot>, name: &str) -> Option<ModelView> {
    snapshot
        .model(name)
        .map(|model| ModelView::new(model, snapshot))
}

impl ModelView {
    /// A model whose file is invalid, with only its name and the error.
    pub fn of_broken(broken: &BrokenModel) -> ModelView {
        ModelView {
            model: broken.name.clone(),
            aliases: Vec::new(),
            adapters: None,
            engine: "unknown",
            source: broken.source.to_string(),
            state: "broken",
            file_error: Some(broken.error.clone()),
            priority: 0,
            priority_from: "default",
            always_hot: false,
            keep_hot_ms: Some(0),
            over: None,
            wished_replicas: 0,
            replicas: Vec::new(),
            weights: None,
            waiting: 0,
            needs: Needs::new(0, 0, None),
            memory_truth: None,
            estimated_bytes_per_device: None,
            learned: Vec::new(),
            load_times: Vec::new(),
            failures: 0,
            last_failure: None,
            cooling_until_at: None,
            load_ms_expected: 0,
            requests_total: 0,
            last_used_at: None,
            warnings: Vec::new(),
        }
    }

    pub fn new(model: &pool::ModelView, snapshot: &Snapshot) -> ModelView {
        let facts = snapshot.models.get(&model.model);
        let entry = facts.map(|facts| &facts.entry);
        let from = |facts: &ModelFacts| match model.over.priority {
            Some(_) => "override",
            None => facts.entry.priority_from.name(),
        };
        ModelView {
            model: model.name.clone(),
            aliases: entry.map(|entry| entry.aliases.clone()).unwrap_or_default(),
            adapters: None,
            engine: entry.map_or("unknown", |entry| entry.recipe.engine()),
            source: entry.map_or_else(|| "removed".to_owned(), |entry| entry.source.to_string()),
            state: model.state.name(),
            file_error: None,
            priority: model.priority.0,
            priority_from: facts.map_or("default", from),
            always_hot: model.protected,
            keep_hot_ms: (model.keep_hot != UNTIL_NEEDED).then_some(model.keep_hot.0),
            over: OverrideView::new(&model.over),
            wished_replicas: model.wish.as_ref().map_or(0, |wish| wish.replicas),
            replicas: model
                .replicas
                .iter()
                .map(|replica| ReplicaView::new(replica, model, snapshot))
                .collect(),
            weights: WeightsView::new(model, facts, snapshot),
            waiting: model.waiting,
            needs: Needs::new(model.devices_per_replica, model.bytes_per_device.0, facts),
            memory_truth: entry
                .and_then(|entry| entry.recipe.ray_serve())
                .map(|_| false),
            estimated_bytes_per_device: facts
                .map(|facts| facts.estimated.0)
                .filter(|bytes| *bytes > 0),
            learned: model
                .learned
                .iter()
                .map(|&(kind, bytes)| LearnedView {
                    kind: snapshot.kind_name(kind),
                    bytes_per_device: bytes.0,
                })
                .collect(),
            load_times: model
                .load_times
                .iter()
                .map(|&(tier, took)| LoadTimeView {
                    source: tier.name(),
                    ms: took.0,
                })
                .collect(),
            failures: model.failures,
            last_failure: model.last_failure.clone(),
            cooling_until_at: model.cooling_until.map(at),
            load_ms_expected: model.reload.0,
            requests_total: model.seated,
            last_used_at: model.last_used.map(at),
            warnings: model.damage.clone().into_iter().collect(),
        }
    }
}

impl OverrideView {
    fn new(over: &Override) -> Option<OverrideView> {
        (!over.is_empty()).then(|| OverrideView {
            priority: over.priority.map(|priority| priority.0),
            keep_hot_ms: over.keep_hot.map(|keep_hot| keep_hot.0),
            expires_at: over.expires.map(at),
        })
    }
}

impl ReplicaView {
    fn new(
        replica: &pool::ReplicaView,
        model: &pool::ModelView,
        snapshot: &Snapshot,
    ) -> ReplicaView {
        let lease = model.over.expires;
        let process = snapshot.processes.get(&replica.replica);
        let stage = process.and_then(|process| process.stage.as_ref());
        let loading = replica.state == ReplicaState::Launching;
        let load = process.map(|process| process.load).unwrap_or_default();
        ReplicaView {
            replica: replica.replica.to_string(),
            state: replica.state.name(),
            stage: stage.map(|stage| stage.stage.to_string()),
            percent: stage.and_then(|stage| stage.percent),
            stage_words: stage.and_then(|stage| stage.engine_text.clone()),
            without_progress_ms: stage.map(|stage| snapshot.pool.now.since(stage.since).0),
            expected_ms: loading.then(|| model.reload.0.saturating_sub(replica.for_.0)),
            devices: shares(snapshot, &replica.shares),
            in_flight: replica.in_flight,
            ready_at: replica.ready_at.map(at),
            expires_at: replica.expires.map(at),
            leased_until_at: lease
                .filter(|_| replica.state == ReplicaState::Ready)
                .map(at),
            measured_bytes: measured(replica.replica, &replica.shares, snapshot)
                .map(|bytes| bytes.0),
            engine_running: load.running,
            engine_waiting: load.waiting,
            engine_cache_per_mille: load.cache_per_mille,
            pid: process.and_then(|process| process.pid),
            members: process
                .map(|process| MemberView::all(&process.members))
                .unwrap_or_default(),
            reason: replica.reason.clone(),
        }
    }
}

impl MemberView {
    fn all(members: &[MemberFacts]) -> Vec<MemberView> {
        let view = |(rank, member): (u32, &MemberFacts)| MemberView {
            rank,
            node: member.node_name.clone(),
            pid: member.pid,
            has_ended: member.has_ended,
        };
        (0..).zip(members).map(view).collect()
    }
}

/// Measured bytes of a replica: from the driver on GPUs, and from the engine's processes on the host.
pub fn measured(replica: ReplicaId, shares: &[pool::Share], snapshot: &Snapshot) -> Option<Bytes> {
    let process = snapshot.processes.get(&replica)?;
    if !snapshot.provider.measures_devices() {
        return process.memory;
    }
    let on_device = |share: &pool::Share| {
        let used = snapshot.devices.get(&share.device)?.used.as_ref()?;
        let holders = snapshot
            .pool
            .models
            .iter()
            .flat_map(|model| &model.replicas);
        let holds = |replica: &&pool::ReplicaView| {
            replica.state != ReplicaState::Planned
                && replica
                    .shares
                    .iter()
                    .any(|held| held.device == share.device)
        };
        if holders.filter(holds).count() == 1 {
            return Some(used.own);
        }
        // On a shared GPU, memory held by child processes cannot be attributed to an engine.
        let pid = process.pid?;
        used.processes
            .iter()
            .find(|(id, _)| *id == pid)
            .map(|(_, bytes)| *bytes)
    };
    shares.iter().map(on_device).sum()
}
