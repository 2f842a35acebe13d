//! `model-pool migrate-store` from SQLite to a real PostgreSQL and back: nothing is lost, and nothing is overwritten.

use std::process::{Command, Output};

use model_pool::pool::{DeviceId, LoadWish, Override, Priority, Record, RecordKind, Time};
use model_pool::store::{
    AuditEntry, AuditQuery, DayUsage, HistoryQuery, KeptRay, KeyUse, LedgerAmount, LedgerBatch,
    LedgerKey, NewKey, NewVote, Retention, Role, Seconds, Store, UsageMinute, generate_key,
    hash_key,
};
use serde_json::json;
use support::postgres::PASSWORD;

use super::state::State;

const ROWS: u64 = 1_234;

fn record(at: u64) -> Record {
    Record::new(
        Time(at),
        RecordKind::Load,
        Some("org/a".into()),
        format!("{at} waiting"),
    )
}

/// An hour of a device that a key used.
fn ledger(device: &str) -> LedgerBatch {
    let key = LedgerKey {
        hour: 25,
        day: 1,
        device: device.to_owned(),
        model: format!("model on {device}"),
        payer: "lab/k1".to_owned(),
        state: "used".to_owned(),
    };
    let amount = LedgerAmount {
        device_ms: 3_600_000,
        byte_seconds: 1 << 40,
        energy_mj: 7,
        energy_ms: 8,
    };
    let mut batch = LedgerBatch::default();
    batch.add(key, amount);
    batch.see(device, Time(9));
    batch
}

/// Rows in most tables, and ids that were assigned and deleted.
async fn fill(store: &Store) {
    let records: Vec<Record> = (1..=ROWS).map(record).collect();
    store
        .append(&records, &|device: DeviceId| device.to_string())
        .await
        .unwrap();
    let keep = Retention {
        rows: 1_000,
        ..Retention::default()
    };
    store.forget_history(Time(ROWS), keep).await.unwrap();
    let over = Override {
        priority: Some(Priority(2)),
        ..Override::default()
    };
    let load = LoadWish {
        replicas: 2,
        devices: None,
        since: Time(5),
    };
    store
        .save_load_and_override("org/ä", &load, &over)
        .await
        .unwrap();
    store
        .save_registration("org/c", &json!({"z": 1, "a": "\u{0}"}))
        .await
        .unwrap();
    store.save_meta("fact", "it's").await.unwrap();
    store
        .save_remembered("org/a", &[1, u64::MAX])
        .await
        .unwrap();
    let minutes = (0..500).map(|minute| UsageMinute {
        minute,
        model: "org/a".into(),
        requests: 3,
        busy_ms: 4,
        waited: 1,
        waited_ms: 2,
        in_time: 1,
        late: 1,
        // Every second minute has no recorded seconds.
        seconds: (minute % 2 == 0).then(|| Seconds::from_bits(minute) | Seconds::EARLIER),
    });
    store.add_usage(&minutes.collect::<Vec<_>>()).await.unwrap();
    let day = DayUsage {
        day: 7,
        bucket: "address:1".into(),
        tokens: 8,
    };
    store.keep_day_tokens(&[day], 1).await.unwrap();
    for nth in 0..3 {
        let text = generate_key().unwrap();
        let key = NewKey {
            name: format!("k{nth}"),
            role: Role::User,
            allowed: KeyUse::default(),
            prefix: text.prefix(),
            hash: hash_key(text.reveal()),
            created: Time(1),
            expires: None,
        };
        store.add_key(key).await.unwrap();
    }
    let entry = AuditEntry {
        at: Time(3),
        key: None,
        subject: Some("p".into()),
        name: None,
        group: Some("lab".into()),
        key_group: None,
        client: "127.0.0.1".into(),
        method: "POST".into(),
        path: "/admin/load".into(),
        what: serde_json::Map::new(),
        status: 200,
        request: String::new(),
    };
    store.add_audit(&entry).await.unwrap();
    store
        .node_numbers("n", &["gpu0".into(), "gpu1".into()], Time(1))
        .await
        .unwrap();
    let vote = NewVote {
        at: Time(1),
        holder: "key:1".into(),
        comparison: "c".into(),
        models: vec!["a".into(), "b".into()],
        best: Some(0),
    };
    store.vote(&vote, 10).await.unwrap();
    let ray = KeptRay {
        address: "http://ray:8265".into(),
        prefix: "model-pool.lab.r".into(),
        token_file: None,
        timeout_ms: 30_000,
        section: "engine_config".into(),
    };
    store.save_used_ray(&ray).await.unwrap();
    store.add_ledger(&ledger("gpu0")).await.unwrap();
}

/// All readable data of the store.
async fn contents(store: &Store) -> String {
    let history = HistoryQuery {
        after: Some(0),
        limit: 1_000,
        ..HistoryQuery::default()
    };
    let audit = AuditQuery {
        limit: 100,
        ..AuditQuery::default()
    };
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        store.history(history).await.unwrap(),
        store.last_id().await.unwrap(),
        store.last_numbers().await.unwrap(),
        store.wishes().await.unwrap(),
        store.registrations().await.unwrap(),
        store.meta("fact").await.unwrap(),
        store.remembered().await.unwrap(),
        store.count_use(Time(0), Time(1 << 40)).await.unwrap(),
        store.count_events(Time(0), Time(1 << 20)).await.unwrap(),
        store.day_tokens().await.unwrap(),
        store
            .keys()
            .await
            .unwrap()
            .iter()
            .map(|key| (key.id, key.hash.0))
            .collect::<Vec<_>>(),
        store.audit(audit).await.unwrap(),
        store.ratings().await.unwrap(),
        store.used_rays().await.unwrap(),
        store.ledger_by_payer(0, 9).await.unwrap(),
        store.ledger_by_device(0, 9).await.unwrap(),
        store.ledger_by_hour(0, 99).await.unwrap(),
        store.ledger_seen().await.unwrap(),
    )
}

fn migrate(from: &str, to: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["migrate-store", "--from", from, "--to", to])
        .env("PGPASSWORD", PASSWORD)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!text.contains(PASSWORD), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_moves_to_postgresql_and_back_and_nothing_is_lost() {
    let Some(state) = State::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite://{}/{name}.db", folder.path().display());
    let postgres = state.url.replace(&format!(":{PASSWORD}"), "");
    let first = Store::open(&file("first")).await.unwrap();
    fill(&first).await;
    let before = contents(&first).await;

    // Refused while a service uses it.
    let refused = migrate(&file("first"), &postgres);
    assert!(!refused.status.success());
    assert!(
        text(&refused).contains("is in use by another model-pool"),
        "{refused:?}"
    );
    first.close().await;

    let began = std::time::SystemTime::now();
    let moved = migrate(&file("first"), &postgres);
    let took = began.elapsed().unwrap();
    let said = text(&moved);
    assert!(moved.status.success(), "{said}");
    assert!(
        said.contains("1000  history") || said.contains("history"),
        "{said}"
    );
    println!("{said}in {took:.1?}");

    let second = state.open().await;
    assert_eq!(contents(&second).await, before);
    let appended = second
        .append(&[record(1)], &|device: DeviceId| device.to_string())
        .await
        .unwrap();
    assert_eq!(
        appended[0].id,
        i64::try_from(ROWS).unwrap() + 1,
        "no id is given twice"
    );
    let numbers = second
        .node_numbers("n", &["gpu1".into(), "new".into()], Time(2))
        .await
        .unwrap();
    assert_eq!((numbers.node, numbers.devices), (1, vec![2, 3]));
    // Names that the moved rows do not have.
    second.add_ledger(&ledger("gpu1")).await.unwrap();
    assert_eq!(second.ledger_by_device(0, 9).await.unwrap().len(), 2);
    let before = contents(&second).await;
    second.close().await;

    // A table with rows is never overwritten.
    for (from, to) in [
        (file("first"), postgres.clone()),
        (postgres.clone(), file("first")),
    ] {
        let refused = migrate(&from, &to);
        assert!(!refused.status.success());
        let said = text(&refused);
        assert!(said.contains("is not empty: its table"), "{said}");
    }

    let moved = migrate(&postgres, &file("third"));
    assert!(moved.status.success(), "{}", text(&moved));
    let third = Store::open(&file("third")).await.unwrap();
    assert_eq!(contents(&third).await, before);
    let usage = async |name: &str| {
        let path = folder.path().join(format!("{name}.db"));
        Store::read_usage(&path).await.unwrap()
    };
    assert_eq!(usage("third").await, usage("first").await);
    let appended = third
        .append(&[record(1)], &|device: DeviceId| device.to_string())
        .await
        .unwrap();
    assert_eq!(appended[0].id, i64::try_from(ROWS).unwrap() + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_migration_leaves_the_target_database_empty() {
    let Some(state) = State::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}/first.db", folder.path().display());
    let first = Store::open(&file).await.unwrap();
    fill(&first).await;
    first.close().await;
    state.open().await.close().await;
    let name = support::postgres::name_of(&state.url);
    // A late table in the copy cannot store a row.
    let broken = "ALTER TABLE ratings ADD CONSTRAINT none CHECK (false)";
    state.server.ask(name, broken).unwrap();
    let postgres = state.url.replace(&format!(":{PASSWORD}"), "");
    let failed = migrate(&file, &postgres);
    assert!(!failed.status.success());
    assert!(text(&failed).contains("ratings"), "{failed:?}");
    for table in ["history", "keys", "overrides", "usage"] {
        let rows = state
            .server
            .ask(name, &format!("SELECT count(*) FROM {table}"));
        assert_eq!(rows, Ok("0".to_owned()), "{table}");
    }
    let numbers = state.server.ask(name, "SELECT count(*) FROM numbers");
    assert_eq!(numbers, Ok("2".to_owned()));
    state
        .server
        .ask(name, "ALTER TABLE ratings DROP CONSTRAINT none")
        .unwrap();
    let moved = migrate(&file, &postgres);
    assert!(moved.status.success(), "{}", text(&moved));
}

#[test]
fn invalid_moves_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite://{}/{name}.db", folder.path().display());
    let with_password = format!("postgres://pool:{PASSWORD}@db/pool");
    for (from, to, part) in [
        (file("none"), file("other"), "cannot find the database"),
        (file("same"), file("same"), "name two databases"),
        (
            file("none"),
            with_password,
            "shows in the list of processes",
        ),
        (
            file("none"),
            "mysql://x/y".to_owned(),
            "this is not a database URL",
        ),
    ] {
        let refused = migrate(&from, &to);
        assert!(!refused.status.success());
        let said = text(&refused);
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
