//! The configuration: defaults, overridden by the file and then by the environment, and checked as one unit, so later code can rely
//! on its values. Does not open the files it names, but looks up the machine's time zone.

mod addresses;
mod classes;
mod cluster;
mod cluster_batch;
mod cluster_command;
mod cluster_kubernetes;
mod cluster_pbs;
mod cluster_ray;
mod cluster_shape;
mod cluster_slurm;
mod cluster_text;
mod compat;
mod cron;
mod database_url;
mod environment;
mod error;
mod idle_yields;
pub mod limits;
mod listen;
mod live;
mod load;
mod node;
pub mod oidc;
mod origins;
mod paths;
pub mod positions;
mod problem;
mod reload;
mod renew_before;
mod responses;
mod root;
mod sections;
mod server;
mod standby;
mod telemetry;
mod units;
pub mod validate;
mod values;
mod web_origin;
mod zone;

pub use addresses::Addresses;
pub use classes::{Applies, applies, classified};
pub use cluster::{ClusterKind, ClusterSection};
pub use cluster_command::CommandSection;
pub use cluster_kubernetes::KubernetesSection;
pub use cluster_pbs::PbsSection;
pub use cluster_ray::{RaySection, ray_address};
pub use cluster_shape::ShapeSection;
pub use cluster_slurm::SlurmSection;
pub use compat::CompatSection;
pub use cron::CronExpression;
pub use database_url::{DatabaseUrl, PostgresUrl};
pub use environment::PREFIX as ENVIRONMENT_PREFIX;
pub use error::ConfigError;
pub use idle_yields::IdleYields;
pub use limits::{Limit, LimitsSection, OnOutage, RedisSection};
pub use listen::{Listen, SocketMode};
pub use live::LiveConfig;
pub use load::DEFAULT_FILE;
pub use node::NodeSection;
pub use oidc::{GrantRole, GrantSection, OidcSection};
pub use origins::{KeyOrigins, Origin};
pub use paths::{expanded, expanded_here};
pub use problem::{PlacedProblem, Problem};
pub use reading::ParseError;
pub use reload::{Comparison, KeyChange};
pub use renew_before::RenewBefore;
pub use responses::ResponsesSection;
pub use root::Config;
pub use sections::{
    AuthSection, CatalogSection, EveningMode, EveningSection, FixedDevice, HistorySection,
    InferenceAuth, InventorySection, KeepHotScope, LogFormat, LogLevel, LogSection, MetricsAuth,
    OnRestart, OnUnknown, ParkingSection, PoolObjective, PoolPolicy, PoolSection, Provider,
    SourcesSection, StateSection, UnknownFields,
};
pub use server::{AccessLog, CorsSection, HostName, Network, ServerSection, TlsFiles};
pub use standby::StandbySection;
pub use telemetry::{TelemetryProtocol, TelemetrySection};
pub use units::{
    IdleProbe, KeepHot, Length, MaxTurn, MemoryPart, MinResident, ParseValueError, Size,
};
pub use values::{BasePath, ListenAddress, TimeZone};
pub use web_origin::WebOrigin;
pub use zone::LocalZone;
