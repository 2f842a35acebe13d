//! Requests and responses for cleanup, reset and reload.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum CleanupMode {
    /// Every replica, regardless of priority (E1).
    All,
    /// Only idle replicas.
    Idle,
}

/// Origins of the configuration values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ConfigOrigins {
    /// Path of the configuration file; null if there is none.
    #[schema(example = "config/model-pool.yaml")]
    pub file: Option<String>,
    /// Origin by key, such as `pool.keep_hot`. Other keys have their default, or a value derived from other keys.
    pub origins: BTreeMap<String, OriginView>,
}

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OriginView {
    /// A line of the file.
    File { line: u64 },
    /// An environment variable.
    Environment { variable: String },
}

impl ConfigOrigins {
    pub fn from_config(config: &Config) -> ConfigOrigins {
        let view = |origin: &Origin| match origin {
            Origin::File { line } => OriginView::File { line: *line },
            Origin::Environment { variable } => OriginView::Environment {
                variable: variable.clone(),
            },
        };
        let origins = config.origins.iter();
        ConfigOrigins {
            file: config.file.as_ref().map(|path| path.display().to_string()),
            origins: origins
                .map(|(key, origin)| (key.to_owned(), view(origin)))
                .collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CleanupResponse {
    pub preview: bool,
    /// Replicas to unload.
    pub replicas: Vec<CleanupReplica>,
    /// Replicas that have been unloaded.
    pub unloaded: Vec<String>,
    /// Time until which always-hot models load only on request (E2); null if `evening.reopen` is off.
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
pub struct ResetResponse {
    pub unloaded: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ReloadResponse {
    /// Configuration keys whose new value is in effect.
    pub applied: Vec<ChangedKey>,
    /// Configuration keys whose new value takes effect at the next start.
    pub needs_restart: Vec<ChangedKey>,
    /// Number of unchanged configuration keys.
    pub unchanged: usize,
    /// Added models.
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// Invalid model files. They changed nothing.
    pub broken: Vec<BrokenFileView>,
    pub warnings: Vec<String>,
}

/// A configuration key with a changed value.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChangedKey {
    #[schema(example = "pool.keep_hot")]
    pub key: String,
    /// The previous value, or the current one until a restart.
    pub from: Value,
    /// The new value.
    pub to: Value,
    /// Limits of the change, if it does not apply to everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// An invalid model file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BrokenFileView {
    /// Name of the model if the file states it, otherwise the file name.
    #[schema(example = "org/my-model")]
    pub model: String,
    #[schema(example = "config/models/my-model.yaml")]
    pub source: String,
    /// The error, with file, line and field.
    pub error: String,
    /// True if the model is still served as its file last described it.
    pub serves_last_good: bool,
}

impl BrokenFileView {
    pub fn new(broken: &BrokenModel) -> BrokenFileView {
        BrokenFileView {
            model: broken.name.clone(),
            source: broken.source.to_string(),
            error: broken.error.clone(),
            serves_last_good: broken.serves_last_good,
        }
    }
}

/// An empty response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(example = json!({}))]
pub struct EmptyRequest {}

impl CleanupResponse {
    /// The replicas that a cleanup would unload now.
    pub fn preview(
        scope: CleanupScope,
        snapshot: &Snapshot,
        reopen_at: Option<String>,
    ) -> CleanupResponse {
        let concerned =
            |replica: &&pool::ReplicaView| scope.concerns(replica.state, replica.in_flight);
        CleanupResponse {
            preview: true,
            replicas: listed(snapshot, &concerned),
            unloaded: Vec::new(),
            reopen_at,
        }
    }

    /// The result of a cleanup. `before` is the snapshot with the unloaded replicas.
    pub fn done(
        unloaded: &[ReplicaId],
        before: &Snapshot,
        reopen_at: Option<String>,
    ) -> CleanupResponse {
        CleanupResponse {
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

impl ReloadResponse {
    pub fn new(reloaded: Reloaded, broken: &[BrokenModel]) -> ReloadResponse {
        let Changes {
            added,
            changed,
            removed,
        } = reloaded.models;
        let keys = |changes: Vec<KeyChange>| changes.into_iter().map(ChangedKey::new).collect();
        ReloadResponse {
            applied: keys(reloaded.settings.applied),
            needs_restart: keys(reloaded.settings.needs_restart),
            unchanged: reloaded.settings.unchanged,
            added,
            changed,
            removed,
            broken: broken.iter().map(BrokenFileView::new).collect(),
            warnings: reloaded.warnings,
        }
    }
}

impl ChangedKey {
    fn new(change: KeyChange) -> ChangedKey {
        ChangedKey {
            key: change.key,
            from: change.from,
            to: change.to,
            note: change.applies.note(),
        }
    }
}
