//! Assigns every key to a class: applied by a reload, or only by a restart. Each key of the configuration is in this table once,
//! and nested keys have the class of their parent.

use Applies::{AtOnce, ByRestart, ToNewEngines};

/// The time at which a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// At the reload.
    AtOnce,
    /// At the reload, for engines started afterwards.
    ToNewEngines,
    /// At the next start of the service.
    ByRestart,
}

impl Applies {
    /// A note for the administrator in addition to the new value.
    pub fn note(self) -> Option<&'static str> {
        match self {
            AtOnce => None,
            ToNewEngines => Some("running engines keep the value from their start"),
            ByRestart => None,
        }
    }
}

const CLASSES: &[(&str, Applies)] = &[
    ("server.listen", ByRestart),
    ("server.socket_mode", ByRestart),
    ("server.socket_group", ByRestart),
    ("server.base_path", ByRestart),
    ("server.body_limit", AtOnce),
    ("server.keep_alive_comment", AtOnce),
    ("server.hosts", AtOnce),
    ("server.tls", ByRestart),
    ("server.cors", AtOnce),
    ("server.trusted_proxies", ByRestart),
    ("server.access_log", ByRestart),
    ("server.access_log_max", ByRestart),
    ("server.vllm_metrics", AtOnce),
    ("server.connections_max", ByRestart),
    ("server.connections_per_address", ByRestart),
    ("server.idle_timeout", ByRestart),
    ("server.body_timeout", AtOnce),
    ("server.bodies_memory", ByRestart),
    ("server.recordings_max", ByRestart),
    ("server.write_timeout", ByRestart),
    ("server.sequences_max", AtOnce),
    ("server.reading_workers", ByRestart),
    ("server.validation_workers", ByRestart),
    ("server.token_workers", ByRestart),
    ("state.dir", ByRestart),
    ("state.database_url", ByRestart),
    ("state.standby", ByRestart),
    ("state.history", AtOnce),
    ("state.responses", AtOnce),
    ("inventory.provider", ByRestart),
    ("inventory.host_memory", ByRestart),
    ("inventory.headroom", ByRestart),
    ("inventory.devices", ByRestart),
    ("inventory.command", ByRestart),
    ("inventory.cuda_program", ByRestart),
    ("pool.keep_hot", AtOnce),
    ("pool.keep_hot_scope", AtOnce),
    ("pool.keep_hot_least", AtOnce),
    ("pool.keep_hot_most", AtOnce),
    ("pool.min_resident", AtOnce),
    ("pool.max_turn", AtOnce),
    ("pool.policy", AtOnce),
    ("pool.objective", AtOnce),
    ("pool.targets", AtOnce),
    ("pool.idle_yields", AtOnce),
    ("pool.preempt_drain", AtOnce),
    ("pool.queue_limit", AtOnce),
    ("pool.queue_timeout", AtOnce),
    ("pool.heartbeat", ToNewEngines),
    ("pool.heartbeat_timeout", ToNewEngines),
    ("pool.heartbeat_misses", ToNewEngines),
    ("pool.stall_after", ToNewEngines),
    ("pool.first_token_after", ToNewEngines),
    ("pool.idle_probe", ToNewEngines),
    ("pool.unknown_fields", AtOnce),
    ("pool.on_restart", ByRestart),
    ("pool.adopt_within", ByRestart),
    ("parking.host_memory", AtOnce),
    ("parking.reserve", AtOnce),
    ("parking.keep", AtOnce),
    ("parking.read_ahead", AtOnce),
    ("evening.cleanup", AtOnce),
    ("evening.reopen", AtOnce),
    ("evening.timezone", AtOnce),
    ("evening.mode", AtOnce),
    ("evening.drain", AtOnce),
    ("catalog.models_dir", AtOnce),
    ("catalog.model_reference", AtOnce),
    ("catalog.strict", AtOnce),
    ("catalog.on_unknown", AtOnce),
    ("catalog.unknown_engine", AtOnce),
    ("catalog.unknown_limit", AtOnce),
    ("catalog.unknown_per_hour", AtOnce),
    ("catalog.unknown_size", AtOnce),
    ("catalog.unknown_private", AtOnce),
    ("sources.cache_dir", ByRestart),
    ("sources.hub", ByRestart),
    ("sources.offline", ByRestart),
    ("sources.files_at_once", ByRestart),
    ("sources.models_at_once", ByRestart),
    ("sources.keep_free", ByRestart),
    ("sources.extra_roots", ByRestart),
    ("auth.inference", AtOnce),
    ("auth.metrics", AtOnce),
    ("auth.admin_key_file", ByRestart),
    ("auth.first_admin_key_file", ByRestart),
    ("auth.oidc", ByRestart),
    ("limits.default", AtOnce),
    ("limits.anonymous", AtOnce),
    ("limits.models", AtOnce),
    ("limits.redis", ByRestart),
    ("groups", AtOnce),
    ("virtual_models", AtOnce),
    ("batch.hours", AtOnce),
    ("batch.hours_for", AtOnce),
    ("batch.deadline_evicts", AtOnce),
    ("batch.files_max", AtOnce),
    ("batch.requests_max", AtOnce),
    ("batch.request_max", AtOnce),
    ("batch.per_key", AtOnce),
    ("batch.per_key_size", AtOnce),
    ("batch.keep", AtOnce),
    ("cluster.kind", ByRestart),
    ("cluster.name", ByRestart),
    ("cluster.patience", AtOnce),
    ("cluster.scale_down_after", AtOnce),
    ("cluster.consolidate", AtOnce),
    ("cluster.renew_before", AtOnce),
    ("cluster.join_within", ByRestart),
    ("cluster.controller", ByRestart),
    ("cluster.fingerprint", ByRestart),
    ("cluster.token_file", ByRestart),
    ("cluster.program", ByRestart),
    ("cluster.node_data", ByRestart),
    ("cluster.node_options", ByRestart),
    ("cluster.max_nodes", AtOnce),
    ("cluster.budget", AtOnce),
    ("cluster.shapes", ByRestart),
    ("cluster.slurm", ByRestart),
    ("cluster.pbs", ByRestart),
    ("cluster.kubernetes", ByRestart),
    ("cluster.ray", ByRestart),
    ("cluster.command", ByRestart),
    ("node.orphan_after", AtOnce),
    ("node.silent_after", AtOnce),
    ("node.join_token_file", AtOnce),
    ("node.listen_networks", AtOnce),
    ("node.listen", ByRestart),
    ("node.plain", ByRestart),
    ("node.peers_at_once", ByRestart),
    ("node.copy_shared", ByRestart),
    ("log.level", AtOnce),
    ("log.format", ByRestart),
    ("usage.keep", AtOnce),
    ("usage.prices", AtOnce),
    ("telemetry.endpoint", ByRestart),
    ("telemetry.protocol", ByRestart),
    ("telemetry.headers_file", ByRestart),
    ("telemetry.service_name", ByRestart),
    ("telemetry.sampling_ratio", ByRestart),
    ("telemetry.metrics", ByRestart),
    ("telemetry.metrics_endpoint", ByRestart),
    ("telemetry.metrics_interval", ByRestart),
    ("compat.aviary", ByRestart),
    ("compat.ncsa", ByRestart),
    ("compat.ollama", ByRestart),
    ("compat.rayllm", ByRestart),
    ("compat.run", ByRestart),
    ("compat.run_model", AtOnce),
];

/// The class of a key; `None` for an unknown key. Nested keys have the class of their parent.
pub fn applies(key: &str) -> Option<Applies> {
    let mut names = key.split('.');
    let section = names.next()?;
    let key = names.next().map(|name| format!("{section}.{name}"));
    // The keys of `groups` and `virtual_models` are names, so each section has one class.
    let mut known = CLASSES.iter();
    let found = known.find(|(name, _)| *name == section || key.as_deref() == Some(name))?;
    Some(found.1)
}

/// Every key of the table, for tests that compare it with the schema.
pub fn classified() -> impl Iterator<Item = &'static str> {
    CLASSES.iter().map(|(name, _)| *name)
}
