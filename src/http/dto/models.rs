//! Models and their replicas, as the catalogue and the pool know them together.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Needs, Share, at, shares};
use super::weights::WeightsView;
use catalog::BrokenModel;
use config::Provider;
use controller::{ModelFacts, Snapshot};
use pool::{Bytes, Override, Priority, ReplicaId, ReplicaState, Span};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelList {
    pub models: Vec<ModelView>,
}

/// A model with everything that is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelView {
    #[schema(example = "tiny-chat")]
    pub model: String,
    pub aliases: Vec<String>,
    /// LoRA adapters that are written down, that a replica has, or that were found lately by their names; at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Vec<String>>,
    /// `candle`, `command`, `ray_serve`, or `remote`, a server that is not the pool's; `unknown` for a model that has left the catalogue and still drains,
    /// and for one whose file is broken.
    #[schema(example = "candle")]
    pub engine: &'static str,
    /// The model's file, or `registered`, or `removed`.
    #[schema(example = "config/models/tiny-chat.yaml")]
    pub source: String,
    /// `cold`, `waiting`, `loading`, `ready`, `draining`, `cooling` or `quarantined`; `broken` if its file cannot be used
    /// and it is not served.
    #[schema(example = "ready")]
    pub state: &'static str,
    /// What is wrong with the model's file. Unless the state is `broken`, its last good version is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_error: Option<String>,
    pub priority: u32,
    /// Where the priority comes from (P1): `override`, `file`, `reference` or `default`.
    #[schema(example = "file")]
    pub priority_from: &'static str,
    /// Priority 2 and above (P4).
    pub always_hot: bool,
    pub keep_hot_ms: u64,
    /// What an administrator has set instead of the catalogue.
    #[serde(rename = "override")]
    pub over: Option<OverrideView>,
    /// Replicas that an administrator's load asks for.
    pub wished_replicas: u32,
    pub replicas: Vec<ReplicaView>,
    /// Absent for a model whose weights the pool does not fetch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsView>,
    /// Requests in its queue.
    pub waiting: u32,
    pub needs: Needs,
    /// False for a model in Ray Serve: Ray places it, and the pool does not see its memory. Absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_truth: Option<bool>,
    /// What was estimated for each device, without any measurement; absent where nothing tells.
    pub estimated_bytes_per_device: Option<u64>,
    /// What was measured, or learned from a lack, per kind of device (M1). It counts there instead of
    /// `needs`.
    pub learned: Vec<LearnedView>,
    /// How long loads took, by where the weights came from.
    pub load_times: Vec<LoadTimeView>,
    /// Failed loads in a row (L3).
    pub failures: u32,
    pub last_failure: Option<String>,
    pub cooling_until_at: Option<String>,
    /// How long the next load is expected to take.
    pub load_ms_expected: u64,
    /// Requests that ever got a seat since the start.
    pub requests_total: u64,
    pub last_used_at: Option<String>,
    /// What is wrong with its weights, and what in a document that was just registered has no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What replicas take on one kind of device.
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

/// What is absent is as the catalogue says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OverrideView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_hot_ms: Option<u64>,
    /// End of the lease and of these values. The model stays loaded for the duration of the lease (L2, P7).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// One engine instance, or one that is about to be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReplicaView {
    #[schema(example = "r3")]
    pub replica: String,
    /// `planned`, `launching`, `ready`, `draining` or `stopping`.
    #[schema(example = "ready")]
    pub state: &'static str,
    /// `fetching`, `starting`, `loading` or `warming`, while it loads.
    #[schema(example = "loading")]
    pub stage: Option<String>,
    #[schema(maximum = 100)]
    pub percent: Option<u8>,
    /// What the loading engine itself calls what it does.
    #[schema(example = "weights")]
    pub stage_words: Option<String>,
    /// For how long neither stage nor per cent of a load have changed.
    pub without_progress_ms: Option<u64>,
    /// How much longer the load is expected to take, by its last ones; 0: it is overdue.
    pub expected_ms: Option<u64>,
    /// What it reserves.
    pub devices: Vec<Share>,
    pub in_flight: u32,
    pub ready_at: Option<String>,
    /// When keep-hot would unload it, if there is no request until then.
    pub expires_at: Option<String>,
    /// Until then a lease keeps it: it is ready, and keep-hot does not unload it (L2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased_until_at: Option<String>,
    /// What it really holds, on all its devices together.
    pub measured_bytes: Option<u64>,
    /// Requests that the engine itself says it computes, and that wait inside it.
    pub engine_running: Option<u32>,
    pub engine_waiting: Option<u32>,
    /// The part of the engine's cache that is in use, as it says itself.
    #[schema(maximum = 1000)]
    pub engine_cache_per_mille: Option<u32>,
    pub pid: Option<u32>,
    /// Why it was loaded, or why it leaves.
    #[schema(example = "1 waiting")]
    pub reason: String,
}

/// What changing a model takes: absent keeps, null clears.
#[derive(Clone, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(min_properties = 1, example = json!({"priority": 2, "lease": "2h"}))]
pub struct ModelPatch {
    /// 0 to 1000000; null: as the catalogue says.
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 1_000_000)]
    pub priority: Option<Option<Priority>>,
    /// `1s` to `365d`; null: as the catalogue says.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "10m")]
    pub keep_hot: Option<Option<Span>>,
    /// When the override ends, `1s` to `365d` from now; null: never by itself.
    #[schema(value_type = Option<String>, pattern = "^([1-9][0-9]{0,2}(s|m|h)|([1-9][0-9]?|[12][0-9]{2})d)( [1-9][0-9]?(s|m|h)){0,2}$", example = "2h")]
    pub lease: Option<Option<Span>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RemoveAnswer {
    pub model: String,
    pub removed: bool,
}

impl ModelList {
    pub fn of(snapshot: &Snapshot) -> ModelList {
        let models = snapshot
            .pool
            .models
            .iter()
            .map(|model| ModelView::of(model, snapshot));
        let mut models: Vec<ModelView> = models.collect();
        models.sort_by(|left, right| left.model.cmp(&right.model));
        ModelList { models }
    }

    /// With the models whose files are broken. `served_by` tells the model that serves a name.
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
            if let Some(served) = models.find(|it| Some(&it.model) == name.as_ref()) {
                served.file_error = Some(broken.error.clone());
            }
        }
        self.models
            .sort_by(|one, other| one.model.cmp(&other.model));
        self
    }
}

/// The model of this name, not alias.
pub fn find(snapshot: &Arc<Snapshot>, name: &str) -> Option<ModelView> {
    snapshot
        .model(name)
        .map(|model| ModelView::of(model, snapshot))
}

impl ModelView {
    /// A model whose file cannot be used: nothing but its name and the error is known.
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
            keep_hot_ms: 0,
            over: None,
            wished_replicas: 0,
            replicas: Vec::new(),
            weights: None,
            waiting: 0,
            needs: Needs {
                devices: 0,
                bytes_per_device: 0,
                source: "estimate",
            },
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

    pub fn of(model: &pool::ModelView, snapshot: &Snapshot) -> ModelView {
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
            keep_hot_ms: model.keep_hot.0,
            over: OverrideView::of(&model.over),
            wished_replicas: model.wish.as_ref().map_or(0, |wish| wish.replicas),
            replicas: model
                .replicas
                .iter()
                .map(|replica| ReplicaView::of(replica, model, snapshot))
                .collect(),
            weights: WeightsView::of(model, facts, snapshot),
            waiting: model.waiting,
            needs: Needs {
                devices: model.devices_per_replica,
                bytes_per_device: model.bytes_per_device.0,
                source: facts.map_or("estimate", |facts| facts.need_source),
            },
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
    fn of(over: &Override) -> Option<OverrideView> {
        (!over.is_empty()).then(|| OverrideView {
            priority: over.priority.map(|priority| priority.0),
            keep_hot_ms: over.keep_hot.map(|keep_hot| keep_hot.0),
            expires_at: over.expires.map(at),
        })
    }
}

impl ReplicaView {
    fn of(
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
            reason: replica.reason.clone(),
        }
    }
}

/// What a replica really holds. On GPUs the driver knows it; on the host the engine's own processes do.
pub fn measured(replica: ReplicaId, shares: &[pool::Share], snapshot: &Snapshot) -> Option<Bytes> {
    let process = snapshot.processes.get(&replica)?;
    if snapshot.provider != Provider::Nvml {
        return process.memory;
    }
    let on_device = |share: &pool::Share| {
        let used = snapshot.devices.get(&share.device)?.used.as_ref()?;
        let holders = snapshot
            .pool
            .models
            .iter()
            .flat_map(|model| &model.replicas);
        let holds = |it: &&pool::ReplicaView| {
            it.state != ReplicaState::Planned
                && it.shares.iter().any(|held| held.device == share.device)
        };
        if holders.filter(holds).count() == 1 {
            return Some(used.own);
        }
        // Engines whose children hold the memory are indistinguishable on a shared GPU.
        let pid = process.pid?;
        used.processes
            .iter()
            .find(|(id, _)| *id == pid)
            .map(|(_, bytes)| *bytes)
    };
    shares.iter().map(on_device).sum()
}
