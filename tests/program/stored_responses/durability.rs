//! Acknowledged responses are on disk, whatever happens next; the disk delays nothing else; and a thousand are not too many.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::{RESPONSES, SECTION, ask, created, end, get, id, model, on_disk, pool, with};

/// Locks the database against other writers until dropped.
pub(crate) struct DatabaseLock {
    runtime: tokio::runtime::Runtime,
    writer: Option<sqlx::SqliteConnection>,
}

impl DatabaseLock {
    pub(crate) fn new(pool: &Pool) -> DatabaseLock {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let url = format!("sqlite://{}", pool.data().join("model-pool.db").display());
        let writer = runtime.block_on(async {
            use sqlx::Connection;
            let mut writer = sqlx::SqliteConnection::connect(&url).await.unwrap();
            let begin = sqlx::query("BEGIN IMMEDIATE").execute(&mut writer);
            begin.await.unwrap();
            writer
        });
        DatabaseLock {
            runtime,
            writer: Some(writer),
        }
    }
}

impl Drop for DatabaseLock {
    fn drop(&mut self) {
        use sqlx::Connection;
        let writer = self.writer.take();
        let closed = self.runtime.block_on(writer.unwrap().close());
        closed.unwrap();
    }
}

/// The response in a stream's last event.
fn last_of(text: &str) -> Value {
    let mut lines = text.lines().rev();
    let data = lines.find_map(|line| line.strip_prefix("data: "));
    let event: Value = serde_json::from_str(data.expect("an event")).unwrap();
    assert_eq!(event["type"], "response.completed", "{event}");
    event["response"].clone()
}

#[test]
fn a_response_whose_end_was_received_survives_an_immediate_kill() {
    let mut pool = pool(&[], "");
    let streamed = with(ask("One"), "stream", json!(true)).to_string();
    for _ in 0..3 {
        let held = DatabaseLock::new(&pool);
        let stream = pool.stream(RESPONSES, &streamed);
        wait_for("all of the text", || {
            stream.text().contains("response.output_text.done")
        });
        assert!(!stream.text().contains("response.completed"));
        drop(held);
        wait_for("the end", || stream.text().contains("response.completed"));
        pool.kill();
        let response = last_of(&stream.text());
        assert_eq!(response["store"], true);
        pool.restart();
        let (status, found) = get(&pool, id(&response));
        assert_eq!((status, &found), (200, &response));
    }
    // The response of a complete request.
    let whole = created(&pool, &ask("Two"));
    pool.kill_and_restart();
    let (status, found) = get(&pool, id(&whole));
    assert_eq!((status, &found), (200, &whole));
}

#[test]
fn a_slow_disk_delays_only_the_end_of_a_response_and_is_reported() {
    let pool = pool(&[], "");
    let held = DatabaseLock::new(&pool);
    let body = with(ask("One"), "stream", json!(true));
    let stream = pool.stream(RESPONSES, &body.to_string());
    let text = stream.whole();
    let (said, _) = text
        .split_once(": store: the response was not written to disk within 1 s; ")
        .expect(&text);
    assert!(said.contains("response.output_text.done"), "{text}");
    let response = last_of(&text);
    assert_eq!(response["store"], false);
    // Requests without storage do not wait for the disk.
    let (status, quick) = pool.call(
        None,
        "POST",
        RESPONSES,
        &json!({"model": "writer", "input": "Two"}),
    );
    assert_eq!((status, &quick["store"]), (200, &json!(true)), "{quick}");
    let (status, text, head) = pool.request("POST", RESPONSES, &ask("Three").to_string(), None);
    let late: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &late["store"]), (200, &json!(false)), "{text}");
    assert!(head.contains("x-model-pool-ignored: store"), "{head}");
    // It is kept in memory nevertheless.
    assert_eq!(get(&pool, id(&late)).0, 200);
    drop(held);
    wait_for("both to be on disk", || {
        on_disk(&pool) == "2 stored responses"
    });
}

#[test]
fn the_least_recently_used_of_1001_stored_responses_is_deleted() {
    const KEPT: usize = 1000;
    const CLIENTS: usize = 8;
    let mut pool = pool(&["--tokens", "1"], "");
    let first = created(&pool, &ask("0"));
    let rest = std::sync::atomic::AtomicUsize::new(1);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while rest.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < KEPT {
                    created(&pool, &ask("another"));
                }
            });
        }
    });
    assert_eq!(on_disk(&pool), format!("{KEPT} stored responses"));
    assert_eq!(get(&pool, id(&first)).0, 200);
    let last = created(&pool, &ask("one more"));
    end(&mut pool);
    assert_eq!(on_disk(&pool), format!("{KEPT} stored responses"));
    pool.restart();
    assert_eq!(get(&pool, id(&first)).0, 404);
    assert_eq!(get(&pool, id(&last)).0, 200);
}

#[test]
fn responses_kept_only_in_memory_are_limited_per_key() {
    let env = [(SECTION, "{per_key: 8}")];
    let pool = Pool::with_env(&[model(&["--tokens", "1"])], "", &env);
    let unasked = json!({"model": "writer", "input": "Hello"});
    let all: Vec<Value> = (0..10).map(|_| created(&pool, &unasked)).collect();
    let found: Vec<u16> = all
        .iter()
        .map(|response| get(&pool, id(response)).0)
        .collect();
    assert_eq!(found[..2], [404, 404]);
    assert_eq!(found[2..], [200; 8]);
}
