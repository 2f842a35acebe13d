//! The cost of writing one step to PostgreSQL, compared with SQLite on the same disk in the same run.

use std::time::{Duration, SystemTime};

use model_pool::pool::{DeviceId, LoadWish, OrderId, Record, RecordKind, ReplicaId, Time};
use model_pool::store::Store;

use super::state::State;

const STEPS: u64 = 300;
const PAGES: u32 = 50;

/// A step with a load: the order, then the events of its decision.
async fn step(store: &Store, at: u64) {
    let load = LoadWish {
        replicas: 1,
        devices: None,
        since: Time(at),
    };
    store.save_load("org/a", Some(&load)).await.unwrap();
    let record = |kind| Record {
        replica: Some(ReplicaId(at)),
        order: Some(OrderId(at)),
        ..Record::new(Time(at), kind, Some("org/a".into()), "1 waiting".into())
    };
    let records = [RecordKind::Load, RecordKind::Evict, RecordKind::Ready].map(record);
    let name = |device: DeviceId| device.to_string();
    store.append(&records, &name).await.unwrap();
}

async fn measured(store: &Store) -> (Duration, Duration) {
    let mut steps = Vec::new();
    for at in 0..STEPS {
        let began = SystemTime::now();
        step(store, at).await;
        steps.push(began.elapsed().unwrap());
    }
    let began = SystemTime::now();
    for _ in 0..PAGES {
        let query = model_pool::store::HistoryQuery {
            limit: 100,
            model: Some("org/a".into()),
            ..Default::default()
        };
        assert_eq!(store.history(query).await.unwrap().len(), 100);
    }
    let page = began.elapsed().unwrap() / PAGES;
    steps.sort();
    (steps[steps.len() / 2], page)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writes_of_a_step_are_timed_against_sqlite() {
    let Some(state) = State::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/state.db", folder.path().display());
    let (sqlite, sqlite_page) = measured(&Store::open(&url).await.unwrap()).await;
    let (postgres, postgres_page) = measured(&state.open().await).await;
    println!(
        "two writes of a step, median of {STEPS}: SQLite {sqlite:.2?}, PostgreSQL {postgres:.2?} ({:.2} times); \
         a page of 100 events: {sqlite_page:.2?}, {postgres_page:.2?} ({:.2} times)",
        postgres.as_secs_f64() / sqlite.as_secs_f64(),
        postgres_page.as_secs_f64() / sqlite_page.as_secs_f64(),
    );
    // Far above the measured time: this detects statements that read a complete table.
    assert!(postgres < Duration::from_millis(200), "{postgres:?}");
}
