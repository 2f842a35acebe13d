//! Reads without a response from PostgreSQL end in time, and free their sessions.

use std::thread;
use std::time::{Duration, SystemTime};

use support::family::stub;
use support::postgres::{Server, name_of};
use support::service::{Pool, wait_for};

/// More than the number of reading sessions.
const READS: usize = 6;
/// Time limit of a read, with a margin for a busy machine. Less than the 30 s after which the server ends it.
const READ_WITHIN: Duration = Duration::from_secs(28);
/// Only reached by a failing test; otherwise the lock is released before.
const LOCK_SECONDS: u32 = 90;

#[test]
fn unresponsive_database_reads_time_out_and_later_ones_succeed() {
    let Some(server) = Server::start() else {
        return;
    };
    let url = server.database();
    let database = name_of(&url);
    let env = [("MODEL_POOL__STATE__DATABASE_URL", url.as_str())];
    let pool = Pool::with_env(&[stub("a", &[])], "pool: {keep_hot: 5m}\n", &env);
    let key = pool.admin_key();
    let read = |path: &str| pool.request("GET", path, "", Some(&key)).0;
    let (history, audit) = ("/llm/admin/events", "/llm/admin/audit");
    assert_eq!((read(history), read(audit)), (200, 200));

    let locked = format!("LOCK TABLE history; SELECT pg_sleep({LOCK_SECONDS})");
    thread::scope(|scope| {
        // Statements in one string form a transaction.
        scope.spawn(|| server.ask(database, &locked));
        let held = "SELECT count(*) FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock' \
                    AND relation = CAST('history' AS regclass)";
        wait_for("the lock", || {
            server.ask(database, held) == Ok("1".to_owned())
        });
        let began = SystemTime::now();
        let reads: Vec<_> = (0..READS).map(|_| scope.spawn(|| read(history))).collect();
        for read in reads {
            assert_eq!(read.join().unwrap(), 503);
        }
        let took = began.elapsed().unwrap();
        assert!(took <= READ_WITHIN, "{took:.1?}");
        wait_for("another table to be read while the lock is held", || {
            read(audit) == 200
        });
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock' \
                     AND relation = CAST('history' AS regclass)";
        wait_for("the server to end the sessions that were given up", || {
            server.ask(database, waits) == Ok("0".to_owned())
        });
        assert_eq!(server.ask(database, held), Ok("1".to_owned()));
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE query LIKE 'LOCK TABLE%' AND pid <> pg_backend_pid()";
        assert_eq!(server.ask(database, end), Ok("1".to_owned()));
    });
    wait_for("the history to be read", || read(history) == 200);
}
