//! The configuration file changes while the service runs: a reload applies changes that need no restart, lists the others, and
//! changes nothing if the file is invalid.

use std::io::{Read, Write};

use chrono::{TimeDelta, Utc};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::family::{asks, kill, reasons, shown, stub};
use support::service::{Pool, split, wait_for};

use super::reload;

const KEEPS: &str = "pool: {keep_hot: 30m}\n";

/// Replaces a text in the configuration file.
fn edit(pool: &Pool, from: &str, to: &str) {
    let file = pool.folder().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
}

fn in_force(pool: &Pool) -> Value {
    let key = pool.admin_key();
    let (status, text, _) = pool.request("GET", "/llm/admin/config", "", Some(&key));
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The keys of a list, in alphabetical order.
fn keys(response: &Value, list: &str) -> Vec<String> {
    let changes = response[list].as_array().unwrap().iter();
    let keys = changes.map(|change| change["key"].as_str().unwrap().to_owned());
    let mut keys: Vec<String> = keys.collect();
    keys.sort();
    keys
}

fn reloads(pool: &Pool) -> Value {
    let (status, response) = reload(pool);
    assert_eq!(status, 200, "{response}");
    response
}

#[test]
fn a_changed_keep_hot_time_applies_to_a_loaded_model() {
    let pool = Pool::with_models(&[stub("a", &[])], KEEPS);
    assert_eq!(asks(&pool, "a").0, 200);
    wait_for("readers to see it", || {
        shown(&pool, "a")["state"] == "ready"
    });
    let pids = pool.engine_pids();
    edit(&pool, "keep_hot: 30m", "keep_hot: 20m");
    let response = reloads(&pool);
    assert_eq!(
        response["applied"],
        json!([{"key": "pool.keep_hot", "from": "30m", "to": "20m"}])
    );
    assert_eq!(response["needs_restart"], json!([]));
    assert!(response["unchanged"].as_u64().unwrap() > 70, "{response}");
    assert_eq!(pool.engine_pids(), pids, "nothing is started again");
    edit(&pool, "keep_hot: 20m", "keep_hot: 100ms");
    reloads(&pool);
    wait_for("the model to leave by the new time", || {
        shown(&pool, "a")["state"] == "cold"
    });
    assert_eq!(in_force(&pool)["pool"]["keep_hot"], "100ms");
    assert_eq!(
        reloads(&pool)["applied"],
        json!([]),
        "there is nothing left"
    );
}

#[test]
fn changes_that_need_a_restart_are_reported_and_not_applied() {
    let pool = Pool::with_models(&[stub("a", &[])], KEEPS);
    edit(&pool, "memory: 16GiB", "memory: 32GiB");
    edit(&pool, "127.0.0.1:0", "127.0.0.1:1");
    edit(&pool, "keep_hot: 30m", "keep_hot: 30m, heartbeat: 4s");
    for _ in 0..2 {
        let response = reloads(&pool);
        assert_eq!(
            keys(&response, "needs_restart"),
            ["inventory.devices", "server.listen"],
            "until it is started again"
        );
        let text = response["needs_restart"].to_string();
        assert!(text.contains(r#""to":"127.0.0.1:1""#), "{text}");
    }
    let config = in_force(&pool);
    assert_eq!(config["server"]["listen"], "127.0.0.1:0");
    assert_eq!(config["inventory"]["devices"][0]["memory"], "16GiB");
    assert_eq!(config["pool"]["heartbeat"], "4s", "for engines from now on");
    pool.wait_for_log("take effect after a restart of the service");
}

#[test]
fn a_mistake_is_reported_with_file_line_and_key_and_changes_nothing() {
    let pool = Pool::with_models(&[stub("a", &[])], KEEPS);
    let before = in_force(&pool);
    edit(&pool, "keep_hot: 30m", "keep_hot: 1s, queue_limit: 0");
    let (status, response) = reload(&pool);
    assert_eq!(status, 400, "{response}");
    let told = response["error"]["message"].as_str().unwrap();
    for part in ["config.yaml: line ", "pool.queue_limit is 0; allowed: 1 to"] {
        assert!(told.contains(part), "{told}");
    }
    edit(&pool, "queue_limit: 0", "queue_limit: 7");
    let reference = pool.folder().join("reference.json");
    std::fs::write(&reference, "{\"org/model\": ").unwrap();
    let named = format!("catalog: {{model_reference: {reference:?}, models_dir:");
    edit(&pool, "catalog: {models_dir:", &named);
    let (status, response) = reload(&pool);
    assert_eq!(status, 400, "{response}");
    assert_eq!(
        in_force(&pool),
        before,
        "a reference that cannot be used holds all back"
    );
    std::fs::write(&reference, "{}").unwrap();
    let response = reloads(&pool);
    assert_eq!(
        keys(&response, "applied"),
        [
            "catalog.model_reference",
            "pool.keep_hot",
            "pool.queue_limit"
        ]
    );
    std::fs::remove_file(pool.folder().join("config.yaml")).unwrap();
    let (status, response) = reload(&pool);
    assert_eq!(status, 400, "{response}");
    assert_eq!(in_force(&pool)["pool"]["queue_limit"], 7);
}

#[test]
fn changed_permissions_and_limits_apply_to_the_next_request() {
    let pool = Pool::with_models(&[stub("a", &[])], KEEPS);
    let preflight = |origin: &str| {
        let lines = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
        ];
        pool.request_with("OPTIONS", "/v1/chat/completions", "", &lines)
            .2
    };
    assert_eq!(asks(&pool, "a").0, 200);
    assert!(!preflight("https://lab.example.org").contains("allow-origin"));
    edit(
        &pool,
        "keep_alive_comment: 200ms",
        "keep_alive_comment: 200ms, body_limit: 1KiB, sequences_max: 1, cors: {origins: [\"https://lab.example.org\"]}",
    );
    reloads(&pool);
    let long = format!(r#"{{"model":"a","prompt":"{}"}}"#, "x".repeat(2000));
    assert_eq!(pool.post("/v1/completions", &long).0, 413);
    let several = r#"{"model":"a","prompt":"x","n":2}"#;
    assert_eq!(pool.post("/v1/completions", several).0, 400);
    assert!(preflight("https://lab.example.org").contains("allow-origin: https://lab.example.org"));
    assert!(!preflight("https://evil.example").contains("allow-origin: https"));

    edit(
        &pool,
        KEEPS,
        "pool: {keep_hot: 30m}\nlimits: {default: {requests_per_minute: 1}}\n",
    );
    reloads(&pool);
    assert_eq!((asks(&pool, "a").0, asks(&pool, "a").0), (200, 429));
    edit(
        &pool,
        "limits: {default: {requests_per_minute: 1}}",
        "auth: {inference: key, metrics: admin}",
    );
    reloads(&pool);
    assert_eq!(asks(&pool, "a").0, 401, "a key is needed now");
    assert_eq!(pool.request("GET", "/metrics", "", None).0, 401);
    edit(&pool, "{inference: key, metrics: admin}", "{}");
    reloads(&pool);
    assert_eq!((asks(&pool, "a").0, asks(&pool, "a").0), (200, 200));
}

#[test]
fn a_reload_applies_changed_hosts_and_a_changed_models_folder() {
    let pool = Pool::with_models(&[stub("a", &[])], KEEPS);
    let as_lab = || {
        let mut socket = std::net::TcpStream::connect(pool.address()).unwrap();
        let head = "GET /llm/health HTTP/1.1\r\nHost: llm.example.org\r\nConnection: close\r\n\r\n";
        socket.write_all(head.as_bytes()).unwrap();
        let mut response = Vec::new();
        socket.read_to_end(&mut response).unwrap();
        split(&response).0
    };
    assert_eq!(as_lab(), 421);
    edit(
        &pool,
        "keep_alive_comment: 200ms",
        "keep_alive_comment: 200ms, hosts: [llm.example.org]",
    );
    let other = pool.folder().join("others");
    std::fs::create_dir(&other).unwrap();
    let (name, text) = stub("b", &[]);
    std::fs::write(other.join(name), text).unwrap();
    edit(&pool, "/models\"", "/others\"");
    let response = reloads(&pool);
    assert_eq!(
        keys(&response, "applied"),
        ["catalog.models_dir", "server.hosts"]
    );
    assert_eq!(
        (&response["added"], &response["removed"]),
        (&json!(["b"]), &json!(["a"]))
    );
    assert_eq!(as_lab(), 200);
    assert_eq!(asks(&pool, "b").0, 200);
    assert_eq!(asks(&pool, "a").0, 404);
}

#[test]
fn a_sighup_reloads_and_the_log_lists_the_changes() {
    let config = format!("{KEEPS}log: {{level: info}}\n");
    let pool = Pool::with_models(&[stub("a", &[])], &config);
    let hang_up = || kill(pool.pid(), Signal::SIGHUP);
    edit(&pool, "keep_hot: 30m", "keep_hot: 600");
    hang_up();
    wait_for("the refusal", || pool.log().contains("nothing has changed"));
    let log = pool.log();
    for part in ["by=\"SIGHUP\"", "config.yaml: line ", "pool.keep_hot"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    edit(&pool, "keep_hot: 600", "keep_hot: 5m");
    hang_up();
    wait_for("the reload", || {
        pool.log().contains("pool.keep_hot 30m -> 5m")
    });
    assert_eq!(in_force(&pool)["pool"]["keep_hot"], "5m");
}

#[test]
fn a_changed_log_level_takes_effect_immediately() {
    let config = format!("{KEEPS}log: {{level: info}}\n");
    let pool = Pool::with_models(&[stub("a", &[])], &config);
    let told = || pool.log().matches("configuration reloaded").count();
    reloads(&pool);
    wait_for("its line", || told() == 1);
    edit(&pool, "level: info", "level: error");
    reloads(&pool);
    reloads(&pool);
    assert_eq!(told(), 1, "that is not an error");
    edit(&pool, "level: error", "level: info");
    reloads(&pool);
    wait_for("its line", || told() == 2);
}

#[test]
fn an_environment_variable_still_overrides_the_file_after_a_reload() {
    let env = [("MODEL_POOL__POOL__QUEUE_LIMIT", "9")];
    let pool = Pool::with_env(
        &[stub("a", &[])],
        "pool: {queue_limit: 5, keep_hot: 30m}\n",
        &env,
    );
    edit(
        &pool,
        "queue_limit: 5, keep_hot: 30m",
        "queue_limit: 6, keep_hot: 20m",
    );
    let response = reloads(&pool);
    assert_eq!(keys(&response, "applied"), ["pool.keep_hot"]);
    assert_eq!(in_force(&pool)["pool"]["queue_limit"], 9);
}

fn cron(from_now: TimeDelta) -> String {
    (Utc::now() + from_now).format("%S %M %H * * *").to_string()
}

#[test]
fn a_rescheduled_cleanup_runs_at_its_new_time() {
    let pool = Pool::with_models(&[stub("a", &[])], KEEPS);
    assert_eq!(asks(&pool, "a").0, 200);
    let soon = cron(TimeDelta::seconds(6));
    let morning = cron(TimeDelta::hours(1));
    edit(
        &pool,
        "evening: {cleanup: null, reopen: null}",
        &format!("evening: {{timezone: UTC, cleanup: \"{soon}\", reopen: \"{morning}\"}}"),
    );
    let response = reloads(&pool);
    let expected = ["evening.cleanup", "evening.reopen", "evening.timezone"];
    assert_eq!(keys(&response, "applied"), expected);
    pool.wait_for_log("evening: the next cleanup is on ");
    wait_for("the cleanup", || shown(&pool, "a")["state"] == "cold");
    assert_eq!(reasons(&pool, "cleanup").len(), 1);
}

/// A time zone in which it is currently this hour.
fn zone_where_it_is(hour: i64) -> String {
    let utc = i64::from(chrono::Timelike::hour(&Utc::now()));
    let ahead = (hour - utc).rem_euclid(24);
    // The sign of these zone names is inverted, and they end at 14 hours ahead.
    match ahead {
        ahead @ 0..=14 => format!("Etc/GMT-{ahead}"),
        ahead => format!("Etc/GMT+{}", 24 - ahead),
    }
}

#[test]
fn a_first_start_is_open_at_any_hour_of_the_local_time_zone() {
    for hour in [9, 23, 3] {
        let zone = zone_where_it_is(hour);
        let env = [
            ("TZ", zone.as_str()),
            ("MODEL_POOL__EVENING__CLEANUP", "0 0 21 * * *"),
            ("MODEL_POOL__EVENING__REOPEN", "0 0 7 * * *"),
        ];
        let (name, text) = stub("guide", &[]);
        let text = text.replace("memory_gib: 0.5", "memory_gib: 0.5, priority: 2");
        let pool = Pool::with_env(&[(name, text)], KEEPS, &env);
        assert!(pool.log().contains(&format!("({zone})")), "{}", pool.log());
        wait_for("the always-hot model of a first start", || {
            shown(&pool, "guide")["state"] == "ready"
        });
        assert_eq!(
            reasons(&pool, "cleanup"),
            Vec::<String>::new(),
            "at {hour}:00"
        );
    }
}
