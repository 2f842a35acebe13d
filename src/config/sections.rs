//! The sections of the configuration file with their defaults: the complete list of keys. The doc comments are
//! the descriptions in the schema.
//! One file because it is one list of keys, and the schema is made from it.

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

/// Where the service stores what must survive a restart (D1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StateSection {
    /// The folder for state; created if it does not exist.
    pub dir: PathBuf,
    /// The database, as `sqlite://PATH` or `postgres://USER@HOST/DATABASE`; null: `model-pool.db` in `state.dir`.
    pub database_url: Option<DatabaseUrl>,
    /// A second service on the same PostgreSQL stands by; null: this one is alone.
    pub standby: Option<StandbySection>,
    /// How much of the history and of the audit is kept.
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

/// Rows beyond these limits are deleted automatically, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistorySection {
    /// How long rows are kept, 1m or more.
    pub keep: Length,
    /// How many rows of each of the two are kept, 100 to 100000000.
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
    /// How much of the host's memory the pool may fill; used when the device is the host.
    pub host_memory: Size,
    /// The part of each device that is never used: a share from 0% to 90%, or a size.
    pub headroom: MemoryPart,
    /// The devices of provider `fixed`. With `nvml`, the GPUs to use; an empty list means all.
    pub devices: Vec<FixedDevice>,
    /// The program that the embedded engine is started with on NVIDIA GPUs; null: `model-pool-cuda` beside `model-pool`.
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

/// One device of provider `fixed`; or, with `nvml`, one GPU to use, of which the pool fills no more than
/// `memory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedDevice {
    /// Its name in answers and logs; must be unique.
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
    /// With provider `fixed`: the GPU's product name, such as `NVIDIA A100-SXM4-40GB`, which a model's
    /// `pool_config.devices.kinds` and the accelerator types of older files select it by.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Labels by which a model's `pool_config.devices.labels` selects it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// How models share the devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSection {
    /// How long a replica stays after its last request ended (L2): a length of time, or `adaptive` to derive it from
    /// the model's own gaps between requests.
    pub keep_hot: KeepHot,
    /// The shortest time that `adaptive` chooses.
    pub keep_hot_least: Length,
    /// The longest time that `adaptive` chooses; at least `keep_hot_least`.
    pub keep_hot_most: Length,
    /// Equals cannot evict an idle replica younger than this (P3): a length of time, or `auto`, which evicts it at once
    /// unless its own next request is likely to come within half the time of a swap.
    pub min_resident: MinResident,
    /// How long a busy replica keeps its turn against equals (P3): `auto` or a length of time.
    pub max_turn: MaxTurn,
    /// Which models of equal priority leave for which (P3, P5): `adaptive` by what loading them again is expected to cost;
    /// `lru` the one that was used least recently, and never a busy one, for comparison.
    pub policy: PoolPolicy,
    /// What the pool minimises: `wait` the seconds that requests wait; `balanced` counts a second of loading as two more
    /// seconds of waiting, and `reload` as eight. With these a load for which a model of equal priority must leave begins
    /// once its requests have together waited so many times as long as it takes, and at most a quarter of `queue_timeout`
    /// (P3).
    pub objective: PoolObjective,
    /// When an idle replica of higher priority, below always-hot, leaves for a lower one that is waited for (P6):
    /// `auto` after three times its own load time and at least 30 s, a length of time, or `never`.
    pub idle_yields: IdleYields,
    /// How long a victim of lower priority may finish its requests before they are cut (P2).
    pub preempt_drain: Length,
    /// Requests that may wait for one model, 1 to 1000000 (Q1).
    pub queue_limit: u32,
    /// How long a request may wait; more than 0s (Q1).
    pub queue_timeout: Length,
    /// How often a ready engine's health route is probed; 50ms or more.
    pub heartbeat: Length,
    /// A later health answer counts as none; at most `heartbeat`.
    pub heartbeat_timeout: Length,
    /// Health probes in a row without an answer after which an idle engine is dead, 1 to 100.
    pub heartbeat_misses: u32,
    /// A busy engine is dead after this long without a token, or without a token and a health answer.
    pub stall_after: Length,
    /// The same while every request in it still waits for its first token; at least `stall_after`.
    pub first_token_after: Length,
    /// A ready engine that has been idle for this long is sent a request for one token; `off`: never.
    pub idle_probe: IdleProbe,
    /// Handling of request fields that a model's engine is not known to support: `refuse` returns 400 with the nearest
    /// name, `drop` removes them and lists them in `x-model-pool-ignored`, `pass` forwards them to the engine. A
    /// CommandEngine, a RemoteEngine and a RayServeEngine get every field, unless their model file has
    /// `pool_config.unknown_fields`.
    pub unknown_fields: UnknownFields,
    /// What happens to engines when the service ends without having stopped them (D2): `adopt` keeps ready
    /// engines for the next service, `stop` ends them at once.
    pub on_restart: OnRestart,
    /// How long engines wait for the next service before they are stopped, 1s to 1d (D2).
    pub adopt_within: Length,
}

impl Default for PoolSection {
    fn default() -> PoolSection {
        PoolSection {
            keep_hot: KeepHot::For(Length::from_secs(600)),
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
    /// 400, with its name.
    Refuse,
    /// Left out, and named in a header of the response.
    Drop,
    /// The engine decides.
    Pass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    Adopt,
    Stop,
}

/// Engines that sleep in the host's memory instead of being ended (L1); for models whose file has
/// `pool_config.sleep`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParkingSection {
    /// How much of the machine's memory all sleeping engines together may use: a share of it from 0% to 90%, or
    /// a size; 0% switches it off.
    pub host_memory: MemoryPart,
    /// How much of the machine's memory must stay available; below it sleeping engines are ended.
    pub reserve: MemoryPart,
    /// How long a sleeping engine without demand stays.
    pub keep: Length,
    /// Whether weights of models with likely demand are read into the page cache while nothing is loaded.
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
    /// When the pool is emptied: a cron expression with seconds; null: never.
    pub cleanup: Option<CronExpression>,
    /// When always-hot models come back: a cron expression with seconds; null: as soon as the cleanup has ended.
    pub reopen: Option<CronExpression>,
    /// The time zone of both expressions: `local` for the machine's own (the variable `TZ`, or else the system's
    /// setting), or an IANA name.
    pub timezone: TimeZone,
    /// `all` unloads every replica, `idle` only those without requests.
    pub mode: EveningMode,
    /// How long an unload waits for the requests in flight before they are cut.
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

/// Where models are described.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogSection {
    /// The folder of the model files: `*.yaml`, `*.yml` and `*.json`, one model each.
    pub models_dir: PathBuf,
    /// GPU counts and priorities of known models.
    pub model_reference: PathBuf,
    /// Whether a model file of an older system is refused for a key that no release of it knew. If false, the key is a
    /// warning.
    pub strict: bool,
    /// Who may register a model that is not in the catalogue: nobody (`refuse`), administrators (`admin`), or
    /// any user who requests a model of the hub (`anyone`).
    pub on_unknown: OnUnknown,
    /// The engine of such a model, unless `model_reference` names one; the pool must be able to fetch weights
    /// for it.
    pub unknown_engine: String,
    /// With `anyone`: how many models users may register, 1 to 10000.
    pub unknown_limit: u32,
    /// With `anyone`: how many models users may register within an hour, 1 to 10000.
    pub unknown_per_hour: u32,
    /// With `anyone`: how much disk space the weights of all users' models may take.
    pub unknown_size: Size,
    /// With `anyone`: true lets users register private and gated repositories of the hub that the pool's own token
    /// (`HF_TOKEN`) opens. If false, no token is sent for what users register.
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

/// Where weights are fetched from, and where they are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourcesSection {
    /// The folder for fetched weights, in the layout of the Hugging Face cache; null: the folder that the hub's
    /// own programs use (`HF_HUB_CACHE`, `HF_HOME`, `~/.cache/huggingface/hub`).
    pub cache_dir: Option<PathBuf>,
    /// The hub's address; the variable `HF_ENDPOINT` overrides it.
    pub hub: String,
    /// No network requests for weights; only what the cache holds is used. `HF_HUB_OFFLINE=1` does the same.
    pub offline: bool,
    /// Files of one model that are fetched at once, 1 to 64.
    pub files_at_once: u32,
    /// Models that are fetched at once, 1 to 64.
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

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSection {
    /// Who may use models without a key: everybody (`open`), this machine (`loopback`), nobody (`key`).
    pub inference: InferenceAuth,
    /// Who may read `/metrics`, which names every model, without an admin key: everybody (`open`), this machine
    /// (`loopback`), nobody (`admin`).
    pub metrics: MetricsAuth,
    /// A file with the first administrator's key, such as a mounted Secret, of at least 32 characters: it is taken where
    /// the database has no valid admin key. Null: one is made and written to admin_key_file.
    pub first_admin_key_file: Option<PathBuf>,
    /// The file that holds the first administrator's key, written at the first start; null: `admin.key` in
    /// `state.dir`.
    pub admin_key_file: Option<PathBuf>,
    /// Tokens of a single sign-on that are accepted beside the pool's keys; null: none.
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

/// What the service logs.
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
