//! Persistence of the store on a real database: everything confirmed is present after a reopen.
//! One file because every test writes, reopens and reads the same store.

use std::sync::Arc;

use model_pool::config::Limit;
use model_pool::pool::{Bytes, DeviceId, KeyId, OrderId, Priority, ReplicaId, Span, Time};
use model_pool::pool::{LoadWish, Override};
use model_pool::pool::{MemoryChange, Record, RecordKind, Share};
use model_pool::store::{
    Circumstances, HistoryQuery, KeptWish, KeyUse, Measurement, Measurements, NewKey, Retention,
    Role, Store, StoredRecord, find_key, generate_key, hash_key,
};
use serde_json::json;

use super::state::State;

fn record(at: u64, kind: RecordKind, model: &str) -> Record {
    Record {
        at: Time(at),
        kind,
        model: Some(model.into()),
        replica: Some(ReplicaId(3)),
        order: Some(OrderId(5)),
        reason: "1 waiting".into(),
        priority: Some(Priority(1)),
        placement: vec![Share {
            device: DeviceId(0),
            bytes: Bytes(700),
        }],
        candidates: vec!["org/b: idle".into()],
        memory: vec![MemoryChange {
            device: DeviceId(0),
            before: Bytes(0),
            after: Bytes(700),
        }],
        took: Some(Span(1200)),
        cause: None,
        asked_by: Some(KeyId(2)),
        group: Some("physics/lab".to_owned()),
        explanation: None,
    }
}

async fn oldest(store: &Store, limit: u32) -> Vec<StoredRecord> {
    let query = HistoryQuery {
        after: Some(0),
        limit,
        ..HistoryQuery::default()
    };
    store.history(query).await.unwrap()
}

fn gpu(device: DeviceId) -> String {
    format!("gpu{}", device.0)
}

#[tokio::test]
async fn orders_registrations_measurements_and_metadata_survive_a_reopen() {
    let Some(state) = State::new() else { return };
    let over = Override {
        priority: Some(Priority(2)),
        keep_hot: Some(Span(60_000)),
        expires: Some(Time(1_900_000_000_000)),
    };
    let load = LoadWish {
        replicas: 2,
        devices: Some(4),
        since: Time(1_800_000_000_000),
    };
    let measurement = Measurement {
        peak_bytes_per_device: Bytes(5 << 30),
        reload: Span(4200),
        at: Time(17),
    };
    let circumstances = Circumstances {
        model: "org/a".into(),
        arguments: "command 0123".into(),
        kind: "NVIDIA H100 80GB HBM3".into(),
        devices: 1,
    };
    let wider = Circumstances {
        devices: 2,
        ..circumstances.clone()
    };
    let document =
        json!({"engine_config": {"model_id": "org/c"}, "zeta": 1, "alpha": [true, null]});
    {
        let store = state.open().await;
        store
            .save_load_and_override("org/a", &load, &over)
            .await
            .unwrap();
        store.save_override("org/b", &over).await.unwrap();
        store.save_load("org/c", Some(&load)).await.unwrap();
        store.save_override("org/gone", &over).await.unwrap();
        store
            .save_override("org/gone", &Override::default())
            .await
            .unwrap();
        store.save_load("org/gone", Some(&load)).await.unwrap();
        store.save_load("org/gone", None).await.unwrap();
        store.save_registration("org/c", &document).await.unwrap();
        store.save_registration("org/d", &json!({})).await.unwrap();
        assert!(store.remove_registration("org/d").await.unwrap());
        assert!(!store.remove_registration("org/d").await.unwrap());
        store
            .save_measurement(
                &circumstances,
                Measurement {
                    at: Time(1),
                    ..measurement
                },
            )
            .await
            .unwrap();
        store
            .save_measurement(&circumstances, measurement)
            .await
            .unwrap();
        store.save_measurement(&wider, measurement).await.unwrap();
        store
            .save_measurement(
                &Circumstances {
                    model: "org/never-ready".into(),
                    ..circumstances.clone()
                },
                Measurement {
                    reload: Span::ZERO,
                    ..measurement
                },
            )
            .await
            .unwrap();
        for numbers in [vec![1, 2], vec![1, 0, u64::MAX]] {
            store.save_remembered("org/a", &numbers).await.unwrap();
        }
        store.save_meta("cleanup", "early").await.unwrap();
        store.save_meta("cleanup", "late").await.unwrap();
        // No close: the process might have been killed here.
    }
    let store = state.open().await;
    let wish = |model: &str, over: &Override, load: Option<&LoadWish>| KeptWish {
        model: model.into(),
        over: over.clone(),
        load: load.cloned(),
    };
    let none = Override::default();
    assert_eq!(
        store.wishes().await.unwrap(),
        [
            wish("org/a", &over, Some(&load)),
            wish("org/b", &over, None),
            wish("org/c", &none, Some(&load))
        ]
    );
    let kept = store.registrations().await.unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["org/c"]);
    assert_eq!(
        kept["org/c"].to_string(),
        document.to_string(),
        "the order of its fields is kept too"
    );
    assert_eq!(
        store.measurements().await.unwrap(),
        Measurements::from([(circumstances, measurement), (wider, measurement),]),
        "what has no load time is of a load that never became ready"
    );
    assert_eq!(
        store.remembered().await.unwrap(),
        std::collections::BTreeMap::from([("org/a".to_owned(), vec![1, 0, u64::MAX])])
    );
    assert_eq!(
        store.meta("cleanup").await.unwrap().as_deref(),
        Some("late")
    );
    assert_eq!(store.meta("nothing").await.unwrap(), None);

    store.forget_loads().await.unwrap();
    assert_eq!(
        store.wishes().await.unwrap(),
        [wish("org/a", &over, None), wish("org/b", &over, None)]
    );
}

#[tokio::test]
async fn a_record_reads_back_as_the_event_object_of_the_admin_api() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    let empty = Record {
        model: None,
        replica: None,
        order: None,
        priority: None,
        placement: vec![],
        candidates: vec![],
        memory: vec![],
        took: None,
        asked_by: None,
        group: None,
        ..record(1_700_000_000_000, RecordKind::Cleanup, "")
    };
    let appended = store
        .append(
            &[
                record(1_700_000_000_123, RecordKind::LoadFailed, "org/a"),
                empty,
            ],
            &gpu,
        )
        .await
        .unwrap();
    let kept = oldest(&store, 10).await;
    assert_eq!(kept, appended);
    assert_eq!(
        serde_json::to_value(&kept[0]).unwrap(),
        json!({
            "id": 1, "at": "2023-11-14T22:13:20.123Z", "kind": "load_failed", "model": "org/a", "replica": "r3",
            "order": "o5", "reason": "1 waiting", "cause": null, "asked_by": "k2", "group": "physics/lab", "priority": 1, "placement": [{"device": "gpu0", "bytes": 700}],
            "candidates": ["org/b: idle"], "memory": [{"device": "gpu0", "before_bytes": 0, "after_bytes": 700}],
            "took_ms": 1200
        })
    );
    assert_eq!(
        serde_json::to_value(&kept[1]).unwrap(),
        json!({
            "id": 2, "at": "2023-11-14T22:13:20.000Z", "kind": "cleanup", "model": null, "replica": null, "order": null,
            "reason": "1 waiting", "cause": null, "asked_by": null, "group": null, "priority": null, "placement": [], "candidates": [], "memory": [], "took_ms": null
        })
    );
}

#[tokio::test]
async fn events_of_a_group_include_the_groups_below_it_and_are_counted_by_path() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    let of = |at: u64, kind, group: Option<&str>| Record {
        group: group.map(str::to_owned),
        cause: Some("requests"),
        ..record(at, kind, "org/a")
    };
    let records = [
        of(1, RecordKind::Load, Some("physics")),
        of(2, RecordKind::Refuse, Some("physics/lab")),
        of(3, RecordKind::Refuse, Some("physics/lab/course")),
        of(4, RecordKind::Refuse, Some("Lab")),
        of(5, RecordKind::Refuse, None),
        of(6, RecordKind::Ready, Some("physics/lab")),
        of(7, RecordKind::Load, Some("100%/lab")),
    ];
    store.append(&records, &gpu).await.unwrap();
    let events = async |group: &str, after, limit| -> Vec<u64> {
        let query = HistoryQuery {
            group: Some(group.to_owned()),
            after,
            limit,
            ..HistoryQuery::default()
        };
        let found = store.history(query).await.unwrap();
        found.iter().map(|record| record.at.0).collect()
    };
    assert_eq!(events("physics", None, 9).await, [1, 2, 3, 6]);
    assert_eq!(events("physics", None, 2).await, [3, 6], "the newest");
    assert_eq!(events("physics", Some(1), 2).await, [2, 3]);
    assert_eq!(events("physics/lab", None, 9).await, [2, 3, 6]);
    assert_eq!(events("lab", None, 9).await, [2, 3, 6, 7]);
    assert_eq!(events("100%/lab", None, 9).await, [7]);
    assert!(events("ics/lab", None, 9).await.is_empty());
    let filtered = HistoryQuery {
        group: Some("lab".to_owned()),
        kind: Some("refuse".to_owned()),
        since: Some(Time(3)),
        until: Some(Time(9)),
        limit: 9,
        ..HistoryQuery::default()
    };
    assert_eq!(store.history(filtered).await.unwrap().len(), 1);
    let counts = store.count_group_events(&["load", "refuse"], Time(1), Time(7));
    let counts = counts.await.unwrap();
    let counts = counts
        .iter()
        .map(|count| (&*count.group, &*count.kind, count.count));
    let expected = [
        ("Lab", "refuse", 1),
        ("physics", "load", 1),
        ("physics/lab", "refuse", 1),
        ("physics/lab/course", "refuse", 1),
    ];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
    let none = Retention {
        age: Span(1),
        rows: 0,
    };
    store.forget_history(Time(100), none).await.unwrap();
    assert!(events("physics", None, 9).await.is_empty());
}

#[tokio::test]
async fn the_history_is_paged_forward_and_starts_with_the_newest_without_a_cursor() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    assert_eq!(store.last_id().await.unwrap(), 0);
    let records: Vec<Record> = (0..30)
        .map(|n| {
            record(
                n,
                if n % 2 == 0 {
                    RecordKind::Load
                } else {
                    RecordKind::Evict
                },
                if n % 3 == 0 { "a" } else { "b" },
            )
        })
        .collect();
    store.append(&records, &gpu).await.unwrap();
    let ids = async |after, limit, model: Option<&str>, kind: Option<&str>| -> Vec<i64> {
        let query = HistoryQuery {
            after,
            limit,
            model: model.map(Into::into),
            kind: kind.map(Into::into),
            ..HistoryQuery::default()
        };
        store
            .history(query)
            .await
            .unwrap()
            .into_iter()
            .map(|record| record.id)
            .collect()
    };
    assert_eq!(ids(Some(0), 3, None, None).await, [1, 2, 3]);
    assert_eq!(ids(Some(28), 100, None, None).await, [29, 30]);
    assert_eq!(ids(None, 3, None, None).await, [28, 29, 30]);
    assert_eq!(ids(Some(1), 2, Some("a"), None).await, [4, 7]);
    assert_eq!(ids(Some(1), 2, Some("a"), Some("load")).await, [7, 13]);
    assert_eq!(ids(None, 1, None, Some("evict")).await, [30]);
    assert_eq!(
        ids(None, 9, Some("'; DROP TABLE history; --"), None).await,
        [0; 0]
    );
    assert_eq!(
        ids(Some(0), 0, None, None).await,
        [1],
        "a limit of 0 is brought to 1"
    );
    assert_eq!(store.last_id().await.unwrap(), 30);
}

#[tokio::test]
async fn old_and_excess_history_is_deleted_and_its_ids_are_not_reused() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    let records: Vec<Record> = (1..=12_000)
        .map(|at| record(at, RecordKind::Load, "a"))
        .collect();
    store.append(&records, &gpu).await.unwrap();
    let keep = Retention {
        age: Span(20_000),
        rows: 300,
    };
    let forget = async |store: &Store, now, keep| {
        let mut all = 0;
        loop {
            let some = store.forget_history(Time(now), keep).await.unwrap();
            assert!(some <= 500, "{some} rows in one batch delay others");
            if some == 0 {
                return all;
            }
            all += some;
        }
    };
    assert_eq!(forget(&store, 12_000, keep).await, 11_700);
    assert_eq!(
        forget(&store, 31_901, keep).await,
        200,
        "records 11701 to 11900 are too old now"
    );
    let left = oldest(&store, 1000).await;
    assert_eq!((left.len(), left[0].id, left[99].id), (100, 11_901, 12_000));
    let default = Retention::default();
    assert_eq!(forget(&store, 99_999_999, default).await, 0);
    assert_eq!(forget(&store, 99_999_999, keep).await, 100);
    assert_eq!(
        store.last_id().await.unwrap(),
        12_000,
        "also when the history is empty"
    );
    drop(store);
    let store = state.open().await;
    let appended = store
        .append(&[record(1, RecordKind::Load, "a")], &gpu)
        .await
        .unwrap();
    assert_eq!(appended[0].id, 12_001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrently_appended_batches_stay_contiguous_and_complete() {
    let Some(state) = State::new() else { return };
    let store = Arc::new(state.open().await);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for _ in 0..10 {
                let name = format!("m{writer}");
                let batch: Vec<Record> = (0..5)
                    .map(|at| record(at, RecordKind::Load, &name))
                    .collect();
                store.append(&batch, &gpu).await.unwrap();
                store
                    .save_override(
                        &name,
                        &Override {
                            priority: Some(Priority(1)),
                            ..Override::default()
                        },
                    )
                    .await
                    .unwrap();
                assert!(
                    !store
                        .history(HistoryQuery {
                            limit: 5,
                            ..HistoryQuery::default()
                        })
                        .await
                        .unwrap()
                        .is_empty()
                );
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let all = oldest(&store, 1000).await;
    assert_eq!(all.len(), 400);
    for batch in all.chunks(5) {
        assert!(
            batch.iter().all(|record| record.model == batch[0].model),
            "batch at {} is mixed",
            batch[0].id
        );
    }
    assert_eq!(store.wishes().await.unwrap().len(), 8);
}

#[tokio::test]
async fn a_key_is_found_by_its_text_until_it_expires_or_is_revoked() {
    let Some(state) = State::new() else { return };
    let store = state.open().await;
    let text = generate_key().unwrap();
    assert_eq!((text.reveal().len(), &text.reveal()[..3]), (46, "mp-"));
    assert!(
        text.reveal()[3..]
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    );
    assert_ne!(text.reveal(), generate_key().unwrap().reveal());
    let new = NewKey {
        name: "anna".into(),
        role: Role::User,
        allowed: KeyUse {
            models: vec!["tiny-*".into()],
            routes: Vec::new(),
            limits: Some(Limit {
                requests_per_minute: Some(60),
                ..Limit::default()
            }),
            log_prompts: true,
            group: Some("lab".into()),
        },
        prefix: text.prefix(),
        hash: hash_key(text.reveal()),
        created: Time(10),
        expires: Some(Time(100)),
    };
    let kept = store.add_key(new.clone()).await.unwrap();
    assert_eq!(kept.id, KeyId(1));
    store
        .add_key(new.clone())
        .await
        .expect_err("the same key twice");
    let other = generate_key().unwrap();
    let new = NewKey {
        role: Role::Admin,
        hash: hash_key(other.reveal()),
        expires: None,
        ..new
    };
    let admin = store.add_key(new.clone()).await.unwrap().id;
    let third = generate_key().unwrap();
    let new = NewKey {
        role: Role::GroupAdmin,
        hash: hash_key(third.reveal()),
        ..new
    };
    let group_admin = store.add_key(new).await.unwrap();
    store.touch_key(kept.id, Time(50)).await.unwrap();
    store.touch_key(kept.id, Time(40)).await.unwrap();
    drop(store);

    let store = state.open().await;
    let keys = store.keys().await.unwrap();
    assert_eq!(keys[0].last_used, Some(Time(50)));
    assert_eq!(keys[0].allowed, kept.allowed);
    assert_eq!(keys[2], group_admin);
    let wider = KeyUse::default();
    let changed = store.change_key(kept.id, "anna b", &wider, Some(Time(100)));
    assert!(changed.await.unwrap());
    let keys = store.keys().await.unwrap();
    assert_eq!(
        (keys[0].name.as_str(), &keys[0].allowed),
        ("anna b", &wider)
    );
    assert_eq!(
        find_key(&keys, text.reveal(), Time(99)).map(|key| key.role),
        Some(Role::User)
    );
    assert_eq!(find_key(&keys, text.reveal(), Time(100)), None, "expired");
    assert_eq!(
        find_key(&keys, other.reveal(), Time(100)).map(|key| key.id),
        Some(admin)
    );
    assert_eq!(find_key(&keys, "mp-", Time(0)), None);
    assert!(store.revoke_key(admin).await.unwrap());
    assert!(!store.revoke_key(KeyId(77)).await.unwrap());
    let keys = store.keys().await.unwrap();
    assert_eq!(find_key(&keys, other.reveal(), Time(100)), None, "revoked");
    assert_eq!(keys.len(), 3);

    let shown = format!("{text:?} {keys:?} {store:?}");
    assert!(!shown.contains(&text.reveal()[10..]), "{shown}");
    assert!(shown.contains("KeyHash(hidden)"), "{shown}");
    store.close().await;
    let Some(path) = store.path() else { return };
    let file = std::fs::read(path).unwrap();
    let secret = text.reveal().as_bytes();
    assert!(
        !file.windows(secret.len()).any(|window| window == secret),
        "the key itself is in the file"
    );
}
