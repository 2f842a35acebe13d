//! The configuration: defaults, overridden by the file and then by the environment, and checked as one unit, so later code can rely
//! on its values. Does not open the files it names, but looks up the machine's time zone.

pub use cluster::{
    BudgetSection, ClusterKind, ClusterSection, CommandSection, KubernetesSection, PbsSection,
    PodSet, PodSetKind, RaySection, ShapeSection, SlurmSection, ray_address,
};
pub use loading::{
    Applies, Comparison, Config, DEFAULT_FILE, ENVIRONMENT_PREFIX, KeyChange, KeyOrigins,
    LiveConfig, Origin, applies, classified, expanded, expanded_here, validate,
};
pub use problems::{ConfigError, PlacedProblem, Problem, positions};
pub use reading::ParseError;
pub use sections::{
    AccessLog, AtEnd, AuthSection, BatchSection, CatalogSection, ClassName, CompatSection,
    CorsSection, EveningMode, EveningSection, FallbackCause, FixedDevice, GrantRole, GrantSection,
    GroupSection, GroupsSection, HistorySection, HostName, InferenceAuth, InventorySection,
    KeepHotScope, Limit, LimitsSection, LogFormat, LogLevel, LogSection, MetricsAuth, Network,
    NodeSection, OidcSection, OnOutage, OnRestart, OnUnknown, ParkingSection, PoolObjective,
    PoolPolicy, PoolSection, PricesSection, Provider, QuotaSection, RedisSection, RequestRule,
    ResponsesSection, ServerSection, SourcesSection, StandbySection, StateSection,
    TelemetryProtocol, TelemetrySection, TlsFiles, UnknownFields, UsageSection,
    VirtualModelSection, VirtualModelsSection, groups, limits, oidc, virtual_models,
};
pub use values::{
    Addresses, BasePath, BatchHours, BucketFolder, BucketUri, CronExpression, DatabaseUrl,
    DeviceKind, IdleProbe, IdleYields, KeepHot, Length, Listen, ListenAddress, LocalZone, MaxTurn,
    MemoryPart, MinResident, Month, ParseValueError, PostgresUrl, RenewBefore, Scheme, Size,
    SocketMode, TimeZone, TokenCount, WebOrigin,
};
mod cluster;
mod loading;
mod problems;
mod sections;
mod values;
