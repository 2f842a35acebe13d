//! The evening over restarts, with the real program: a cleanup interrupted by a crash or a takeover is finished by the next
//! process, and a finished cleanup is not repeated.

use std::process::Child;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use support::family::{chat, reasons, shown, stub, told};
use support::service::{Pool, wait_for};

/// Time from the start of a test to its cleanup: a start on a busy machine takes seconds.
const AHEAD: TimeDelta = TimeDelta::seconds(12);
const TALK: [&str; 4] = ["--tokens", "2400", "--token-ms", "25"];

/// Engines outlive the service. The evening begins after `ahead` and ends in an hour.
fn pool_with(models: &[(String, String)], ahead: TimeDelta) -> Pool {
    let cron = |from_now: TimeDelta| (Utc::now() + from_now).format("%S %M %H * * *").to_string();
    let (cleanup, reopen) = (cron(ahead), cron(TimeDelta::hours(1)));
    let env = [
        ("MODEL_POOL__POOL__ON_RESTART", "adopt"),
        ("MODEL_POOL__POOL__ADOPT_WITHIN", "1m"),
        ("MODEL_POOL__EVENING__TIMEZONE", "UTC"),
        ("MODEL_POOL__EVENING__CLEANUP", cleanup.as_str()),
        ("MODEL_POOL__EVENING__REOPEN", reopen.as_str()),
        ("MODEL_POOL__EVENING__DRAIN", "1m"),
    ];
    Pool::with_env(models, "pool: {keep_hot: 30m}\n", &env)
}

fn loads(pool: &Pool, model: &str) {
    let key = pool.admin_key();
    let body = format!(r#"{{"model":"{model}"}}"#);
    let (status, text, _) = pool.request("POST", "/llm/admin/load", &body, Some(&key));
    assert_eq!(status, 200, "{text}");
}

fn state(pool: &Pool, model: &str) -> String {
    let shown = shown(pool, model);
    shown["state"].as_str().unwrap_or_default().to_owned()
}

fn is_as_wished(pool: &Pool, model: &str) {
    wait_for("the model that was loaded in the evening", || {
        let shown = shown(pool, model);
        shown["state"] == "ready" && shown["wished_replicas"] == 1
    });
}

fn ends(mut process: Child) {
    wait_for("the old process to end", || {
        process.try_wait().unwrap().is_some()
    });
}

/// A pool whose evening cleanup is draining a busy model, with `late` loaded afterwards.
fn in_the_middle_of_a_cleanup() -> (Pool, support::service::Stream) {
    let models = [stub("talker", &TALK), stub("late", &[])];
    let pool = pool_with(&models, AHEAD);
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    wait_for("the cleanup", || state(&pool, "talker") == "draining");
    loads(&pool, "late");
    (pool, stream)
}

#[test]
fn a_cleanup_interrupted_by_kill_9_is_finished_after_the_restart_and_spares_newer_models() {
    let (mut pool, stream) = in_the_middle_of_a_cleanup();
    pool.kill();
    assert!(!stream.whole().contains("[DONE]"), "cut with its service");
    pool.restart();
    wait_for("the rest of the cleanup", || {
        state(&pool, "talker") == "cold"
    });
    let again = told(&pool, "cleanup", 2);
    assert!(
        again
            .iter()
            .any(|reason| reason.contains("was interrupted")),
        "{again:?}"
    );
    is_as_wished(&pool, "late");
    // The cleanup is finished and is not repeated.
    loads(&pool, "talker");
    pool.kill_and_restart();
    is_as_wished(&pool, "late");
    is_as_wished(&pool, "talker");
    assert_eq!(reasons(&pool, "cleanup").len(), 2);
}

#[test]
fn a_cleanup_interrupted_by_a_takeover_is_finished_and_its_stream_drains_completely() {
    let (mut pool, stream) = in_the_middle_of_a_cleanup();
    let old = pool.take_over();
    wait_for("the rest of the cleanup", || {
        state(&pool, "talker") == "draining"
    });
    assert_eq!(
        shown(&pool, "talker")["replicas"][0]["in_flight"],
        1,
        "the old process's stream is known"
    );
    drop(stream);
    wait_for("its end", || state(&pool, "talker") == "cold");
    is_as_wished(&pool, "late");
    ends(old);
}

#[test]
fn a_cleanup_whose_end_could_not_be_stored_does_not_unload_models_loaded_since() {
    let models = [stub("first", &[]), stub("late", &[])];
    let mut pool = pool_with(&models, AHEAD);
    loads(&pool, "first");
    let path = pool.data().join("model-pool.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        use sqlx::Connection;
        let url = format!("sqlite://{}", path.display());
        let mut store = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let refuse = "CREATE TRIGGER full BEFORE INSERT ON meta WHEN NEW.key = 'last_cleanup' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
        sqlx::query(refuse).execute(&mut store).await.unwrap();
    });
    wait_for("the cleanup", || state(&pool, "first") == "cold");
    wait_for("its end not to be kept", || {
        pool.log().contains("the disk is full")
    });
    loads(&pool, "late");
    pool.kill_and_restart();
    wait_for("the rest of the cleanup", || {
        reasons(&pool, "cleanup").len() == 2
    });
    is_as_wished(&pool, "late");
}

#[test]
fn a_new_data_folder_has_no_missed_cleanup() {
    let mut pool = pool_with(&[stub("a", &[])], TimeDelta::hours(-1));
    loads(&pool, "a");
    pool.kill_and_restart();
    is_as_wished(&pool, "a");
    // A cleanup due at the start is requested immediately. Waiting longer than that shows that there was none.
    loads(&pool, "a");
    std::thread::park_timeout(Duration::from_millis(1_500));
    assert_eq!(reasons(&pool, "cleanup"), Vec::<String>::new());
    is_as_wished(&pool, "a");
}

#[test]
fn a_cleanup_that_was_missed_because_the_service_was_down_runs_at_the_next_start_once() {
    let ahead = TimeDelta::seconds(12);
    let due = Utc::now() + ahead;
    let mut pool = pool_with(&[stub("a", &[])], ahead);
    loads(&pool, "a");
    pool.kill();
    wait_for("its time to pass", || {
        Utc::now() > due + TimeDelta::seconds(1)
    });
    pool.restart();
    assert_eq!(told(&pool, "cleanup", 1).len(), 1);
    wait_for("what was loaded before to be gone", || {
        state(&pool, "a") == "cold"
    });
    loads(&pool, "a");
    pool.kill_and_restart();
    is_as_wished(&pool, "a");
    assert_eq!(reasons(&pool, "cleanup").len(), 1, "once");
}

#[test]
fn a_time_passed_under_another_schedule_is_not_caught_up() {
    let mut pool = pool_with(&[stub("a", &[])], TimeDelta::hours(2));
    loads(&pool, "a");
    let passed = Utc::now().format("%S %M %H * * *").to_string();
    wait_for("a second to pass", || {
        Utc::now().format("%S %M %H * * *").to_string() != passed
    });
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(20)), "it ends");
    pool.set_env("MODEL_POOL__EVENING__CLEANUP", &passed);
    pool.restart();
    is_as_wished(&pool, "a");
    loads(&pool, "a");
    assert_eq!(reasons(&pool, "cleanup"), Vec::<String>::new());
}
