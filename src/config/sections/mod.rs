//! The sections of the configuration with their keys and defaults, except `cluster`.

mod auth;
mod batch;
mod batch_nodes;
mod catalog;
mod compat;
mod evening;
pub mod groups;
mod inventory;
pub mod limits;
mod log;
mod node;
pub mod oidc;
mod pool;
mod quota;
pub(crate) mod responses;
pub(crate) mod server;
pub(crate) mod standby;
mod state;
mod telemetry;
pub(crate) mod usage;
pub mod virtual_models;

pub use self::pool::{
    KeepHotScope, OnRestart, ParkingSection, PoolObjective, PoolPolicy, PoolSection, UnknownFields,
};
pub use auth::{AuthSection, InferenceAuth, MetricsAuth};
pub use batch::BatchSection;
pub use batch_nodes::BatchNodesSection;
pub use catalog::{CatalogSection, OnUnknown, SourcesSection};
pub use compat::CompatSection;
pub use evening::{EveningMode, EveningSection};
pub use groups::{ClassName, GroupSection, GroupsSection};
pub use inventory::{FixedDevice, InventorySection, Provider};
pub use limits::{Limit, LimitsSection, OnOutage, RedisSection};
pub use log::{LogFormat, LogLevel, LogSection};
pub use node::NodeSection;
pub use oidc::{GrantRole, GrantSection, OidcSection};
pub use quota::{AtEnd, QuotaSection};
pub use responses::ResponsesSection;
pub use server::{AccessLog, CorsSection, HostName, Network, ServerSection, TlsFiles};
pub use standby::StandbySection;
pub use state::{HistorySection, StateSection};
pub use telemetry::{TelemetryProtocol, TelemetrySection};
pub use usage::{PricesSection, UsageSection};
pub use virtual_models::{FallbackCause, RequestRule, VirtualModelSection, VirtualModelsSection};
