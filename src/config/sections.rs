//! The sections of the configuration file with their defaults: the complete list of keys. The doc comments are
//! the descriptions in the schema.
//! One file because it is one list of keys, and the schema is generated from it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pool::Bytes;

use super::cron::CronExpression;
use super::database_url::DatabaseUrl;
use super::idle_yields::IdleYields;
use super::oidc::OidcSection;
use super::responses::ResponsesSection;
use super::standby::StandbySection;
use super::units::{IdleProbe, KeepHot, Length, MaxTurn, MemoryPart, MinResident, Size};
use super::values::TimeZone;

/// Storage for everything that must survive a restart (D1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StateSection {
    /// The folder for state; created if it does not exist.
    pub dir: PathBuf,
    /// The database, as `sqlite://PATH` or `postgres://USER@HOST/DATABASE`; null: `model-pool.db` in `state.dir`.
    pub database_url: Option<DatabaseUrl>,
    /// A standby service on the same PostgreSQL; null: no standby.
    pub standby: Option<StandbySection>,
    /// Retention of the history and the audit log.
    pub history: HistorySection,
    /// Responses of `/v1/responses` for later turns.
    pub responses: ResponsesSection,
}

impl Default for StateSection {
    fn default() -> StateSection {
        StateSection {
            dir: PathBuf::from("data"),
            database_url: None,
            standby: None,
            history: HistorySection::default(),
            responses: ResponsesSection::default(),
        }
    }
}

/// Rows beyond these limits are deleted automatically, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistorySection {
    /// Retention of rows, 1m or more.
    pub keep: Length,
    /// Maximum rows in each of the two tables, 100 to 100000000.
    pub rows_max: u64,
}

impl Default for HistorySection {
    fn default() -> HistorySection {
        HistorySection {
            keep: Length::from_secs(90 * 24 * 3600),
            rows_max: 1_000_000,
        }
    }
}

/// The devices that models are placed on (M2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InventorySection {
    /// The source of the devices. `auto`: NVIDIA GPUs if there are any, otherwise the host.
    pub provider: Provider,
    /// Maximum host memory that the pool may fill, when the device is the host.
    pub host_memory: Size,
    /// The part of each device that is never used: a share from 0% to 90%, or a size.
    pub headroom: MemoryPart,
    /// The devices of provider `fixed`. With `nvml`, the GPUs to use; an empty list means all.
    pub devices: Vec<FixedDevice>,
    /// The program that runs the embedded engine on NVIDIA GPUs; null: `model-pool-cuda` in the folder of `model-pool`.
    pub cuda_program: Option<PathBuf>,
}

impl Default for InventorySection {
    fn default() -> InventorySection {
        InventorySection {
            provider: Provider::Auto,
            host_memory: Size(Bytes(64 * Bytes::MIB)),
            headroom: MemoryPart::Share(500),
            devices: Vec::new(),
            cuda_program: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    #[default]
    Auto,
    Nvml,
    Host,
    Fixed,
}

impl Provider {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Provider::Auto => "auto",
            Provider::Nvml => "nvml",
            Provider::Host => "host",
            Provider::Fixed => "fixed",
        }
    }
}

/// A device of provider `fixed`; or, with `nvml`, a GPU to use, of which the pool fills at most `memory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedDevice {
    /// The device's name in API responses and logs; must be unique.
    pub name: String,
    pub memory: Size,
    /// The number of its machine; a replica never spans two machines (M5).
    #[serde(default)]
    pub node: u32,
    /// With provider `nvml`: selects the GPU with this UUID, whatever its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// With provider `nvml`: selects the GPU with this index, whatever its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// With provider `fixed`: the GPU's product name, such as `NVIDIA A100-SXM4-40GB`, which is matched by a model's
    /// `pool_config.devices.kinds` and by the accelerator types of older files.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Labels that a model's `pool_config.devices.labels` can select.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// Rules for sharing the devices between models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSection {
    /// Time that a replica stays after its last request ended (L2): a duration, `adaptive` to derive it from the gaps between the
    /// model's requests, or `until_needed` to stay until another load needs its memory.
    pub keep_hot: KeepHot,
    /// The requests that restart the keep-hot time (L2): with `model`, requests for the model itself; with `device`, requests for
    /// any model on its devices. With `device`, idle models stay while their device is in use, and leave together. A model with its
    /// own keep-hot time keeps exactly that time.
    pub keep_hot_scope: KeepHotScope,
    /// The shortest time that `adaptive` chooses.
    pub keep_hot_least: Length,
    /// The longest time that `adaptive` chooses; at least `keep_hot_least`.
    pub keep_hot_most: Length,
    /// Models of equal priority cannot evict an idle replica younger than this (P3): a duration, or `auto`, which evicts it
    /// immediately unless its own next request is likely within half the time of a swap.
    pub min_resident: MinResident,
    /// Time that a busy replica keeps its turn against models of equal priority (P3): `auto` or a duration.
    pub max_turn: MaxTurn,
    /// The eviction policy among models of equal priority (P3, P5): `adaptive` considers the expected cost of loading a model
    /// again; `lru` evicts the least recently used model and never a busy one, for comparison.
    pub policy: PoolPolicy,
    /// The quantity that the pool minimises: `wait` counts the seconds that requests wait; `balanced` counts a second of loading as
    /// two more seconds of waiting, and `reload` as eight. With these, a load that evicts a model of equal priority begins once the
    /// total waiting time of its requests is that multiple of the load time, and after at most a quarter of `queue_timeout` (P3).
    pub objective: PoolObjective,
    /// The idle time after which a replica of higher priority, below always-hot, makes room for a lower one with waiting requests
    /// (P6): `auto` for three times the measured time to stop and reload it, a duration, or `never`.
    pub idle_yields: IdleYields,
    /// Time for a victim of lower priority to finish its requests before they are cut (P2).
    pub preempt_drain: Length,
    /// Maximum requests waiting for one model, 1 to 1000000 (Q1).
    pub queue_limit: u32,
    /// Maximum waiting time of a request; more than 0s (Q1).
    pub queue_timeout: Length,
    /// Interval of health probes of a ready engine; 50ms or more.
    pub heartbeat: Length,
    /// Time limit of a health probe; at most `heartbeat`.
    pub heartbeat_timeout: Length,
    /// Consecutive failed health probes after which an idle engine counts as dead, 1 to 100.
    pub heartbeat_misses: u32,
    /// Time without a token, or without a token and a health response, after which a busy engine counts as dead.
    pub stall_after: Length,
    /// The same limit while all requests of the engine still wait for their first token; at least `stall_after`.
    pub first_token_after: Length,
    /// Idle time after which a ready engine is sent a request for one token; `off`: never.
    pub idle_probe: IdleProbe,
    /// Handling of request fields that a model's engine is not known to support: `refuse` returns 400 with the nearest name, `drop`
    /// removes them and lists them in `x-model-pool-ignored`, `pass` forwards them to the engine. A CommandEngine, a RemoteEngine
    /// and a RayServeEngine receive every field, unless their model file sets `pool_config.unknown_fields`.
    pub unknown_fields: UnknownFields,
    /// Handling of engines that are still running when the service ends without stopping them (D2): `adopt` keeps ready engines for
    /// the next service, `stop` ends them immediately.
    pub on_restart: OnRestart,
    /// Time that engines wait for the next service before they are stopped, 1s to 1d (D2).
    pub adopt_within: Length,
}

impl Default for PoolSection {
    fn default() -> PoolSection {
        PoolSection {
            keep_hot: KeepHot::For(Length::from_secs(600)),
            keep_hot_scope: KeepHotScope::Model,
            keep_hot_least: Length::from_secs(60),
            keep_hot_most: Length::from_secs(24 * 3600),
            min_resident: MinResident::Auto,
            max_turn: MaxTurn::Auto,
            policy: PoolPolicy::Adaptive,
            objective: PoolObjective::Wait,
            idle_yields: IdleYields::Auto,
            preempt_drain: Length::from_secs(30),
            queue_limit: 512,
            queue_timeout: Length::from_secs(300),
            heartbeat: Length::from_secs(5),
            heartbeat_timeout: Length::from_secs(2),
            heartbeat_misses: 3,
            stall_after: Length::from_secs(60),
            first_token_after: Length::from_secs(300),
            idle_probe: IdleProbe::After(Length::from_secs(60)),
            unknown_fields: UnknownFields::Refuse,
            on_restart: OnRestart::Adopt,
            adopt_within: Length::from_secs(120),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeepHotScope {
    Model,
    Device,
}

impl From<KeepHotScope> for pool::KeepHotScope {
    fn from(scope: KeepHotScope) -> pool::KeepHotScope {
        match scope {
            KeepHotScope::Model => pool::KeepHotScope::Model,
            KeepHotScope::Device => pool::KeepHotScope::Device,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolPolicy {
    Adaptive,
    Lru,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolObjective {
    Wait,
    Balanced,
    Reload,
}

/// Handling of request fields that the model's engine is not known to support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownFields {
    /// Return 400 with the field's name.
    Refuse,
    /// Remove the field, and name it in a header of the response.
    Drop,
    /// Let the engine decide.
    Pass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    Adopt,
    Stop,
}

/// Engines that sleep in host memory instead of being stopped (L1); for models whose file sets `pool_config.sleep`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParkingSection {
    /// Maximum host memory for all sleeping engines together: a share from 0% to 90%, or a size; 0% disables sleeping.
    pub host_memory: MemoryPart,
    /// Host memory that must stay available; below it sleeping engines are stopped.
    pub reserve: MemoryPart,
    /// Time that a sleeping engine stays without demand.
    pub keep: Length,
    /// Read weights of models with likely demand into the page cache while nothing is loading.
    pub read_ahead: bool,
}

impl Default for ParkingSection {
    fn default() -> ParkingSection {
        ParkingSection {
            host_memory: MemoryPart::Share(5_000),
            reserve: MemoryPart::Share(1_000),
            keep: Length::from_secs(3600),
            read_ahead: true,
        }
    }
}

/// The evening cleanup and the morning after it (E1, E2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EveningSection {
    /// Time of the cleanup that empties the pool: a cron expression with seconds; null: never.
    pub cleanup: Option<CronExpression>,
    /// Time at which always-hot models come back: a cron expression with seconds; null: as soon as the cleanup has ended.
    pub reopen: Option<CronExpression>,
    /// The time zone of both expressions: `local` for the machine's own (the variable `TZ`, or else the system's
    /// setting), or an IANA name.
    pub timezone: TimeZone,
    /// `all` unloads every replica, `idle` only those without requests.
    pub mode: EveningMode,
    /// Time that an unload waits for the requests in flight before they are cut.
    pub drain: Length,
}

impl Default for EveningSection {
    fn default() -> EveningSection {
        EveningSection {
            cleanup: Some(CronExpression::daily(21)),
            reopen: Some(CronExpression::daily(7)),
            timezone: TimeZone::Local,
            mode: EveningMode::All,
            drain: Length::from_secs(600),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EveningMode {
    All,
    Idle,
}

/// Sources of model descriptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogSection {
    /// The folder of model files: `*.yaml`, `*.yml` and `*.json`, one model each.
    pub models_dir: PathBuf,
    /// The file with GPU counts and priorities of known models.
    pub model_reference: PathBuf,
    /// Refuse a model file of an older system if it has a key that no release had. If false, such a key causes a warning.
    pub strict: bool,
    /// Permission to register a model that is not in the catalogue: no caller (`refuse`), administrators (`admin`), or any user who
    /// requests a model of the hub (`anyone`).
    pub on_unknown: OnUnknown,
    /// The engine of such a model, unless `model_reference` names one; the pool must be able to fetch weights for it.
    pub unknown_engine: String,
    /// With `anyone`: maximum models that users may register, 1 to 10000.
    pub unknown_limit: u32,
    /// With `anyone`: maximum models that users may register per hour, 1 to 10000.
    pub unknown_per_hour: u32,
    /// With `anyone`: maximum disk space for the weights of all users' models.
    pub unknown_size: Size,
    /// With `anyone`: let users register private and gated repositories of the hub that the pool's own token (`HF_TOKEN`) can
    /// access. If false, no token is sent for models that users register.
    pub unknown_private: bool,
}

impl Default for CatalogSection {
    fn default() -> CatalogSection {
        CatalogSection {
            models_dir: PathBuf::from("config/models"),
            model_reference: PathBuf::from("model_reference.json"),
            strict: false,
            on_unknown: OnUnknown::Admin,
            unknown_engine: "CandleEngine".to_owned(),
            unknown_limit: 100,
            unknown_per_hour: 20,
            unknown_size: Size(Bytes(500 * Bytes::GIB)),
            unknown_private: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnUnknown {
    Refuse,
    Admin,
    Anyone,
}

/// Download sources and storage of weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourcesSection {
    /// The folder for fetched weights, in the layout of the Hugging Face cache; null: the default of Hugging Face's tools
    /// (`HF_HUB_CACHE`, `HF_HOME`, `~/.cache/huggingface/hub`).
    pub cache_dir: Option<PathBuf>,
    /// The hub's address; the variable `HF_ENDPOINT` overrides it.
    pub hub: String,
    /// Make no network requests for weights and use only the cache. `HF_HUB_OFFLINE=1` has the same effect.
    pub offline: bool,
    /// Files of one model to fetch simultaneously, 1 to 64.
    pub files_at_once: u32,
    /// Models to fetch simultaneously, 1 to 64.
    pub models_at_once: u32,
    /// Disk space that stays free: a fetch that would leave less is refused before it begins.
    pub keep_free: Size,
    /// Additional folders for the `extra_files` of a mirror.
    pub extra_roots: Vec<PathBuf>,
}

impl Default for SourcesSection {
    fn default() -> SourcesSection {
        SourcesSection {
            cache_dir: None,
            hub: "https://huggingface.co".to_owned(),
            offline: false,
            files_at_once: 4,
            models_at_once: 2,
            keep_free: Size(Bytes(5 * Bytes::GIB)),
            extra_roots: Vec::new(),
        }
    }
}

/// Permissions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSection {
    /// Callers that may use models without a key: everyone (`open`), this machine (`loopback`), or none (`key`).
    pub inference: InferenceAuth,
    /// Callers that may read `/metrics`, which names every model, without an admin key: everyone (`open`), this machine
    /// (`loopback`), or none (`admin`).
    pub metrics: MetricsAuth,
    /// A file with the first administrator's key of at least 32 characters, such as a mounted Secret: it is used if the database
    /// has no valid admin key. Null: a key is created and written to admin_key_file.
    pub first_admin_key_file: Option<PathBuf>,
    /// The file for the first administrator's key, written at the first start; null: `admin.key` in `state.dir`.
    pub admin_key_file: Option<PathBuf>,
    /// Single sign-on tokens that are accepted in addition to the pool's keys; null: none.
    pub oidc: Option<OidcSection>,
}

impl Default for AuthSection {
    fn default() -> AuthSection {
        AuthSection {
            inference: InferenceAuth::Loopback,
            metrics: MetricsAuth::Loopback,
            first_admin_key_file: None,
            admin_key_file: None,
            oidc: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InferenceAuth {
    Open,
    Loopback,
    Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAuth {
    Open,
    Loopback,
    Admin,
}

/// Log output of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    pub level: LogLevel,
    pub format: LogFormat,
}

impl Default for LogSection {
    fn default() -> LogSection {
        LogSection {
            level: LogLevel::Info,
            format: LogFormat::Text,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}
