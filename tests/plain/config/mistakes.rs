//! Common mistakes in the configuration. Each message contains the location, the value, and the remedy.
//! One file because every test loads one wrong configuration and reads its message.

use std::collections::BTreeMap;

use model_pool::config::Config;
use support::table::rows;

use super::{assert_has, environment, refusal};

/// The text of the file | parts of the message. Every message contains the file name.
const FILES: &str = r#"
    // Times of the evening.
    evening:\n  cleanup: 0 0 21 31 2 *\n | line 2 | evening.cleanup | `0 0 21 31 2 *` never occurs | "0 0 21 * * *"
    evening:\n  cleanup: 0 0 25 * * *\n | line 2 | evening.cleanup | the hour (field 3) is `25`; allowed: 0 to 23
    evening:\n  drain: 5m\n  reopen: 0 75 7 * * *\n | line 3 | evening.reopen | the minute (field 2) is `75`; allowed: 0 to 59
    evening:\n  cleanup: 0 21 * * *\n | line 2 | evening.cleanup | has 5 fields | six fields
    evening:\n  cleanup: '21:00'\n | line 2 | evening.cleanup | has 1 fields | "0 0 21 * * *" for every day at 21:00
    evening:\n  cleanup: 0 0 7 * * *\n | evening.reopen is `0 0 7 * * *`, the same times as evening.cleanup | another time such as "0 0 9 * * *"
    evening:\n  cleanup: 0 0 9 * * MON\n  reopen: 0 0 9 * * 1\n | line 3 | evening.reopen | the same times
    evening:\n  timezone: CEST\n | line 2 | evening.timezone | `CEST` is not a time zone | local for the zone of this machine | Europe/Berlin
    evening:\n  timezone: europe/berlin\n | line 2 | did you mean `Europe/Berlin`?
    evening:\n  mode: everything\n | line 2 | evening.mode | unknown value `everything` | `all`, `idle`
    // Durations.
    pool:\n  keep_hot: -5m\n | line 2 | pool.keep_hot | `-5m` is negative | 10m
    pool:\n  keep_hot: 10 minutes and a bit\n | line 2 | pool.keep_hot | 10m
    pool:\n  preempt_drain: 30\n | line 2 | pool.preempt_drain | `30` | 90s
    pool:\n  queue_limit: 9\n  queue_timeout: 0s\n | line 3 | pool.queue_timeout is 0s | such as 5m
    pool:\n  max_turn: 0s\n | line 2 | pool.max_turn is 0s | 30s, or auto
    pool:\n  keep_hot_most: 0s\n  keep_hot_least: 0s\n | line 2 | pool.keep_hot_most is 0s | such as 24h
    parking:\n  keep: 0s\n | line 2 | parking.keep is 0s | such as 1h | parking.host_memory to 0%
    pool:\n  idle_probe: never\n | line 2 | pool.idle_probe | `never` | off disables it
    pool:\n  keep_hot_least: 2h\n  keep_hot_most: 1h\n | line 2 | pool.keep_hot_least is 2h, more than pool.keep_hot_most
    pool:\n  heartbeat: 1s\n | pool.heartbeat_timeout is 2s; allowed: 1ms to pool.heartbeat, which is 1s
    // Numbers and sizes.
    pool:\n  queue_limit: 0\n | line 2 | pool.queue_limit is 0; allowed: 1 to 1000000
    pool:\n  queue_limit: -1\n | line 2 | pool.queue_limit | a non-negative whole number
    pool:\n  queue_limit: 1.5\n | line 2 | pool.queue_limit | non-negative whole number
    inventory:\n  host_memory: 64\n | line 2 | inventory.host_memory | `64` | 64MiB
    inventory:\n  headroom: 150%\n | line 2 | inventory.headroom | 0% to 90%
    inventory:\n  provider: fixed\n  devices:\n    - {name: a, memory: 1GiB}\n    - {name: a, memory: 1GiB}\n | line 5 | inventory.devices[1].name `a` is given twice
    inventory:\n  provider: fixed\n | inventory.devices is empty | {name: gpu0, memory: 24GiB}
    state:\n  history:\n    keep: 90days\n    rows_max: 5\n | line 4 | state.history.rows_max is 5; allowed: 100 to 100000000
    state:\n  responses:\n    per_key: 0\n | line 3 | state.responses.per_key is 0; allowed: 1 to 100000
    state:\n  responses:\n    background_per_key: 0\n | line 3 | state.responses.background_per_key is 0; allowed: 1 to 10000
    state:\n  responses:\n    background_wait: 0s\n | line 3 | state.responses.background_wait is 0s; allowed: 1s and more
    state:\n  responses:\n    size: 1MiB\n | line 3 | less than state.responses.per_key_size (64MiB)
    groups:\n  lab:\n    weight: 0\n | line 3 | groups.lab.weight is 0; allowed: 1 to 1000
    groups:\n  a:\n    parent: b\n  b:\n    parent: a\n | line 3 | groups.a.parent | contain each other: a in b
    groups:\n  a:\n    keys: [k1]\n  b:\n    keys: [k1]\n | line 5 | groups.b.keys[0] is `k1`, which already belongs to a
    virtual_models:\n  coder:\n    any_of: [m, coder]\n | line 3 | virtual_models.coder.any_of[1] is `coder`, the virtual model itself; name a model
    virtual_models:\n  a: {any_of: [m]}\n  org/b.c:\n    fallback:\n      - m\n      - a\n | line 6 | virtual_models.org/b.c.fallback[1] is `a`, which is a virtual model
    virtual_models:\n  a:\n    split:\n      m: 0\n | line 4 | virtual_models.a.split.m is 0; allowed: more than 0
    virtual_models:\n  a: {}\n | line 2 | virtual_models.a has no rule; set one of any_of, split, fallback and by
    limits:\n  models:\n    org/a.b:\n      tokens_per_day: 0\n | line 4 | limits.models.org/a.b.tokens_per_day is 0; allowed: 1 to
    server:\n  recordings_max: 19MiB\n | line 2 | server.recordings_max is 19MiB | server.body_limit is 10MiB
    // Addresses and names.
    batch:\n  keep: 1d\n  bucket: az://lab/files\n | line 3 | batch.bucket | must begin with s3:// or gs://
    batch:\n  bucket: 's3:///files'\n | line 2 | batch.bucket | names no bucket
    batch:\n  bucket: 's3://KEY:SECRET@lab/files'\n | line 2 | batch.bucket | no credentials | AWS_ACCESS_KEY_ID
    server:\n  listen: 8080\n | line 2 | server.listen | has no port | 127.0.0.1:8080
    server:\n  listen: myhost:8080\n | line 2 | server.listen | `myhost` | not an IP address | 0.0.0.0:8080
    server:\n  hosts: ['http://llm.example.org']\n | line 2 | server.hosts[0] | without http://
    server:\n  cors:\n    origins: [lab.example.org]\n | line 3 | server.cors.origins[0] | `lab.example.org` is not an origin | https://lab.example.org
    server:\n  tls: {cert: a.pem}\n | line 2 | server.tls | the key `key` is missing
    auth:\n  oidc:\n    issuer: login.example.org\n    audience: pool\n    everybody: {role: user}\n | line 3 | auth.oidc.issuer is not a URL such as https://
    sources:\n  hub: https://me:word@hub.example.org\n | line 2 | sources.hub | HF_ENDPOINT
    // The form of the file.
    pool:\n  keephot: 5m\n | line 2 | unknown key `keephot`; did you mean `keep_hot`?
    pool:\n\tkeep_hot: 5m\n | line 2
    pool: [keep_hot, 5m]\n | line 1 | pool | keys with values
    pool:\n  keep_hot: 5m\npool:\n  keep_hot: 6m\n | line 3 | `pool` is given twice
    // The form of a value.
    pool:\n  keep_hot: 600\n | line 2 | `600` | 10m
    pool:\n  keep_hot:\n | line 2 | missing
    pool: {keep_hot: 99y} | too long | 10 years
    inventory: {headroom: 95%} | 95% | 0% to 90%
    inventory: {host_memory: much} | `much` | 24GiB
    inventory: {headroom: 5} | `5` | 0% to 90% | 2GiB
    server: {listen: "127.0.0.1:99999"} | 99999 | 0 to 65535
    server: {listen: "here:80"} | `here` | 127.0.0.1:8080
    server: {base_path: llm/} | `llm/` | /llm
    server: {base_path: /v1} | /v1 | collides
    evening: {cleanup: 0 21 * * *} | 5 fields | six fields
    evening: {reopen: 0 0 99 * * *} | 0 0 99 * * * | not a cron expression
    pool: {queue_limit: many} | line 1 | whole number
"#;

#[test]
fn a_mistake_in_the_file_is_reported_with_its_position_and_a_correction() {
    for row in rows(FILES) {
        let told = refusal(row[0]);
        assert_has(&told, &["pool.yaml"]);
        assert_has(&told, &row[1..]);
    }
}

/// A variable | its value | parts of the message
const VARIABLES: &str = r"
    MODEL_POOL__POOL__KEEPHOT | 5m | MODEL_POOL__POOL__KEEPHOT names no key | did you mean MODEL_POOL__POOL__KEEP_HOT?
    MODEL_POOL__SERVE__LISTEN | 0.0.0.0:80 | did you mean MODEL_POOL__SERVER__LISTEN?
    MODEL_POOL__LISTEN | 0.0.0.0:80 | names no key | MODEL_POOL__SECTION__KEY | MODEL_POOL__SERVER__LISTEN
    MODEL_POOL__POOL__QUEUE_LIMIT | 0 | the environment variable MODEL_POOL__POOL__QUEUE_LIMIT: pool.queue_limit is 0; allowed: 1 to
    MODEL_POOL__POOL__QUEUE_LIMIT | many | MODEL_POOL__POOL__QUEUE_LIMIT | whole number
    MODEL_POOL__EVENING__CLEANUP | 0 0 25 * * * | MODEL_POOL__EVENING__CLEANUP | the hour (field 3) is `25`
    MODEL_POOL__STATE__HISTORY | {rows_max: 1} | MODEL_POOL__STATE__HISTORY | state.history.rows_max is 1; allowed: 100
    MODEL_POOL__SERVER__TLS | cert.pem | MODEL_POOL__SERVER__TLS
";

#[test]
fn a_mistake_in_a_variable_names_the_variable() {
    for row in rows(VARIABLES) {
        let (name, value) = (row[0], row[1]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pool.yaml");
        // The file also sets the key, but is not the cause.
        std::fs::write(&file, "pool: {queue_limit: 5}\n").unwrap();
        let told = Config::load(Some(&file), &environment(&[(name, value)]))
            .expect_err(name)
            .to_string();
        assert_has(&told, &row[2..]);
        assert!(!told.contains("pool.yaml"), "{told}");
    }
}

#[test]
fn several_mistakes_are_reported_on_separate_lines_with_their_positions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    std::fs::write(&file, "pool:\n  queue_limit: 0\n  adopt_within: 1ms\n").unwrap();
    let variables = environment(&[("MODEL_POOL__SERVER__SEQUENCES_MAX", "0")]);
    let told = Config::load(Some(&file), &variables)
        .unwrap_err()
        .to_string();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    assert_has(lines[0], &["3 problems"]);
    assert_has(
        &told,
        &[
            "pool.yaml: line 2: pool.queue_limit is 0",
            "pool.yaml: line 3: pool.adopt_within is 1ms",
            "the environment variable MODEL_POOL__SERVER__SEQUENCES_MAX: server.sequences_max is 0",
        ],
    );
    let fine = Config::load(
        Some(&file),
        &BTreeMap::from([
            ("MODEL_POOL__POOL__QUEUE_LIMIT".to_owned(), "1".to_owned()),
            ("MODEL_POOL__POOL__ADOPT_WITHIN".to_owned(), "1s".to_owned()),
        ]),
    );
    assert!(
        fine.is_ok(),
        "what a variable replaces is not looked at: {fine:?}"
    );
}

#[test]
fn wrong_values_of_every_kind_are_reported_in_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    let text = "server:
  listen: 127.0.0.1:99999
  keep_hot: 10m
pool:
  keep_hot: 10 Minuten
  queue_limit: 0
  keep_hot_most: wide
  keep_hot_least: 30h
evening:
  cleanup: '0 21 * * *'
inventory:
  provider: fixed
  devices:
    - {name: gpu0, memory: 24 gigs}
    - {name: gpu1}
";
    std::fs::write(&file, text).unwrap();
    let variables = environment(&[
        ("MODEL_POOL__SOURCES__OFFLINE", "perhaps"),
        ("MODEL_POOL__SERVR__LISTEN", "127.0.0.1:1"),
        ("MODEL_POOL_SERVER_LISTEN", "127.0.0.1:1"),
        ("MODEL_POOL_SERVER", "http://127.0.0.1:1"),
        ("MODEL_POOL__SERVER__SEQUENCES_MAX", "0"),
    ]);
    let refused = Config::load(Some(&file), &variables)
        .unwrap_err()
        .to_string();
    let lines: Vec<&str> = refused.lines().collect();
    let expected: [&[&str]; 12] = [
        &["12 problems"],
        &["line 2", "server.listen", "99999"],
        &["line 3", "server.keep_hot", "belongs to the section `pool`"],
        &["line 5", "pool.keep_hot", "Minuten"],
        &["line 7", "pool.keep_hot_most", "wide"],
        &["line 10", "evening.cleanup", "5 fields"],
        &["line 14", "inventory.devices[0].memory"],
        &["line 15", "inventory.devices[1]", "`memory` is missing"],
        &["MODEL_POOL_SERVER_LISTEN", "MODEL_POOL__SERVER__LISTEN"],
        &["MODEL_POOL__SERVR__LISTEN", "did you mean"],
        &["MODEL_POOL__SOURCES__OFFLINE", "perhaps"],
        &["line 6", "pool.queue_limit is 0"],
    ];
    for parts in expected {
        let found = lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?} in\n{refused}");
    }
    assert_has(&refused, &["server.sequences_max is 0"]);
    assert_eq!(lines.len(), 13, "{refused}");
}

/// A file with one changed value and all others commented out.
#[test]
fn the_shipped_configuration_can_be_commented_out() {
    let text = std::fs::read_to_string(super::repository("config/model-pool.yaml")).unwrap();
    let commented: Vec<String> = text
        .lines()
        .map(|line| match line.strip_prefix("  ") {
            Some(value) if !value.trim_start().starts_with('#') => format!("#  {value}"),
            _ => line.to_owned(),
        })
        .collect();
    let one_value = format!(
        "{}\npool:\n  queue_limit: 7\n",
        commented.join("\n").replace("\npool:", "\n#pool:")
    );
    let config = super::load(&one_value).expect("comments are not values");
    assert_eq!(config.pool.queue_limit, 7);
}
