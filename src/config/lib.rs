//! The configuration: defaults, overridden by the file and then by the environment, and checked as one unit, so
//! later code can rely on its values. No other files are opened.

mod compat;
mod environment;
pub mod limits;
pub mod oidc;
pub mod positions;
mod sections;
mod server;
mod units;
pub mod validate;
mod values;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use pool::{Limits, Span};

pub use compat::CompatSection;
pub use environment::PREFIX as ENVIRONMENT_PREFIX;
pub use limits::{Limit, LimitsSection, OnOutage, RedisSection};
pub use oidc::{GrantRole, GrantSection, OidcSection};
pub use reading::ParseError;
pub use sections::{
    AuthSection, AutoscalerKind, AutoscalerSection, CatalogSection, EveningMode, EveningSection,
    FixedDevice, HistorySection, InferenceAuth, InventorySection, LogFormat, LogLevel, LogSection,
    MetricsAuth, OnRestart, OnUnknown, ParkingSection, PoolSection, Provider, SourcesSection,
    StateSection,
};
pub use server::{AccessLog, CorsSection, HostName, Network, ServerSection, TlsFiles};
pub use units::{IdleProbe, KeepHot, Length, MaxTurn, MemoryPart, MinResident, Size, Unreadable};
pub use values::{BasePath, CronExpression, DatabaseUrl, ListenAddress, TimeZone};

/// The file to read when none is named, if it exists.
pub const DEFAULT_FILE: &str = "config/model-pool.yaml";

/// Configuration of model-pool. Lengths of time are written like `10m`, sizes like `24GiB`; relative paths are
/// relative to the current directory. Every key can be set by an environment variable
/// `MODEL_POOL__SECTION__KEY`.
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
    pub autoscaler: AutoscalerSection,
    pub log: LogSection,
    pub compat: CompatSection,
    /// The file that was read, if any.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// Why the configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: {flaw}", path.display())]
    Parse { path: PathBuf, flaw: ParseError },
    #[error("the environment variable {name} cannot be used: {message}")]
    Variable { name: String, message: String },
    #[error("the environment variable {name} names no key of the configuration; {hint}")]
    UnknownVariable { name: String, hint: String },
    /// One or more problems, each with its key and the allowed values.
    #[error("the configuration{} cannot be used: {}", origin.as_ref().map(|path| format!(" of {}", path.display())).unwrap_or_default(), problems.join("; "))]
    Invalid {
        origin: Option<PathBuf>,
        problems: Vec<String>,
    },
}

impl Config {
    /// Reads `file`, or else `config/model-pool.yaml` if that exists, and applies the environment. Unknown keys
    /// and unknown `MODEL_POOL__` variables are refused.
    pub fn load(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Config, ConfigError> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let config = match std::fs::read_to_string(path) {
            Ok(text) => Config::read(path, &text)?,
            Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => {
                Config::default()
            }
            Err(source) => {
                return Err(ConfigError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let config = environment::overlay(config, environment)?;
        let problems = validate::problems(&config);
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::Invalid {
                origin: config.file,
                problems,
            })
        }
    }

    fn read(path: &Path, text: &str) -> Result<Config, ConfigError> {
        // A file with only comments sets nothing, and a YAML parser finds no mapping in it.
        let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let config = if text.lines().all(is_blank) {
            Config::default()
        } else {
            reading::yaml(text).map_err(|flaw| ConfigError::Parse {
                path: path.to_owned(),
                flaw,
            })?
        };
        Ok(Config {
            file: Some(path.to_owned()),
            ..config
        })
    }

    /// The effective configuration, with defaults filled in. Contains no secrets: keys are only named by the
    /// file that holds them.
    pub fn effective_json(&self) -> Value {
        let mut resolved = self.clone();
        resolved.state.database_url = Some(self.database_url());
        resolved.auth.admin_key_file = Some(self.admin_key_file());
        // Plain data with text keys: JSON can represent all of it.
        serde_json::to_value(&resolved).unwrap_or(Value::Null)
    }

    /// Settings that work but have less effect than expected. For the log at start.
    pub fn notices(&self) -> Vec<String> {
        validate::notices(self)
    }

    /// The JSON schema of the configuration file, generated from these types.
    pub fn schema() -> Value {
        schemars::schema_for!(Config).into()
    }

    /// The limits of the core. An unload waits as long as the evening cleanup does.
    pub fn limits(&self) -> Limits {
        Limits {
            preempt_drain: self.pool.preempt_drain.0,
            unload_drain: self.unload_drain(),
            keep_asleep: self.parking.keep.0,
            ..Limits::default()
        }
    }

    /// How long an unload waits for the requests in flight.
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
