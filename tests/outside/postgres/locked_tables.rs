//! Writes that wait for a table lock, such as `VACUUM FULL` takes, also end on the server: they do not accumulate, and a new leader
//! need not wait for them.

use std::sync::Arc;

use model_pool::store::StoreError;
use support::postgres::{Server, name_of};
use support::service::wait_for;
use tokio::task::{block_in_place, spawn_blocking};

use super::state::State;

/// Only reached by a failing test; otherwise the lock is released before.
const LOCK_SECONDS: u32 = 90;
/// Number of timed-out writes before their sessions end on the server.
const TRIES: u32 = 3;
/// Sessions of the pool that wait for the table.
const WAITS: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'RowExclusiveLock' \
     AND relation = CAST('meta' AS regclass) \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
/// Waits for the row that a new leader updates. The leader's own statement waits 10 s for it.
const LEAD: &str = "SET lock_timeout = '9s'; UPDATE leadership SET holder = holder WHERE id = 1";

fn wait_for_response(what: &str, server: &Server, database: &str, sql: &str, response: &str) {
    wait_for(what, || {
        server.ask(database, sql).as_deref() == Ok(response)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_waiting_for_a_locked_table_end_on_the_server_and_do_not_block_a_new_leader() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    store.save_meta("a", "before").await.unwrap();
    let (server, database) = (Arc::clone(&state.server), name_of(&state.url).to_owned());
    let lock = spawn_blocking(move || {
        // Statements in one string form a transaction.
        let sql = format!("LOCK TABLE meta; SELECT pg_sleep({LOCK_SECONDS})");
        server.ask(&database, &sql)
    });
    let (server, database) = (&*state.server, name_of(&state.url));
    let held = "SELECT count(*) FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock' \
                AND relation = CAST('meta' AS regclass) \
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    block_in_place(|| wait_for_response("the lock", server, database, held, "1"));

    let (of_leader, name) = (Arc::clone(&state.server), database.to_owned());
    let leads = spawn_blocking(move || {
        wait_for_response("the write to wait", &of_leader, &name, WAITS, "1");
        of_leader.ask(&name, LEAD)
    });
    let (written, led) = tokio::join!(store.save_meta("a", "during"), leads);
    let error = written.unwrap_err();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains("has locked a table"), "{words}");
    led.unwrap().expect("the leader's row is free in time");

    for _ in 0..TRIES {
        let again = store.save_meta("a", "during").await;
        assert!(again.is_err(), "the table is locked");
    }
    block_in_place(|| {
        wait_for_response("the sessions to end", server, database, WAITS, "0");
        assert_eq!(server.ask(database, held), Ok("1".to_owned()));
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE query LIKE 'LOCK TABLE meta%' AND datname = current_database() \
                   AND pid <> pg_backend_pid()";
        assert_eq!(server.ask(database, end), Ok("1".to_owned()));
    });
    lock.await.unwrap().expect_err("its session was ended");
    let mut written = store.save_meta("a", "after").await;
    for _ in 0..TRIES {
        if written.is_err() {
            written = store.save_meta("a", "after").await;
        }
    }
    written.expect("writing continues");
    assert_eq!(store.meta("a").await.unwrap().as_deref(), Some("after"));
}
