//! Requests and answers about cleanup, reset and reload.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::values::total;
use crate::reload::Reloaded;
use catalog::{BrokenModel, Changes};
use config::{Config, KeyChange, Origin};
use controller::Snapshot;
use pool::{CleanupScope, ReplicaId};

/// What `cleanup` takes; the body may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"preview": true}))]
pub struct CleanupRequest {
    /// Only tell what would be unloaded.
    #[schema(value_type = Option<bool>, default = false)]
    pub preview: bool,
    /// Without it: as configured under `evening.mode`.
    pub mode: Option<CleanupMode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum CleanupMode {
    /// Every replica, whatever its priority (E1).
    All,
    /// Only replicas that serve nothing.
    Idle,
}

/// Where the values of the configuration come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ConfigOrigins {
    /// The configuration file; null if there is none.
    #[schema(example = "config/model-pool.yaml")]
    pub file: Option<String>,
    /// By key, such as `pool.keep_hot`. A key that is not there has its default, or follows from others.
    pub origins: BTreeMap<String, OriginView>,
}

/// What has set a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OriginView {
    /// A line of the file.
    File { line: u64 },
    /// An environment variable.
    Environment { variable: String },
}

impl ConfigOrigins {
    pub fn of(config: &Config) -> ConfigOrigins {
        let view = |origin: &Origin| match origin {
            Origin::File { line } => OriginView::File { line: *line },
            Origin::Environment { variable } => OriginView::Environment {
                variable: variable.clone(),
            },
        };
        let origins = config.origins.iter();
        ConfigOrigins {
            file: config.file.as_ref().map(|it| it.display().to_string()),
            origins: origins
                .map(|(key, origin)| (key.to_owned(), view(origin)))
                .collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CleanupAnswer {
    pub preview: bool,
    /// The replicas that it concerns.
    pub replicas: Vec<CleanupReplica>,
    /// Those that are gone now.
    pub unloaded: Vec<String>,
    /// From the cleanup until then, always-hot models are loaded on request only (E2); null: `evening.reopen` is off.
    pub reopen_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CleanupReplica {
    #[schema(example = "r3")]
    pub replica: String,
    pub model: String,
    pub priority: u32,
    pub in_flight: u32,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResetAnswer {
    pub unloaded: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ReloadAnswer {
    /// Keys of the configuration that are in force with their new value.
    pub applied: Vec<ChangedKey>,
    /// Keys whose new value the next start of the service puts in force.
    pub needs_restart: Vec<ChangedKey>,
    /// How many keys of the configuration are as they were.
    pub unchanged: usize,
    /// Models.
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// Model files that cannot be used. They have changed nothing.
    pub broken: Vec<BrokenFileView>,
    pub warnings: Vec<String>,
}

/// A key of the configuration with another value.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChangedKey {
    #[schema(example = "pool.keep_hot")]
    pub key: String,
    /// The value that was in force until now, or still is.
    pub from: Value,
    /// The value in the configuration.
    pub to: Value,
    /// What the new value does not concern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// A model file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BrokenFileView {
    /// The model's name if the file says it; otherwise the file's name.
    #[schema(example = "org/my-model")]
    pub model: String,
    #[schema(example = "config/models/my-model.yaml")]
    pub source: String,
    /// What is wrong, with file, line and field.
    pub error: String,
    /// The model is served as its file described it when it could last be used.
    pub serves_last_good: bool,
}

impl BrokenFileView {
    pub fn of(broken: &BrokenModel) -> BrokenFileView {
        BrokenFileView {
            model: broken.name.clone(),
            source: broken.source.to_string(),
            error: broken.error.clone(),
            serves_last_good: broken.serves_last_good,
        }
    }
}

/// There is nothing to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({}))]
pub struct EmptyRequest {}

impl CleanupAnswer {
    /// What a cleanup would concern now.
    pub fn preview(
        scope: CleanupScope,
        snapshot: &Snapshot,
        reopen_at: Option<String>,
    ) -> CleanupAnswer {
        let concerned =
            |replica: &&pool::ReplicaView| scope.concerns(replica.state, replica.in_flight);
        CleanupAnswer {
            preview: true,
            replicas: listed(snapshot, &concerned),
            unloaded: Vec::new(),
            reopen_at,
        }
    }

    /// What a cleanup did; `before` is the picture in which its replicas were still there.
    pub fn done(
        unloaded: &[ReplicaId],
        before: &Snapshot,
        reopen_at: Option<String>,
    ) -> CleanupAnswer {
        CleanupAnswer {
            preview: false,
            replicas: listed(before, &|replica| unloaded.contains(&replica.replica)),
            unloaded: unloaded.iter().map(ToString::to_string).collect(),
            reopen_at,
        }
    }
}

fn listed(
    snapshot: &Snapshot,
    concerned: &dyn Fn(&&pool::ReplicaView) -> bool,
) -> Vec<CleanupReplica> {
    let of_model = |model: &pool::ModelView| {
        let view = |replica: &pool::ReplicaView| CleanupReplica {
            replica: replica.replica.to_string(),
            model: model.name.clone(),
            priority: model.priority.0,
            in_flight: replica.in_flight,
            bytes: total(&replica.shares),
        };
        model
            .replicas
            .iter()
            .filter(concerned)
            .map(view)
            .collect::<Vec<_>>()
    };
    snapshot.pool.models.iter().flat_map(of_model).collect()
}

impl ReloadAnswer {
    pub fn of(reloaded: Reloaded, broken: &[BrokenModel]) -> ReloadAnswer {
        let Changes {
            added,
            changed,
            removed,
        } = reloaded.models;
        let keys = |changes: Vec<KeyChange>| changes.into_iter().map(ChangedKey::of).collect();
        ReloadAnswer {
            applied: keys(reloaded.settings.applied),
            needs_restart: keys(reloaded.settings.needs_restart),
            unchanged: reloaded.settings.unchanged,
            added,
            changed,
            removed,
            broken: broken.iter().map(BrokenFileView::of).collect(),
            warnings: reloaded.warnings,
        }
    }
}

impl ChangedKey {
    fn of(change: KeyChange) -> ChangedKey {
        ChangedKey {
            key: change.key,
            from: change.from,
            to: change.to,
            note: change.applies.note(),
        }
    }
}
