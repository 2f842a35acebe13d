//! Two processes with one database: a process that has lost the lock no longer writes, even before it notices.

use model_pool::store::{Store, StoreError};
use support::postgres::name_of;
use support::service::wait_for;

use super::state::State;

/// Ends all sessions of the database, like a broken network.
fn break_all(state: &State) {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}'",
        name_of(&state.url)
    );
    state.server.ask("postgres", &sql).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_lost_its_lock_to_another_process_can_no_longer_write() {
    let Some(state) = State::new() else { return };
    let first = state.open().await;
    first.save_meta("a", "first").await.unwrap();
    // Loses its session, and another process starts before it reconnects.
    break_all(&state);
    let second = loop {
        match Store::open(&state.url).await {
            Ok(store) => break store,
            // The first process was quicker.
            Err(StoreError::DatabaseInUse { .. }) => break_all(&state),
            Err(error) => panic!("{error}"),
        }
    };
    second.save_meta("a", "second").await.unwrap();
    for _ in 0..3 {
        let error = first.save_meta("a", "late").await.unwrap_err();
        assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
        if error.to_string().contains("another model-pool has taken") {
            break;
        }
    }
    let error = first.save_meta("a", "late").await.unwrap_err().to_string();
    assert!(
        error.contains("another model-pool has taken over this database; this process ends"),
        "{error}"
    );
    assert!(first.probe().await.is_err(), "it does not recover");
    assert!(first.trouble().is_some());
    assert_eq!(second.meta("a").await.unwrap().as_deref(), Some("second"));
    // The second process keeps the lock after the first has ended.
    first.close().await;
    second.save_meta("a", "third").await.unwrap();
    let error = Store::open(&state.url).await.unwrap_err();
    assert!(matches!(error, StoreError::DatabaseInUse { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_only_lost_its_sessions_reconnects_and_takes_the_lock_again() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    break_all(&state);
    let mut written = store.save_meta("a", "after").await;
    // The first write detects the broken connection.
    if written.is_err() {
        assert!(store.trouble().is_some());
        store.probe().await.expect("a new connection");
        assert!(store.trouble().is_none());
        written = store.save_meta("a", "after").await;
    }
    written.unwrap();
    assert_eq!(store.meta("a").await.unwrap().as_deref(), Some("after"));
    let locks = format!(
        "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database WHERE locktype = 'advisory' AND datname = '{}'",
        name_of(&state.url)
    );
    tokio::task::block_in_place(|| {
        wait_for("the lock to be held again", || {
            state.server.ask("postgres", &locks) == Ok("1".to_owned())
        });
    });
    let error = Store::open(&state.url).await.unwrap_err();
    assert!(matches!(error, StoreError::DatabaseInUse { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_crash_of_the_server() {
    let Some(server) = support::postgres::Server::start() else {
        return;
    };
    let url = server.database();
    let store = Store::open(&url).await.unwrap();
    for nth in 0..50 {
        store.save_meta(&format!("k{nth}"), "kept").await.unwrap();
    }
    tokio::task::block_in_place(|| server.crash());
    let error = store.save_meta("lost", "x").await.unwrap_err();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains("writing resumes automatically"), "{words}");
    assert!(store.meta("k1").await.is_err(), "reads say so, too");
    tokio::task::block_in_place(|| server.run());
    store.probe().await.expect("it is back");
    assert!(store.trouble().is_none());
    for nth in 0..50 {
        let kept = store.meta(&format!("k{nth}")).await.unwrap();
        assert_eq!(kept.as_deref(), Some("kept"), "k{nth}");
    }
    assert_eq!(store.meta("lost").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_frozen_server_fails_after_ten_seconds_and_later_writes_succeed() {
    let Some(server) = support::postgres::Server::start() else {
        return;
    };
    let store = Store::open(&server.database()).await.unwrap();
    store.save_meta("a", "before").await.unwrap();
    server.freeze();
    let error = store.save_meta("a", "during").await.unwrap_err();
    server.thaw();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    assert!(
        error.to_string().contains("no response within 10 s"),
        "{error}"
    );
    store.probe().await.expect("it answers again");
    store.save_meta("a", "after").await.unwrap();
    assert_eq!(store.meta("a").await.unwrap().as_deref(), Some("after"));
}
