//! SQLite's query plans: every query of a start, an administrator's page or the upkeep on a growing table uses an index. The
//! statements are recorded from the store itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use model_pool::pool::{Bytes, KeyId, LoadWish, Override, Span, Time};
use model_pool::pool::{DeviceId, OrderId, Record, RecordKind, ReplicaId};
use model_pool::store::{
    AuditEntry, AuditQuery, Circumstances, DayUsage, HistoryQuery, Measurement, NewVote, Retention,
    Seconds, Store, UsageMinute,
};
use sqlx::{Connection, Row, SqliteConnection};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Tables that grow with the use of the service.
const GROWING: [&str; 5] = ["history", "decisions", "audit", "usage", "votes"];

/// The statements that SQLx reports to send.
#[derive(Clone, Default)]
struct Statements(Arc<Mutex<BTreeSet<String>>>);

#[derive(Default)]
struct QueryText {
    summary: String,
    statement: String,
}

impl Visit for QueryText {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "summary" => self.summary = value.to_owned(),
            "db.statement" => self.statement = value.trim().to_owned(),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber> Layer<S> for Statements {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != "sqlx::query" {
            return;
        }
        let mut words = QueryText::default();
        event.record(&mut words);
        let whole = if words.statement.is_empty() {
            words.summary
        } else {
            words.statement
        };
        self.0.lock().unwrap().insert(whole);
    }
}

fn record(at: u64) -> Record {
    Record {
        replica: Some(ReplicaId(at)),
        order: Some(OrderId(at)),
        ..Record::new(
            Time(at),
            RecordKind::Refuse,
            Some("a".into()),
            "full".into(),
        )
    }
}

fn entry(at: u64) -> AuditEntry {
    AuditEntry {
        at: Time(at),
        key: Some(KeyId(1)),
        subject: None,
        name: None,
        group: None,
        key_group: None,
        client: "127.0.0.1".into(),
        method: "POST".into(),
        path: "/admin/load".into(),
        what: serde_json::Map::new(),
        status: 200,
        request: "r".into(),
    }
}

/// Runs every query of a start, administrators' pages, the keeper and the upkeep.
async fn use_all(store: &Store) {
    let text = |word: &str| Some(word.to_owned());
    store
        .append(&[record(1)], &|device: DeviceId| device.to_string())
        .await
        .unwrap();
    store.add_audit(&entry(1)).await.unwrap();
    store.last_numbers().await.unwrap();
    store.last_id().await.unwrap();
    for (after, model, kind) in [
        (None, None, None),
        (Some(1), None, None),
        (None, text("a"), None),
        (None, None, text("refuse")),
        (Some(1), text("a"), text("refuse")),
    ] {
        let limit = 100;
        let query = HistoryQuery {
            after,
            limit,
            model,
            kind,
            ..HistoryQuery::default()
        };
        store.history(query).await.unwrap();
    }
    let narrow = HistoryQuery {
        limit: 100,
        since: Some(Time(1)),
        until: Some(Time(2)),
        ..HistoryQuery::default()
    };
    for (model, cause, asked_by) in [
        (None, None, None),
        (None, text("full"), None),
        (text("a"), text("full"), None),
        (text("a"), text("full"), text("k1")),
        (None, None, text("k1")),
    ] {
        let query = HistoryQuery {
            model,
            cause,
            asked_by,
            ..narrow.clone()
        };
        store.history(query).await.unwrap();
    }
    for group in ["lab", "physics/lab"] {
        let query = HistoryQuery {
            group: text(group),
            ..narrow.clone()
        };
        store.history(query).await.unwrap();
    }
    let kinds = ["load", "refuse"];
    let counted = store.count_group_events(&kinds, Time(0), Time(9)).await;
    assert!(counted.unwrap().is_empty());
    store.count_group_use(Time(0), Time(9)).await.unwrap();
    store.event(1).await.unwrap();
    store.decision(1).await.unwrap();
    store.newest_of("a", &["refuse"], Some(1), 9).await.unwrap();
    store.count_events(Time(0), Time(9)).await.unwrap();
    store.count_use(Time(0), Time(9)).await.unwrap();
    for (before, key, path) in [
        (None, None, None),
        (Some(9), text("k1"), None),
        (None, text("k1"), text("/admin")),
    ] {
        let query = AuditQuery {
            before,
            limit: 100,
            key,
            path,
            group: None,
        };
        store.audit(query).await.unwrap();
    }
    let keep = Retention {
        age: Span(1),
        rows: 100,
    };
    store.forget_history(Time(1), keep).await.unwrap();
    store.forget_audit(Time(1), keep).await.unwrap();
    let vote = NewVote {
        at: Time(1),
        holder: "key:1".into(),
        comparison: "c-1".into(),
        models: vec!["a".into(), "b".into()],
        best: None,
    };
    store.vote(&vote, 9).await.unwrap();
    store.ratings().await.unwrap();
    store.forget_votes(Time(1), keep).await.unwrap();
    store.forget_usage().await.unwrap();
    store.forget_facts().await.unwrap();
    store.give_space_back().await.unwrap();
    let minute = UsageMinute {
        minute: 1,
        model: "a".into(),
        requests: 1,
        busy_ms: 1,
        waited: 1,
        waited_ms: 1,
        in_time: 1,
        late: 1,
        seconds: Some(Seconds::EARLIER),
    };
    store.add_usage(&[minute]).await.unwrap();
    let used = DayUsage {
        day: 1,
        bucket: "key:1".into(),
        tokens: 1,
    };
    store.keep_day_tokens(&[used], 1).await.unwrap();
    let of = Circumstances {
        model: "a".into(),
        arguments: String::new(),
        kind: String::new(),
        devices: 1,
    };
    let measurement = Measurement {
        peak_bytes_per_device: Bytes(1),
        reload: Span(1),
        at: Time(1),
    };
    store.save_measurement(&of, measurement).await.unwrap();
    store.save_remembered("a", &[1]).await.unwrap();
    store
        .save_override("a", &Override::default())
        .await
        .unwrap();
    let wish = LoadWish {
        replicas: 1,
        devices: None,
        since: Time(1),
    };
    store.save_load("a", Some(&wish)).await.unwrap();
    store.save_meta("a", "b").await.unwrap();
    store.meta("a").await.unwrap();
    store.wishes().await.unwrap();
    store.day_tokens().await.unwrap();
    store.keys().await.unwrap();
}

#[tokio::test]
async fn every_query_on_a_growing_table_uses_an_index() {
    let statements = Statements::default();
    let filter =
        tracing_subscriber::filter::Targets::new().with_target("sqlx", tracing::Level::DEBUG);
    let all = tracing_subscriber::registry()
        .with(statements.clone())
        .with(filter);
    tracing::subscriber::set_global_default(all).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/state.db", folder.path().display());
    let store = Store::open(&url).await.unwrap();
    // A second start, without migrations.
    store.close().await;
    statements.0.lock().unwrap().clear();
    let store = Store::open(&url).await.unwrap();
    use_all(&store).await;
    store.close().await;
    let sent = statements.0.lock().unwrap().clone();
    let (mut connection, mut looked_at, mut scans) = (
        SqliteConnection::connect(&url).await.unwrap(),
        0,
        Vec::new(),
    );
    for statement in sent {
        if !["SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE"]
            .iter()
            .any(|word| statement.starts_with(word))
        {
            continue;
        }
        looked_at += 1;
        let explained = format!("EXPLAIN QUERY PLAN {statement}");
        let plan = sqlx::query(sqlx::AssertSqlSafe(explained))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        let steps = plan.iter().map(|row| row.get::<String, _>("detail"));
        let is_whole = |step: &String| {
            GROWING.iter().any(|table| {
                // A scan in key order up to the limit is not a full scan.
                step.as_str() == format!("SCAN {table}")
            })
        };
        scans.extend(
            steps
                .filter(is_whole)
                .map(|step| format!("{step}: {statement}")),
        );
    }
    assert!(looked_at > 30, "only {looked_at} statements were seen");
    assert!(scans.is_empty(), "{}", scans.join("\n"));
}
