//! The configuration file, overridden by environment variables, as an operator uses them. The catalogue and the memory figures have
//! separate files.
//! One file because every test reads one configuration and compares its values or its error.

mod catalog;
mod cluster;
mod database;
pub mod documents;
mod embedded;
mod mistakes;
mod need;
mod origins;
mod pbs;
mod ray_serve;
mod reload_effects;
mod remote;
mod templates;
mod wrong_files;
mod zone;

use std::collections::BTreeMap;
use std::path::Path;

use model_pool::config::{Config, ConfigError, KeepHot, Length, MaxTurn, MemoryPart, Size};
use model_pool::pool::{Bytes, Span};
use serde_json::{Value, json};
use support::assert_has;

fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Loads a file with this text.
fn load(text: &str) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    std::fs::write(&file, text).unwrap();
    Config::load(Some(&file), &BTreeMap::new())
}

fn refusal(text: &str) -> String {
    load(text).expect_err("the file is refused").to_string()
}

fn load_with(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    std::fs::write(&file, "").unwrap();
    Config::load(Some(&file), &environment(variables))
}

fn refusal_with(name: &str, value: &str) -> String {
    load_with(&[(name, value)])
        .expect_err("the variable is refused")
        .to_string()
}

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_default_file_matches_the_built_in_defaults() {
    let mut shipped = Config::load(
        Some(&repository("config/model-pool.yaml")),
        &BTreeMap::new(),
    )
    .unwrap();
    (shipped.file, shipped.local_zone) = Default::default();
    assert_eq!(shipped, Config::default());
}

#[test]
fn the_default_file_shows_every_section() {
    let text = std::fs::read_to_string(repository("config/model-pool.yaml")).unwrap();
    let effective = Config::default().effective_json();
    for (section, keys) in effective.as_object().unwrap() {
        assert!(
            text.contains(&format!("\n{section}:\n")),
            "{section} is not shown"
        );
        for key in keys.as_object().unwrap().keys() {
            let shown = [format!("  {key}:"), format!("  # {key}:")];
            assert!(
                shown.iter().any(|line| text.contains(line)),
                "{section}.{key} is not shown"
            );
        }
    }
}

#[test]
fn the_manual_explains_every_key() {
    let manual = std::fs::read_to_string(repository("docs/reference/configuration.md")).unwrap();
    for (section, keys) in Config::default().effective_json().as_object().unwrap() {
        let after = manual
            .split(&format!("\n### {section}\n"))
            .nth(1)
            .unwrap_or_default();
        let table = after.split("\n##").next().unwrap();
        for key in keys.as_object().unwrap().keys() {
            assert!(
                table.contains(&format!("| `{key}` |")),
                "{section}.{key} is not explained"
            );
        }
    }
}

#[test]
fn the_shipped_schema_matches_the_types() {
    let file = repository("config/model-pool.schema.json");
    let made = serde_json::to_string_pretty(&Config::schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == made,
        "config/model-pool.schema.json is not up to date; run UPDATE=1 cargo test --test plain config::"
    );
}

#[test]
fn the_schema_contains_exactly_the_existing_keys() {
    let schema = Config::schema();
    for (section, keys) in Config::default().effective_json().as_object().unwrap() {
        if schema["properties"][section]["additionalProperties"].is_object() {
            // Its keys are names.
            continue;
        }
        let reference = &schema["properties"][section]["$ref"];
        let place = reference.as_str().unwrap().trim_start_matches('#');
        let definition = schema.pointer(place).unwrap();
        assert_eq!(
            definition["additionalProperties"],
            json!(false),
            "{section}"
        );
        let known: Vec<&String> = definition["properties"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        let held: Vec<&String> = keys.as_object().unwrap().keys().collect();
        assert_eq!(known, held, "{section}");
    }
}

#[test]
fn a_file_of_comments_or_empty_sections_is_the_default() {
    for text in ["", "\n# nothing\n", "server: {}\n", "{}"] {
        let mut config = load(text).unwrap();
        (config.file, config.local_zone) = Default::default();
        assert_eq!(config, Config::default(), "{text:?}");
    }
}

#[test]
fn a_missing_configuration_file_is_an_error_with_its_name() {
    let error = Config::load(Some(Path::new("/nowhere/pool.yaml")), &BTreeMap::new());
    assert_has(
        &error.unwrap_err().to_string(),
        &["/nowhere/pool.yaml", "No such file"],
    );
}

#[test]
fn values_are_parsed_in_their_units() {
    let config = load(
        "pool: {keep_hot: 1h 30m, max_turn: 45s, preempt_drain: 0s}\n\
         inventory: {headroom: 2.5%, host_memory: 1.5GiB}\n\
         evening: {cleanup: null, mode: idle, timezone: Europe/Berlin}\n",
    )
    .unwrap();
    assert_eq!(config.pool.keep_hot, KeepHot::For(Length::from_secs(5400)));
    assert_eq!(config.pool.max_turn.span(), Some(Span::from_secs(45)));
    assert_eq!(config.pool.preempt_drain.0, Span::ZERO);
    assert_eq!(config.inventory.headroom.resolve(Bytes(10_000)), Bytes(250));
    assert_eq!(config.inventory.host_memory.0, Bytes(3 << 29));
    assert_eq!(config.evening.cleanup, None);
    assert_eq!(
        config.evening.reopen.as_ref().unwrap().as_str(),
        "0 0 7 * * *"
    );
    assert_eq!(config.limits().preempt_drain, Span::ZERO);
}

#[test]
fn an_unload_drains_as_long_as_the_evening_cleanup() {
    let config = load("evening: {drain: 90s}").unwrap();
    assert_eq!(config.limits().unload_drain, Span::from_secs(90));
}

#[test]
fn durations_and_sizes_round_trip_through_their_text() {
    for text in [
        "10m", "1h 30m", "500ms", "0s", "90s", "90days", "1day", "25h",
    ] {
        let length: Length = text.parse().unwrap();
        assert_eq!(length.to_string().parse::<Length>().unwrap(), length);
    }
    for bytes in [0, 1, 1023, 1024, 64 << 20, (1 << 30) + 1, 3 << 40] {
        let size = Size(Bytes(bytes));
        assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
    }
    for text in ["5%", "0%", "90%", "12.34%", "2GiB"] {
        let headroom: MemoryPart = text.parse().unwrap();
        assert_eq!(headroom.to_string(), text);
    }
    assert_eq!("auto".parse::<MaxTurn>().unwrap().to_string(), "auto");
}

#[test]
fn a_misspelled_key_is_refused_with_its_line_and_a_suggestion() {
    let text = refusal("server:\n  listen: 127.0.0.1:1\n  base_pth: /x\n");
    assert_has(
        &text,
        &[
            "pool.yaml",
            "line 3, column 3",
            "unknown key `base_pth`",
            "did you mean `base_path`?",
        ],
    );
    assert_has(&refusal("sever: {}"), &["line 1", "did you mean `server`?"]);
    assert_has(
        &refusal("pool: {xyzzy: 1}"),
        &["unknown key `xyzzy`", "known here", "`keep_hot`"],
    );
}

#[test]
fn a_misspelled_value_is_refused_with_a_suggestion() {
    assert_has(
        &refusal("auth: {inference: loopbak}"),
        &["line 1", "did you mean `loopback`?"],
    );
    assert_has(
        &refusal("evening: {timezone: America/Chcago}"),
        &["America/Chcago", "did you mean `America/Chicago`?"],
    );
    assert_has(
        &refusal("catalog: {on_unknown: download}"),
        &["unknown value `download`", "`admin`"],
    );
}

#[test]
fn a_key_given_twice_is_refused() {
    assert_has(
        &refusal("pool:\n  keep_hot: 1m\n  keep_hot: 2m\n"),
        &["`keep_hot`", "twice", "line 3"],
    );
}

#[test]
fn all_values_out_of_range_are_reported_together_with_the_allowed_ranges() {
    let text = refusal(
        "pool: {queue_limit: 0, queue_timeout: 0s, adopt_within: 999ms}\nserver: {body_limit: 2GiB, keep_alive_comment: 1ms}\ncompat: {run_model: ' '}\n",
    );
    assert_has(
        &text,
        &[
            "pool.yaml",
            "pool.queue_limit is 0; allowed: 1 to 1000000",
            "pool.queue_timeout",
            "pool.adopt_within is 999ms; allowed: 1s to 1d",
            "server.body_limit is 2GiB",
            "1KiB to 1GiB",
            "keep_alive_comment",
            "compat.run_model is empty",
        ],
    );
}

#[test]
fn an_unsupported_cluster_kind_is_refused_and_not_ignored() {
    assert_has(
        &refusal("cluster: {kind: nomad}"),
        &["kind", "nomad", "slurm", "ray", "command"],
    );
}

#[test]
fn devices_are_listed_for_the_fixed_provider_and_for_no_other() {
    assert_has(
        &refusal("inventory: {provider: fixed}"),
        &["inventory.devices is empty"],
    );
    let list = "devices: [{name: gpu0, memory: 24GiB}, {name: gpu1, memory: 24GiB, node: 1}]";
    assert_has(
        &refusal(&format!("inventory: {{provider: host, {list}}}")),
        &["lists 2 devices", "fixed"],
    );
    let config = load(&format!("inventory: {{provider: fixed, {list}}}")).unwrap();
    assert_eq!(config.inventory.devices[0].memory.0, Bytes(24 * Bytes::GIB));
    assert_eq!(
        (
            config.inventory.devices[0].node,
            config.inventory.devices[1].node
        ),
        (0, 1)
    );
    let twice =
        "inventory: {provider: fixed, devices: [{name: a, memory: 1GiB}, {name: a, memory: 1KiB}]}";
    assert_has(
        &refusal(twice),
        &[
            "devices[1].name `a` is given twice",
            "devices[1].memory is 1KiB",
        ],
    );
}

#[test]
fn the_environment_overrides_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    std::fs::write(&file, "pool: {keep_hot: 1m, queue_limit: 5}\n").unwrap();
    let variables = environment(&[
        ("MODEL_POOL__POOL__KEEP_HOT", "2m"),
        ("MODEL_POOL__SERVER__LISTEN", "0.0.0.0:0"),
        ("MODEL_POOL__EVENING__CLEANUP", "null"),
        ("MODEL_POOL__EVENING__REOPEN", "0 30 6 * * *"),
        ("MODEL_POOL__INVENTORY__PROVIDER", "fixed"),
        (
            "MODEL_POOL__INVENTORY__DEVICES",
            "[{name: gpu0, memory: 8GiB}]",
        ),
        ("MODEL_POOL__STATE__DIR", "2026"),
        ("PATH", "/usr/bin"),
    ]);
    let config = Config::load(Some(&file), &variables).unwrap();
    assert_eq!(config.pool.keep_hot, KeepHot::For(Length::from_secs(120)));
    assert_eq!(config.pool.queue_limit, 5);
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:0");
    assert_eq!(config.evening.cleanup, None);
    assert_eq!(
        config.evening.reopen.as_ref().unwrap().as_str(),
        "0 30 6 * * *"
    );
    assert_eq!(config.inventory.devices.len(), 1);
    assert_eq!(config.state.dir, Path::new("2026"));
    assert_eq!(config.file.as_deref(), Some(file.as_path()));
}

#[test]
fn every_key_can_be_set_from_the_environment() {
    for (section, keys) in Config::default().effective_json().as_object().unwrap() {
        for (key, value) in keys.as_object().unwrap() {
            let name = format!("MODEL_POOL__{section}__{key}").to_uppercase();
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let config = load_with(&[(&name, &text)])
                .unwrap_or_else(|error| panic!("{name}={text}: {error}"));
            assert_eq!(config.effective_json()[section][key], *value, "{name}");
        }
    }
}

#[test]
fn an_unknown_variable_is_refused_with_a_suggestion() {
    assert_has(
        &refusal_with("MODEL_POOL__POOL__KEEPHOT", "1m"),
        &[
            "MODEL_POOL__POOL__KEEPHOT",
            "did you mean MODEL_POOL__POOL__KEEP_HOT?",
        ],
    );
    assert_has(
        &refusal_with("MODEL_POOL__POOL", "1m"),
        &["MODEL_POOL__POOL "],
    );
    assert_has(
        &refusal_with("MODEL_POOL__POOL__MAX_TURN__X", "1m"),
        &["names no key"],
    );
}

#[test]
fn an_invalid_environment_value_is_reported_with_its_variable() {
    assert_has(
        &refusal_with("MODEL_POOL__INVENTORY__HEADROOM", "99%"),
        &["MODEL_POOL__INVENTORY__HEADROOM", "0% to 90%"],
    );
    assert_has(
        &refusal_with("MODEL_POOL__POOL__QUEUE_LIMIT", "-1"),
        &["MODEL_POOL__POOL__QUEUE_LIMIT", "-1"],
    );
    assert_has(
        &refusal_with("MODEL_POOL__POOL__QUEUE_LIMIT", "0"),
        &["pool.queue_limit is 0"],
    );
    assert_has(
        &refusal_with("MODEL_POOL__POOL__QUEUE_LIMIT", "many"),
        &["pool.queue_limit", "many", "whole number"],
    );
    assert_has(
        &refusal_with("MODEL_POOL__EVENING__MODE", "idel"),
        &["did you mean `idle`?"],
    );
}

#[test]
fn variables_of_other_programs_are_ignored() {
    let config = load_with(&[
        ("MODEL_POOL_SERVER", "http://x"),
        ("MODEL_POOL_ADMIN_KEY", "mp-secret"),
        ("MODEL_POOL_NVML_LIBRARY", "/lib/nvml.so"),
    ])
    .unwrap();
    assert!(!config.effective_json().to_string().contains("mp-secret"));
}

#[test]
fn a_moved_state_folder_also_moves_the_database_and_key_defaults() {
    let config = load("state: {dir: /var/lib/pool}").unwrap();
    assert_eq!(
        config.database_url().path(),
        Some(Path::new("/var/lib/pool/model-pool.db"))
    );
    assert_eq!(
        config.admin_key_file(),
        Path::new("/var/lib/pool/admin.key")
    );
    let effective = config.effective_json();
    assert_eq!(
        effective["state"]["database_url"],
        json!("sqlite:///var/lib/pool/model-pool.db")
    );
    let config =
        load("state: {database_url: sqlite://elsewhere.db}\nauth: {admin_key_file: k}").unwrap();
    assert_eq!(
        config.database_url().path(),
        Some(Path::new("elsewhere.db"))
    );
    assert_eq!(config.admin_key_file(), Path::new("k"));
}

#[test]
fn an_option_without_effect_is_reported() {
    assert_eq!(Config::default().notices(), Vec::<String>::new());
    let text = "cluster: {patience: 1m}\nevening: {reopen: null}\ncompat: {run_model: a}\n";
    let notices = load(text).unwrap().notices().join("\n");
    let keys = ["cluster.patience", "evening.reopen", "compat.run_model"];
    assert_has(&notices, &keys);
}
