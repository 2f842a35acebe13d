//! The location of the state: valid URLs, and passwords that are never printed.

use model_pool::config::Config;
use serde_json::json;
use support::table::rows;

use super::{assert_has, environment, load, refusal};

#[test]
fn a_database_url_that_cannot_be_used_is_refused_without_its_password() {
    for (url, parts) in [
        (
            "mysql://me:hunter2@db/pool",
            &["not a database URL", "sqlite://data/model-pool.db"][..],
        ),
        ("postgres://me:hunt@er2@db/pool", &["%40"]),
        ("postgres://me:hunt/er2@db/pool", &["%2F"]),
        (
            "postgres://me@db/pool?password=hunter2",
            &["before the `@`", "~/.pgpass"],
        ),
        (
            "postgres://me:hunter2@db/pool?sslmod=require",
            &["`sslmod`", "sslmode"],
        ),
        ("postgres://me:hunter2@db/pool#x", &["has no `#`"]),
        ("postgres://", &["not a database URL"]),
    ] {
        let text = refusal(&format!("state: {{database_url: \"{url}\"}}"));
        assert_has(&text, parts);
        for secret in ["hunter2", "hunt@", "er2"] {
            assert!(!text.contains(secret), "the password shows: {text}");
        }
    }
}

#[test]
fn the_password_of_a_database_is_used_and_never_shown() {
    let text = "state: {database_url: \"postgres://me:hunter2@db:5433/pool?sslmode=require\"}";
    let whole = "postgres://me:hunter2@db:5433/pool?sslmode=require";
    let shown = "postgres://me:…@db:5433/pool?sslmode=require";
    let config = load(text).unwrap();
    assert_eq!(config.database_url().reveal(), whole);
    assert_eq!(config.database_url().to_string(), shown);
    assert!(config.database_url().has_password());
    assert_eq!(
        config.effective_json()["state"]["database_url"],
        json!(shown)
    );
    assert!(!format!("{config:?}").contains("hunter2"));
    // A variable for another key and a reload preserve it.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    std::fs::write(&file, text).unwrap();
    let variables = environment(&[("MODEL_POOL__STATE__DIR", "elsewhere")]);
    let changed = Config::load(Some(&file), &variables).unwrap();
    assert_eq!(changed.database_url().reveal(), whole);
    let (reloaded, comparison) = config.reloaded(&changed).unwrap();
    assert_eq!(reloaded.database_url().reveal(), whole);
    assert!(!format!("{comparison:?}").contains("hunter2"));
    let other = load(&text.replace("hunter2", "hunter3")).unwrap();
    let (_, comparison) = config.reloaded(&other).unwrap();
    let keys: Vec<&str> = comparison
        .needs_restart
        .iter()
        .map(|change| change.key.as_str())
        .collect();
    assert_eq!(keys, ["state.database_url"]);
    assert!(!format!("{comparison:?}").contains("hunter"));
    let without = load("state: {database_url: \"postgres:///pool\"}").unwrap();
    assert_eq!(without.database_url().to_string(), "postgres:///pool");
    assert!(!without.database_url().has_password());
}

/// The section `standby` | parts of the message
const STANDBYS: &str = r#"
    {advertise: pool-1} | state.standby.advertise is not a URL | https://pool
    {advertise: "https://pool-1:8443/llm"} | state.standby.advertise has a path | only scheme
    {advertise: "https://me:hunter2@pool-1"} | state.standby.advertise contains a user | the keys
    {advertise: "https://pool-1", fingerprint: "sha256:12"} | state.standby.fingerprint is not a fingerprint | 64
    {advertise: "http://pool-1", fingerprint: "sha256:12"} | state.standby.fingerprint is for a certificate | https://
"#;

#[test]
fn d4_a_standby_needs_postgresql_and_a_reachable_address() {
    let on_postgresql = "database_url: postgres://pool@db/pool";
    let with = |more: &str, standby: &str| format!("state: {{{more}standby: {standby}}}\n");
    let good = "{advertise: \"https://pool-1.example.org:8443\"}";
    let config = load(&with(&format!("{on_postgresql}, "), good)).unwrap();
    assert_eq!(
        config.state.standby.unwrap().advertise,
        "https://pool-1.example.org:8443"
    );
    assert_has(
        &refusal(&with("", good)),
        &["state.standby needs PostgreSQL", "postgres://USER@HOST"],
    );
    for row in rows(STANDBYS) {
        let text = refusal(&with(&format!("{on_postgresql}, "), row[0]));
        assert_has(&text, &row[1..]);
        assert!(!text.contains("hunter2"), "{text}");
    }
}
