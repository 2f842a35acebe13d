//! A start with an older version's data folder: keys, overrides, an ordered load, registrations, history, audit log and
//! measurements are preserved.
//!
//! `tests/fixtures/older_version/state.sql` is a database of the version with seven migrations.

use std::path::Path;

use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use support::service::{Pool, wait_for};

const ADMIN: &str = "mp-8RdGVxU5E2S6mB3YCzp8vLF7dwS67c0peTRTby89_bI";
const ANN: &str = "mp-erH3fqGnvHCRLn3vDyMp0vghn1e-MLaZfF8Ic_bmroY";
const REVOKED: &str = "mp-59Z35leNN-Gcu5hkcN2zEI_SxXD_NoO7wTARpNZdeHc";
const PLANNER: &str = "mp-PM23KyQuQEZR5f8ooSETmvVeyXMST5FGwl_Fl2JX6Nw";

/// The folder as that version left it a day ago. Older rows would be deleted as expired.
async fn write_older_folder(folder: &Path) {
    let sql = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/older_version/state.sql");
    let sql = std::fs::read_to_string(sql).expect("the fixture");
    let options = SqliteConnectOptions::new()
        .filename(folder.join("model-pool.db"))
        .create_if_missing(true);
    let mut database: SqliteConnection = options.connect().await.expect("a database");
    run(&mut database, sql).await;
    for table in ["history", "audit"] {
        let shift = format!(
            "UPDATE {table} SET at = at + (unixepoch() - 86400) * 1000 - (SELECT max(at) FROM {table});"
        );
        run(&mut database, shift).await;
    }
    database.close().await.expect("closed");
    std::fs::write(folder.join("admin.key"), format!("{ADMIN}\n")).expect("the key file");
}

async fn run(database: &mut SqliteConnection, sql: String) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(database)
        .await
        .expect("SQL of the fixture");
}

fn model(name: &str) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}, --tokens, \"10\", --token-ms, \"1\"]\n  ready_path: /health\npool_config: {{memory_gib: 4}}\n"
    );
    (format!("{name}.yaml"), text)
}

/// A response of the admin API to this key.
fn get(pool: &Pool, path: &str, key: &str) -> Value {
    let (status, text, _) = pool.request("GET", &format!("/llm/admin/{path}"), "", Some(key));
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).expect("JSON")
}

fn status(pool: &Pool, method: &str, path: &str, body: &str, key: &str) -> u16 {
    pool.request(method, path, body, Some(key)).0
}

fn chat(pool: &Pool, model: &str, key: &str) -> u16 {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
    status(pool, "POST", "/v1/chat/completions", &body.to_string(), key)
}

#[test]
fn a_data_folder_of_an_older_version_keeps_its_keys_orders_and_history() {
    let data = tempfile::tempdir().expect("a folder");
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(write_older_folder(data.path()));
    let mut pool = Pool::on_disk(
        &[model("small"), model("other")],
        "auth: {inference: key}\n",
        data.path(),
    );
    for start in ["the first start", "the second start"] {
        all_is_as_it_was(&pool, start);
        pool.kill_and_restart();
    }
}

fn all_is_as_it_was(pool: &Pool, start: &str) {
    // The keys with their permissions.
    assert_eq!(chat(pool, "small", ANN), 200, "{start}");
    assert_eq!(
        chat(pool, "other", ANN),
        404,
        "{start}: her key is for sma*"
    );
    assert_eq!(chat(pool, "small", REVOKED), 401, "{start}");
    let admin_get = |path: &str, key| status(pool, "GET", path, "", key);
    assert_eq!(admin_get("/llm/admin/models", PLANNER), 200, "{start}");
    assert_eq!(admin_get("/llm/admin/keys", PLANNER), 403, "{start}");
    let keys = get(pool, "keys", ADMIN);
    let named = |name: &str| {
        let keys = keys["keys"].as_array().expect("a list");
        keys.iter().find(|key| key["name"] == name).cloned()
    };
    let ann = named("ann").expect("her key");
    assert_eq!((&ann["id"], &ann["role"]), (&json!("k2"), &json!("user")));
    assert_eq!(ann["created_at"], "2026-11-23T10:38:08.199Z");
    assert_eq!(ann["limits"]["requests_per_minute"], 30, "{ann}");
    assert_eq!(named("gone"), None, "{start}: it stays revoked");

    // The overrides and the ordered load.
    let shown = |name: &str| get(pool, &format!("models?model={name}"), ADMIN)["models"][0].clone();
    wait_for("both models to be loaded", || {
        ["small", "other"]
            .iter()
            .all(|name| shown(name)["state"] == "ready")
    });
    let (small, other) = (shown("small"), shown("other"));
    assert_eq!(
        small["override"],
        json!({"priority": 3, "keep_hot_ms": 7_200_000})
    );
    assert_eq!(
        (&small["priority"], &small["always_hot"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(
        other["override"],
        json!({"priority": 1, "expires_at": "2100-01-01T00:00:00.000Z"})
    );
    assert_eq!(other["wished_replicas"], 1, "{start}: {other}");
    let registered = shown("registered");
    assert_eq!(
        registered["needs"]["bytes_per_device"],
        2_u64 << 30,
        "{registered}"
    );
    assert!(
        !small["load_times"].as_array().expect("a list").is_empty(),
        "{start}: load times are remembered"
    );

    // History and audit log: old rows keep their ids, and ids are not reused.
    let events = get(pool, "events?limit=1000", ADMIN);
    let events = events["events"].as_array().expect("a list");
    let old: Vec<(u64, &str)> = events[..15]
        .iter()
        .map(|event| {
            (
                event["id"].as_u64().expect("an id"),
                event["kind"].as_str().expect("a kind"),
            )
        })
        .collect();
    let kinds = [
        "set", "load", "ready", "cordon", "drain", "gone", "uncordon", "load", "ready", "load",
        "ready", "drain", "drain", "gone", "gone",
    ];
    let expected: Vec<(u64, &str)> = (1..).zip(kinds).collect();
    assert_eq!(old, expected, "{start}");
    assert_eq!(events[0]["reason"], "priority 3, keep-hot 2 h 0 min");
    assert_eq!(events[1]["placement"][0]["bytes"], 4_u64 << 30);
    let newer = events[15..]
        .iter()
        .filter_map(|event| event["replica"].as_str());
    let numbers = newer.map(|replica| {
        replica
            .trim_start_matches('r')
            .parse::<u64>()
            .expect("a number")
    });
    assert!(
        numbers.min().expect("models were loaded") > 3,
        "{start}: r1 to r3 are not given again"
    );
    let audit = get(pool, "audit?limit=1000", ADMIN);
    let entries = audit["entries"].as_array().expect("a list");
    assert!(entries.len() >= 12, "{start}: {entries:?}");
    assert_eq!(entries[0]["what"], json!({"name": "ann", "role": "user"}));
    assert_eq!(entries[5]["status"], 400);
}
