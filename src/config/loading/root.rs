//! The complete configuration: its sections, and values derived from several of them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::origins::KeyOrigins;
use crate::cluster::ClusterSection;
use crate::sections::{
    AuthSection, BatchNodesSection, BatchSection, CatalogSection, CompatSection, EveningSection,
    GroupsSection, InventorySection, LimitsSection, LogSection, NodeSection, ParkingSection,
    PoolObjective, PoolPolicy, PoolSection, ServerSection, SourcesSection, StateSection,
    TelemetrySection, UsageSection, VirtualModelsSection,
};
use crate::values::{DatabaseUrl, LocalZone, TimeZone};
use pool::{Limits, Span, Time};

/// Configuration of model-pool. Durations are written like `10m`, sizes like `24GiB`; relative paths are relative to the current
/// directory. Every key can be set by an environment variable `MODEL_POOL__SECTION__KEY`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "model-pool configuration")]
pub struct Config {
    pub server: ServerSection,
    pub state: StateSection,
    pub inventory: InventorySection,
    pub pool: PoolSection,
    pub parking: ParkingSection,
    pub evening: EveningSection,
    pub catalog: CatalogSection,
    pub sources: SourcesSection,
    pub auth: AuthSection,
    pub limits: LimitsSection,
    /// Groups of callers by name, in a tree (F1).
    pub groups: GroupsSection,
    /// Names that stand for several models.
    pub virtual_models: VirtualModelsSection,
    pub batch: BatchSection,
    #[serde(alias = "autoscaler")]
    pub cluster: ClusterSection,
    pub node: NodeSection,
    pub log: LogSection,
    pub usage: UsageSection,
    pub telemetry: TelemetrySection,
    pub compat: CompatSection,
    /// The file that was read, if any.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// The origins of its values.
    #[serde(skip)]
    pub origins: KeyOrigins,
    /// The zone that `local` stands for.
    #[serde(skip)]
    pub local_zone: LocalZone,
}

impl Config {
    /// The time zone for the evening and for daily limits.
    pub fn zone(&self) -> chrono_tz::Tz {
        match self.evening.timezone {
            TimeZone::Local => self.local_zone.zone,
            TimeZone::Named(zone) => zone,
        }
    }

    /// Returns true if idle models may leave for a batch at this time.
    pub fn is_within_batch_hours(&self, at: Time) -> bool {
        let moment = i64::try_from(at.0).unwrap_or(i64::MAX);
        let utc = chrono::DateTime::<chrono::Utc>::from_timestamp_millis(moment);
        self.batch
            .is_within_hours(utc.unwrap_or_default(), self.zone())
    }

    /// The times from which idle models may leave for a batch, or no longer, from `at` on.
    pub fn batch_hours_ahead(&self, at: Time) -> Vec<(Time, bool)> {
        let moment = i64::try_from(at.0).unwrap_or(i64::MAX);
        let utc = chrono::DateTime::<chrono::Utc>::from_timestamp_millis(moment);
        let changes = self.batch.hours_ahead(utc.unwrap_or_default(), self.zone());
        let millis = |at: chrono::DateTime<chrono::Utc>| {
            Time(u64::try_from(at.timestamp_millis()).unwrap_or_default())
        };
        let changes = changes.into_iter();
        changes.map(|(at, may)| (millis(at), may)).collect()
    }

    /// The number of the day since 1970 of a time, in [`Config::zone`].
    pub fn day(&self, at: Time) -> i64 {
        let moment = i64::try_from(at.0).unwrap_or(i64::MAX);
        let utc = chrono::DateTime::<chrono::Utc>::from_timestamp_millis(moment);
        let date = utc
            .unwrap_or_default()
            .with_timezone(&self.zone())
            .date_naive();
        let first = chrono::NaiveDate::default();
        date.signed_duration_since(first).num_days()
    }

    /// The effective configuration, with defaults filled in. Contains no secrets: keys appear only as the names of their files, and
    /// the database's password is left out.
    pub fn effective_json(&self) -> Value {
        let mut resolved = self.clone();
        resolved.state.database_url = Some(self.database_url());
        resolved.auth.admin_key_file = Some(self.admin_key_file());
        resolved.telemetry = self.telemetry.resolved();
        // Plain data with text keys is always valid JSON.
        serde_json::to_value(&resolved).unwrap_or(Value::Null)
    }

    /// The subset of [`Config::effective_json`] that differs from the built-in defaults: the sections and keys set by a file or the
    /// environment.
    pub fn changed_json(&self) -> Value {
        changed(&self.effective_json(), &Config::default().effective_json())
            .unwrap_or_else(|| Value::Object(serde_json::Map::new()))
    }

    /// The JSON schema of the configuration file, generated from these types.
    pub fn schema() -> Value {
        schemars::schema_for!(Config).into()
    }

    /// The limits for the core. An unload waits as long as the evening cleanup does.
    pub fn limits(&self) -> Limits {
        Limits {
            preempt_drain: self.pool.preempt_drain.0,
            unload_drain: self.unload_drain(),
            keep_asleep: self.parking.keep.0,
            idle_yields: self.pool.idle_yields.rule(),
            policy: match self.pool.policy {
                PoolPolicy::Adaptive => pool::Policy::ADAPTIVE,
                PoolPolicy::Lru => pool::Policy::LRU,
            },
            objective: match self.pool.objective {
                PoolObjective::Wait => pool::Objective::WAIT,
                PoolObjective::Balanced => pool::Objective::BALANCED,
                PoolObjective::Reload => pool::Objective::RELOAD,
            },
            targets: self.pool.targets(),
            node_patience: self.cluster.patience.0,
            nodes_max: self.cluster.max_nodes,
            node_budget: self.cluster.budget.limits(),
            batch_nodes: self.batch.nodes.as_ref().map(BatchNodesSection::limits),
            node_scale_down_after: self.cluster.scale_down_after.0,
            node_consolidates: self.cluster.consolidate,
            node_renew_before: self.cluster.renew_before.span(),
            ..Limits::default()
        }
    }

    /// Time that an unload waits for the requests in flight.
    pub fn unload_drain(&self) -> Span {
        self.evening.drain.0
    }

    /// The configured URL, or `model-pool.db` in `state.dir`.
    pub fn database_url(&self) -> DatabaseUrl {
        self.state
            .database_url
            .clone()
            .unwrap_or_else(|| DatabaseUrl::sqlite(self.state.dir.join("model-pool.db")))
    }

    /// The configured path, or `admin.key` in `state.dir`.
    pub fn admin_key_file(&self) -> PathBuf {
        self.auth
            .admin_key_file
            .clone()
            .unwrap_or_else(|| self.state.dir.join("admin.key"))
    }
}

/// The parts of `value` that differ from `built_in`; `None` if there are none.
fn changed(value: &Value, built_in: &Value) -> Option<Value> {
    if let (Value::Object(own), Value::Object(other)) = (value, built_in) {
        let parts = own.iter().filter_map(|(key, value)| {
            let part = changed(value, other.get(key).unwrap_or(&Value::Null))?;
            Some((key.clone(), part))
        });
        let parts: serde_json::Map<String, Value> = parts.collect();
        return (!parts.is_empty()).then_some(Value::Object(parts));
    }
    (value != built_in).then(|| value.clone())
}
