//! Loaded, loading and cold models in the form of the previous service.

use serde::Serialize;
use utoipa::ToSchema;

use catalog::Entry;
use controller::Snapshot;
use pool::{ModelState, ModelView, ReplicaState};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct HotModels {
    /// Models that respond immediately.
    pub hot_models: Vec<HotModel>,
    /// Models that are loading. Requests wait for them.
    pub loading_models: Vec<HotModel>,
    /// Models with weights in host memory. The next request wakes them within seconds.
    pub asleep_models: Vec<HotModel>,
    /// Models that the next request loads.
    pub cold_models: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HotModel {
    #[schema(example = "tiny-chat")]
    pub model_name: String,
    /// `ready`, `loading`, `waiting` or `asleep`.
    #[schema(example = "ready")]
    pub status: &'static str,
    /// Number of replicas that are ready or loading.
    pub num_replicas: usize,
    pub priority: u32,
    pub gpus_per_replica: u32,
    /// True for a model on a remote server: requests are forwarded, and nothing is loaded here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub remote: bool,
}

impl HotModels {
    /// Lists the models that the caller may see, by name and catalogue entry. A removed model has no entry.
    pub fn from_snapshot(
        snapshot: &Snapshot,
        may_know: impl Fn(&str, Option<&Entry>) -> bool,
    ) -> HotModels {
        let mut lists = HotModels::default();
        let is_shown = |model: &&ModelView| {
            let facts = snapshot.models.get(&model.model);
            may_know(&model.name, facts.map(|facts| facts.entry.as_ref()))
        };
        let mut models: Vec<&ModelView> = snapshot.pool.models.iter().filter(is_shown).collect();
        models.sort_by(|left, right| left.name.cmp(&right.name));
        for model in models {
            match model.state {
                ModelState::Ready => lists.hot_models.push(HotModel::from_snapshot(
                    snapshot,
                    model,
                    &[ReplicaState::Ready],
                )),
                ModelState::Loading | ModelState::Waiting | ModelState::Fetching => {
                    let states = [ReplicaState::Planned, ReplicaState::Launching];
                    lists
                        .loading_models
                        .push(HotModel::from_snapshot(snapshot, model, &states));
                }
                ModelState::Asleep => lists.asleep_models.push(HotModel::from_snapshot(
                    snapshot,
                    model,
                    &[ReplicaState::Asleep],
                )),
                ModelState::Cold
                | ModelState::Draining
                | ModelState::Cooling
                | ModelState::Quarantined => {
                    lists.cold_models.push(model.name.clone());
                }
            }
        }
        lists
    }
}

impl HotModel {
    fn from_snapshot(snapshot: &Snapshot, model: &ModelView, states: &[ReplicaState]) -> HotModel {
        let facts = snapshot.models.get(&model.model);
        let remote = facts.is_some_and(|facts| facts.entry.recipe.is_remote());
        HotModel {
            model_name: model.name.clone(),
            status: model.state.name(),
            num_replicas: model
                .replicas
                .iter()
                .filter(|replica| states.contains(&replica.state))
                .count(),
            priority: model.priority.0,
            gpus_per_replica: if remote { 0 } else { model.devices_per_replica },
            remote,
        }
    }
}
