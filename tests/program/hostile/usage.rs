//! Engines that report impossible token counts, and rows that the database refuses: usage of other keys is still stored.

use std::time::Duration;

use serde_json::{Value, json};

use support::net::stub;
use support::service::{Pool, wait_for};
use support::stub::model;

const CHAT: &str = "/v1/chat/completions";
const KEYS: &str = "auth: {inference: key}\n";

fn ask(pool: &Pool, key: &str, model: &str, stream: bool) {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": model, "stream": stream, "messages": messages});
    let (status, text, _) = pool.request("POST", CHAT, &body.to_string(), Some(key));
    assert_eq!(status, 200, "{text}");
}

/// Requests and tokens of the key's models, summed over all days.
fn used(pool: &Pool, key: &str, model: &str) -> [u64; 2] {
    let (status, usage) = pool.call(Some(key), "GET", "/llm/me/usage", &Value::Null);
    assert_eq!(status, 200, "{usage}");
    let days = usage["days"].as_array().expect("days");
    let models = days
        .iter()
        .flat_map(|day| day["models"].as_array().expect("models"));
    let of = models.filter(|usage| usage["model"] == model);
    of.fold([0, 0], |[requests, tokens], usage| {
        let number = |name: &str| usage[name].as_u64().expect("a number");
        let both = number("prompt_tokens").saturating_add(number("completion_tokens"));
        [requests + number("requests"), tokens.saturating_add(both)]
    })
}

#[test]
fn an_implausible_usage_is_not_counted_and_does_not_block_saving() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("stream");
    let part = |choices: Value, usage: Value| json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bad", "choices": choices, "usage": usage});
    let delta = json!({"role": "assistant", "content": "a"});
    let chunk = part(
        json!([{"index": 0, "delta": delta, "finish_reason": "stop"}]),
        Value::Null,
    );
    let huge = json!({"prompt_tokens": 1_u64 << 63, "completion_tokens": 1_u64 << 63, "total_tokens": 1_u64 << 63});
    let last = part(json!([]), huge);
    let events = format!("data: {chunk}\n\ndata: {last}\n\ndata: [DONE]\n\n");
    std::fs::write(&file, events).expect("written");
    let path = file.display().to_string();
    let keys = "memory_gib: 0.5, idle_probe: off";
    let files = [
        model("bad", &["--raw-file", &path], keys),
        stub("good", &[]),
    ];
    let mut pool = Pool::with_models(&files, KEYS);
    let key = pool.admin_key();
    for stream in [false, true, false] {
        ask(&pool, &key, "bad", stream);
    }
    ask(&pool, &key, "good", false);
    let doubts = || {
        let log = pool.log();
        log.matches("an implausible number of tokens").count()
    };
    wait_for("a line for each of the three", || doubts() >= 3);
    assert_eq!(doubts(), 3, "{}", pool.log());
    let metrics = pool.request("GET", "/metrics", "", Some(&key)).1;
    let of_bad = metrics
        .lines()
        .filter(|line| line.starts_with("model_pool_tokens_total{model=\"bad\""));
    for line in of_bad {
        let count = line
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse::<f64>().ok());
        assert!(count.is_some_and(|count| count < 1e6), "{line}");
    }
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(20)), "it ends");
    assert!(!pool.log().contains("cannot save"), "{}", pool.log());
    pool.restart();
    let [requests, tokens] = used(&pool, &key, "bad");
    assert!(requests == 3 && tokens < 10_000, "{requests} {tokens}");
    assert_eq!(used(&pool, &key, "good")[0], 1);
}

/// Executes a statement in the database of a running pool.
fn in_database(pool: &Pool, statement: &'static str) {
    use sqlx::Connection;
    let url = format!("sqlite://{}", pool.data().join("model-pool.db").display());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut connection = sqlx::SqliteConnection::connect(&url).await.expect("open");
        let done = sqlx::query(statement).execute(&mut connection).await;
        done.expect(statement);
        connection.close().await.expect("closed");
    });
}

#[test]
fn usage_refused_by_the_database_is_reported_in_readiness_and_blocks_no_other_row() {
    let models = [stub("one", &[]), stub("two", &[])];
    let mut pool = Pool::with_models(&models, KEYS);
    let key = pool.admin_key();
    in_database(
        &pool,
        "CREATE TRIGGER refuse BEFORE INSERT ON key_usage WHEN NEW.model = 'one' \
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    ask(&pool, &key, "one", false);
    ask(&pool, &key, "two", false);
    let details = |pool: &Pool| {
        let (status, ready) = pool.call(None, "GET", "/llm/ready", &Value::Null);
        assert_eq!(status, 200, "{ready}");
        ready["details"].to_string()
    };
    wait_for("the readiness to say so", || {
        details(&pool).contains("refuses the usage of 1 ")
    });
    pool.wait_for_log("cannot save the usage of keys");
    // The other row is on disk; this row follows once the database accepts it.
    pool.kill_and_restart();
    assert_eq!(used(&pool, &key, "two")[0], 1);
    assert_eq!(used(&pool, &key, "one")[0], 0);
    ask(&pool, &key, "one", false);
    wait_for("the readiness to say so", || {
        details(&pool).contains("refuses the usage of 1 ")
    });
    in_database(&pool, "DROP TRIGGER refuse");
    wait_for("nothing to be refused", || details(&pool) == "[]");
    pool.kill_and_restart();
    assert_eq!(used(&pool, &key, "one")[0], 1);
}
