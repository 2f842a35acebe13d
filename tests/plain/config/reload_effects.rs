//! A reload and the configuration keys: each key either takes effect with the reload or is reported to need a restart.

use std::collections::BTreeSet;

use model_pool::config::{Applies, Config, applies, classified};
use serde_json::Value;

use super::load;

/// All keys of the schema below the sections, at every depth.
fn keys_of_the_schema() -> BTreeSet<String> {
    let schema = Config::schema();
    let mut keys = BTreeSet::new();
    for (section, node) in schema["properties"].as_object().unwrap() {
        walk(&schema, node, section, &mut keys);
        if node.get("additionalProperties").is_some() {
            // Its keys are names.
            keys.insert(section.clone());
        }
    }
    keys
}

fn walk(schema: &Value, node: &Value, path: &str, keys: &mut BTreeSet<String>) {
    if let Some(reference) = node["$ref"].as_str() {
        let place = reference.trim_start_matches('#');
        return walk(schema, schema.pointer(place).unwrap(), path, keys);
    }
    for kind in ["anyOf", "oneOf"] {
        for one in node[kind].as_array().into_iter().flatten() {
            walk(schema, one, path, keys);
        }
    }
    for (name, below) in node["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        walk(schema, below, &path, keys);
        keys.insert(path);
    }
}

#[test]
fn every_key_of_the_schema_has_exactly_one_class() {
    let keys = keys_of_the_schema();
    for deep in [
        "limits.redis.url",
        "state.history.keep",
        "auth.oidc.issuer",
        "server.cors.origins",
    ] {
        assert!(keys.contains(deep), "the walk misses {deep}");
    }
    for key in &keys {
        let above = |name: &&str| key == name || key.starts_with(&format!("{name}."));
        let classes: Vec<&str> = classified().filter(above).collect();
        assert_eq!(
            classes.len(),
            1,
            "{key} has {classes:?}: put it into src/config/loading/classes.rs, and say how a reload applies it"
        );
        assert!(applies(key).is_some(), "{key}");
    }
    for name in classified() {
        assert!(keys.contains(name), "{name} is no longer a key");
    }
    for unknown in ["pool.keephot", "pool", "", "nothing.here"] {
        assert_eq!(applies(unknown), None, "{unknown}");
    }
}

/// Another value for each key, and additional settings that it requires.
const OTHERS: &[(&str, &str, &str)] = &[
    ("server.listen", "127.0.0.1:9", ""),
    ("server.socket_mode", "\"660\"", "listen: unix:/run/a.sock"),
    ("server.socket_group", "lab", "listen: unix:/run/a.sock"),
    ("server.base_path", "/other", ""),
    ("server.body_limit", "1MiB", ""),
    ("server.keep_alive_comment", "11s", ""),
    ("server.hosts", "[llm.example.org]", ""),
    ("server.tls", "{cert: a.pem, key: b.pem}", ""),
    ("server.cors", "{origins: ['*']}", ""),
    ("server.trusted_proxies", "[10.0.0.7]", ""),
    ("server.access_log", "stderr", ""),
    ("server.access_log_max", "1MiB", ""),
    ("server.vllm_metrics", "true", ""),
    ("server.connections_max", "9", ""),
    ("server.connections_per_address", "9", ""),
    ("server.idle_timeout", "9s", ""),
    ("server.body_timeout", "9s", ""),
    ("server.bodies_memory", "99MiB", ""),
    ("server.recordings_max", "9GiB", ""),
    ("server.write_timeout", "9s", ""),
    ("server.sequences_max", "9", ""),
    ("server.reading_workers", "9", ""),
    ("server.validation_workers", "9", ""),
    ("server.token_workers", "9", ""),
    ("state.dir", "elsewhere", ""),
    ("state.database_url", "sqlite://other.db", ""),
    ("state.history", "{keep: 1day}", ""),
    ("state.responses", "{store: false}", ""),
    (
        "state.standby",
        "{advertise: 'https://pool-1.example.org:8443'}",
        "database_url: postgres://pool@db/pool",
    ),
    ("inventory.provider", "host", ""),
    ("inventory.host_memory", "1GiB", ""),
    ("inventory.headroom", "9%", ""),
    ("inventory.cuda_program", "/opt/model-pool-cuda", ""),
    (
        "inventory.devices",
        "[{name: gpu0, memory: 8GiB}]",
        "provider: nvml",
    ),
    ("inventory.command", "[/opt/devices]", ""),
    ("pool.keep_hot", "9m", ""),
    ("pool.keep_hot_scope", "device", ""),
    ("pool.keep_hot_least", "9s", ""),
    ("pool.keep_hot_most", "9h", ""),
    ("pool.min_resident", "9s", ""),
    ("pool.max_turn", "9s", ""),
    ("pool.policy", "lru", ""),
    ("pool.objective", "reload", ""),
    ("pool.targets", "{0: 9s}", ""),
    ("pool.idle_yields", "9m", ""),
    ("pool.preempt_drain", "9s", ""),
    ("pool.queue_limit", "9", ""),
    ("pool.queue_timeout", "9s", ""),
    ("pool.heartbeat", "9s", ""),
    ("pool.heartbeat_timeout", "1s", ""),
    ("pool.heartbeat_misses", "9", ""),
    ("pool.stall_after", "9s", ""),
    ("pool.first_token_after", "9m", ""),
    ("pool.idle_probe", "off", ""),
    ("pool.unknown_fields", "drop", ""),
    ("pool.on_restart", "stop", ""),
    ("pool.adopt_within", "9s", ""),
    ("parking.host_memory", "9%", ""),
    ("parking.reserve", "9%", ""),
    ("parking.keep", "9m", ""),
    ("parking.read_ahead", "false", ""),
    ("evening.cleanup", "0 0 22 * * *", ""),
    ("evening.reopen", "null", ""),
    ("evening.timezone", "Asia/Tokyo", ""),
    ("evening.mode", "idle", ""),
    ("evening.drain", "9m", ""),
    ("catalog.models_dir", "elsewhere", ""),
    ("catalog.model_reference", "other.json", ""),
    ("catalog.strict", "true", ""),
    ("catalog.on_unknown", "refuse", ""),
    ("catalog.unknown_engine", "VLLMEngine", ""),
    ("catalog.unknown_limit", "9", ""),
    ("catalog.unknown_per_hour", "9", ""),
    ("catalog.unknown_size", "9GiB", ""),
    ("catalog.unknown_private", "true", ""),
    ("sources.cache_dir", "elsewhere", ""),
    ("sources.hub", "https://hub.example.org", ""),
    ("sources.offline", "true", ""),
    ("sources.files_at_once", "9", ""),
    ("sources.models_at_once", "9", ""),
    ("sources.keep_free", "9GiB", ""),
    ("sources.extra_roots", "[/srv]", ""),
    ("auth.inference", "key", ""),
    ("auth.metrics", "admin", ""),
    ("auth.admin_key_file", "other.key", ""),
    ("auth.first_admin_key_file", "/run/secrets/admin", ""),
    (
        "auth.oidc",
        "{issuer: 'https://a.example', audience: pool, everybody: {role: user}}",
        "",
    ),
    ("limits.default", "{tokens_per_day: 9}", ""),
    ("limits.anonymous", "{tokens_per_day: 9}", ""),
    ("limits.models", "{'org/*': {tokens_per_day: 9}}", ""),
    ("limits.redis", "{url: 'redis://127.0.0.1:6379/0'}", ""),
    ("cluster.kind", "slurm", NODES),
    ("cluster.name", "lab", ""),
    ("cluster.patience", "9m", ""),
    ("cluster.scale_down_after", "9m", ""),
    ("cluster.consolidate", "false", ""),
    ("cluster.renew_before", "20m", ""),
    ("cluster.join_within", "5m", ""),
    ("cluster.max_nodes", "3", ""),
    ("cluster.budget", "{gpu_hours_per_day: 100}", ""),
    ("cluster.controller", "https://pool.example.org:8443", ""),
    ("cluster.fingerprint", FINGERPRINT, ""),
    ("cluster.token_file", "/shared/token", ""),
    ("cluster.program", "/shared/model-pool", ""),
    ("cluster.node_data", "/scratch/pool", ""),
    ("cluster.node_options", "[--listen]", ""),
    (
        "cluster.shapes",
        "[{name: a, gpus: 1, memory: 24GiB, time_limit: 8h}]",
        "",
    ),
    ("cluster.slurm", "{partition: gpu}", ""),
    ("cluster.pbs", "{queue: gpu}", ""),
    ("cluster.kubernetes", "{timeout: 9s}", ""),
    ("cluster.ray", "{cpus: 2}", ""),
    ("cluster.command", "{timeout: 9s}", ""),
    ("node.orphan_after", "9m", ""),
    ("node.silent_after", "9s", ""),
    ("node.join_token_file", "/run/secrets/join", ""),
    ("node.listen_networks", "[10.0.0.0/24]", ""),
    ("node.listen", "127.0.0.1:9", ""),
    ("node.plain", "true", ""),
    ("node.peers_at_once", "1", ""),
    ("node.copy_shared", "true", ""),
    ("log.level", "debug", ""),
    ("log.format", "json", ""),
    ("usage.keep", "90d", ""),
    ("usage.prices", "{device_hour: 2}", ""),
    ("telemetry.endpoint", "http://127.0.0.1:4318", ""),
    ("telemetry.protocol", "http/json", ""),
    ("telemetry.headers_file", "headers", ""),
    ("telemetry.service_name", "lab", ""),
    ("telemetry.sampling_ratio", "0.5", ""),
    ("telemetry.metrics", "false", ""),
    (
        "telemetry.metrics_endpoint",
        "http://127.0.0.1:4318/v1/metrics",
        "",
    ),
    ("telemetry.metrics_interval", "30s", ""),
    ("compat.aviary", "true", ""),
    ("compat.ncsa", "true", ""),
    ("compat.ollama", "true", ""),
    ("compat.rayllm", "true", ""),
    ("compat.run", "true", ""),
    ("compat.run_model", "tiny-chat", ""),
    // The tests below try them.
    ("groups", "", ""),
    ("virtual_models", "", ""),
    ("batch.nodes", "", ""),
    ("batch.hours", "never", ""),
    ("batch.hours_for", "2h", ""),
    ("batch.deadline_evicts", "true", ""),
    ("batch.files_max", "1GiB", ""),
    ("batch.requests_max", "9", ""),
    ("batch.request_max", "1MiB", ""),
    ("batch.per_key", "9", ""),
    ("batch.per_key_size", "9GiB", ""),
    ("batch.keep", "9h", ""),
    ("batch.bucket", "s3://lab-batches/files", ""),
];

/// Required settings of a cluster in addition to its kind.
const NODES: &str = "controller: https://a.example\n  token_file: /t\n  shapes: [{name: a, gpus: 1, memory: 24GiB, time_limit: 8h}]";
const FINGERPRINT: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

#[test]
fn every_key_takes_effect_on_reload_or_is_reported_as_needing_a_restart() {
    let tried: BTreeSet<&str> = OTHERS.iter().map(|(key, ..)| *key).collect();
    assert_eq!(
        tried,
        classified().collect(),
        "try each key with another value"
    );
    for &(key, other, given) in OTHERS {
        let Some((section, name)) = key.split_once('.').filter(|_| !other.is_empty()) else {
            continue;
        };
        let given = if given.is_empty() {
            String::new()
        } else {
            format!("  {given}\n")
        };
        let running = load(&format!("{section}:\n{given}")).unwrap();
        let newer = load(&format!("{section}:\n{given}  {name}: {other}\n")).unwrap();
        let (reloaded, comparison) = running.reloaded(&newer).unwrap();
        let in_force = &reloaded.effective_json()[section][name];
        let (before, wanted) = (running.effective_json(), newer.effective_json());
        assert_ne!(before[section][name], wanted[section][name], "{key}");
        let (changes, others, value) = match applies(key).unwrap() {
            Applies::AtOnce | Applies::ToNewEngines => {
                (comparison.applied, comparison.needs_restart, &wanted)
            }
            Applies::ByRestart => (comparison.needs_restart, comparison.applied, &before),
        };
        assert_eq!(*in_force, value[section][name], "{key} after the reload");
        assert_eq!(others, [], "{key}");
        assert!(
            changes
                .iter()
                .any(|change| change.key == key || change.key.starts_with(&format!("{key}."))),
            "{key} is not named: {changes:?}"
        );
        // Values that derive from the state folder change with it.
        let alone = key == "state.dir" || changes.len() == 1;
        assert!(alone, "{key} is not alone: {changes:?}");
    }
}

#[test]
fn a_reload_adds_changes_and_removes_groups() {
    let running = load("groups: {lab: {weight: 2}, old: {keys: [k1]}}\n").unwrap();
    let newer = load("groups: {lab: {weight: 3}, new: {parent: lab}}\n").unwrap();
    let (reloaded, comparison) = running.reloaded(&newer).unwrap();
    assert_eq!(reloaded.groups, newer.groups);
    assert_eq!(comparison.needs_restart, []);
    assert_eq!(comparison.applied[0].key, "groups");
    let newer = load("groups: {lab: {weight: 3}, old: {keys: [k1]}}\n").unwrap();
    let (_, comparison) = running.reloaded(&newer).unwrap();
    assert_eq!(comparison.applied[0].key, "groups.lab.weight");
}

#[test]
fn a_reload_adds_changes_and_removes_virtual_models() {
    let running = load("virtual_models: {coder: {any_of: [a]}, old: {any_of: [b]}}\n").unwrap();
    let newer = load("virtual_models: {coder: {any_of: [a, b]}, new: {any_of: [b]}}\n").unwrap();
    let (reloaded, comparison) = running.reloaded(&newer).unwrap();
    assert_eq!(reloaded.virtual_models, newer.virtual_models);
    assert_eq!(comparison.needs_restart, []);
    assert_eq!(comparison.applied[0].key, "virtual_models");
    let newer = load("virtual_models: {coder: {any_of: [b]}, old: {any_of: [b]}}\n").unwrap();
    let (_, comparison) = running.reloaded(&newer).unwrap();
    assert_eq!(comparison.applied[0].key, "virtual_models.coder.any_of");
}

#[test]
fn a_reload_sets_and_removes_nodes_for_batches() {
    let cluster = format!("cluster:\n  kind: slurm\n  {NODES}\n");
    let none = load(&cluster).unwrap();
    let with = |nodes: &str| load(&format!("{cluster}batch: {{nodes: {nodes}}}\n")).unwrap();
    let two = with("{max: 2, gpu_hours_per_day: 8}");
    for (running, newer) in [(&none, &two), (&two, &with("{max: 3}")), (&two, &none)] {
        let (reloaded, comparison) = running.reloaded(newer).unwrap();
        assert_eq!(reloaded.batch.nodes, newer.batch.nodes);
        assert_eq!(comparison.needs_restart, []);
        let applied = comparison.applied.iter();
        assert!(applied.clone().count() > 0);
        assert!(
            applied
                .clone()
                .all(|change| change.key.starts_with("batch.nodes"))
        );
    }
    assert_eq!(none.limits().batch_nodes, None);
    let limits = two.limits().batch_nodes.expect("configured");
    assert_eq!(
        (limits.nodes_max, limits.day.gpu_seconds),
        (2, Some(28_800))
    );
    assert_eq!(limits.day.cents, None);
}
