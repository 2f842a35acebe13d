//! Counters derived from the history: loads, evictions, drains. Each record is counted once, by its id, at the next scrape.

use std::collections::BTreeMap;

use super::Histogram;
use super::text::{Kind, Text};
use engine::Failure;
use pool::{Span, Time};
use store::{HistoryQuery, Store, StoreError, StoredRecord};

const LOADS: &[f64] = &[
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
];
const DRAINS: &[f64] = &[
    0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0,
];
const AGES: &[f64] = &[
    1.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0, 86_400.0,
];

/// Totals of the history since the start.
#[derive(Debug)]
pub struct Counted {
    /// Older records belong to an earlier process.
    since: Time,
    /// The newest record that was counted, after the first read.
    last: Option<i64>,
    loads: BTreeMap<(String, &'static str), u64>,
    load_seconds: BTreeMap<String, Histogram>,
    evictions: BTreeMap<(String, &'static str, u32), u64>,
    eviction_age: Histogram,
    drain_seconds: Histogram,
    /// Start times of drains in progress.
    draining: BTreeMap<String, Time>,
}

impl Counted {
    /// Counts records from this time on.
    pub fn since(since: Time) -> Counted {
        Counted {
            since,
            last: None,
            loads: BTreeMap::new(),
            load_seconds: BTreeMap::new(),
            evictions: BTreeMap::new(),
            eviction_age: Histogram::new(AGES),
            drain_seconds: Histogram::new(DRAINS),
            draining: BTreeMap::new(),
        }
    }

    /// Reads new records of the history. The first call reads at most the newest thousand, because counts from before the first
    /// scrape do not affect a rate.
    pub async fn read(&mut self, store: &Store) -> Result<(), StoreError> {
        loop {
            let (limit, after) = (HistoryQuery::LIMIT_MAX, self.last);
            let page = HistoryQuery {
                after,
                limit,
                ..HistoryQuery::default()
            };
            let records = store.history(page).await?;
            for record in &records {
                if record.at >= self.since {
                    self.count(record);
                }
                self.last = Some(record.id);
            }
            self.last = self.last.or(Some(0));
            if after.is_none() || records.len() < limit as usize {
                return Ok(());
            }
        }
    }

    fn count(&mut self, record: &StoredRecord) {
        let model = record.model.clone().unwrap_or_default();
        let took = record.took_ms.map(|took| took as f64 / 1000.0);
        let replica = record.replica.clone();
        match record.kind.as_str() {
            "ready" => {
                *self.loads.entry((model.clone(), "ready")).or_default() += 1;
                let histogram = self
                    .load_seconds
                    .entry(model)
                    .or_insert_with(|| Histogram::new(LOADS));
                took.into_iter().for_each(|took| histogram.observe(took));
            }
            "load_failed" => {
                let result = failure(&record.reason);
                *self.loads.entry((model, result)).or_default() += 1;
            }
            "evict" => {
                let key = (model, reason(&record.reason), record.priority.unwrap_or(0));
                *self.evictions.entry(key).or_default() += 1;
                took.into_iter()
                    .for_each(|took| self.eviction_age.observe(took));
                self.draining
                    .extend(replica.map(|replica| (replica, record.at)));
            }
            "drain" | "unload" => {
                self.draining
                    .extend(replica.map(|replica| (replica, record.at)));
            }
            "gone" | "crash" => {
                // The duration of a `gone` record is the time to stop; the drain came before.
                let stopping = Span(record.took_ms.unwrap_or(0));
                let began = replica.and_then(|replica| self.draining.remove(&replica));
                if let Some(began) = began.filter(|_| record.kind == "gone") {
                    let drained = record.at.since(began).0.saturating_sub(stopping.0);
                    self.drain_seconds.observe(drained as f64 / 1000.0);
                }
            }
            _ => {}
        }
    }

    pub fn write(&self, text: &mut Text) {
        text.family(
            "loads_total",
            Kind::Counter,
            "Loads that have ended, by result: ready, or the kind of failure.",
        );
        for ((model, result), count) in &self.loads {
            text.sample(&[("model", model), ("result", result)], *count as f64);
        }
        text.family(
            "load_seconds",
            Kind::Histogram,
            "Time from the start of an engine until it was ready.",
        );
        for (model, histogram) in &self.load_seconds {
            text.histogram(&[("model", model)], histogram);
        }
        let help = "Replicas evicted for another model, by reason and by their own priority.";
        text.family("evictions_total", Kind::Counter, help);
        for ((model, reason, priority), count) in &self.evictions {
            let priority = priority.to_string();
            text.sample(
                &[
                    ("model", model),
                    ("reason", reason),
                    ("priority", &priority),
                ],
                *count as f64,
            );
        }
        text.family(
            "eviction_age_seconds",
            Kind::Histogram,
            "Time for which evicted replicas had been ready.",
        );
        text.histogram(&[], &self.eviction_age);
        text.family(
            "drain_seconds",
            Kind::Histogram,
            "Time for which replicas drained before they were stopped.",
        );
        text.histogram(&[], &self.drain_seconds);
    }
}

/// The kind of failure at the beginning of the text, or the kind that follows from the pool's own action.
fn failure(reason_text: &str) -> &'static str {
    let after = reason_text.split_once(": ").map(|(_, rest)| rest);
    Failure::parse(reason_text)
        .or_else(|| Failure::parse(after?))
        .map_or("failed", Failure::label)
}

/// The rule behind an eviction, as a short label.
fn reason(reason_text: &str) -> &'static str {
    let rules = [
        ("preempted by ", "preempted"),
        ("its turn ", "turn"),
        ("yields after ", "yielded"),
        ("serves only batches", "batch_yielded"),
        ("forced out ", "forced"),
    ];
    rules
        .iter()
        .find(|(start, _)| reason_text.starts_with(start))
        .map_or("other", |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{OrderId, Priority, Record, RecordKind, ReplicaId, StopReason};

    fn record(kind: RecordKind, at: u64, took: u64) -> Record {
        Record {
            replica: Some(ReplicaId(1)),
            priority: Some(Priority(1)),
            took: Some(Span(took)),
            ..Record::new(
                Time(at),
                kind,
                Some("m".to_owned()),
                "its turn of 5 s is over, x waits (P3); 0 in flight".to_owned(),
            )
        }
    }

    #[test]
    fn every_reason_to_evict_has_its_label() {
        let by = || "x".to_owned();
        let preempted = StopReason::Preempted {
            by: by(),
            priority: Priority(1),
            own: Priority(0),
            lease: Some(Span(5)),
        };
        assert_eq!(reason(&preempted.to_string()), "preempted");
        assert_eq!(
            reason(
                &StopReason::TurnEnded {
                    by: by(),
                    ready_for: Span(1)
                }
                .to_string()
            ),
            "turn"
        );
        let yielded = StopReason::Yielded {
            by: by(),
            idle: Span(1),
            own: Priority(1),
            priority: Priority(0),
        };
        assert_eq!(reason(&yielded.to_string()), "yielded");
        let batch = StopReason::BatchYielded { by: by() };
        assert_eq!(reason(&batch.to_string()), "batch_yielded");
        assert_eq!(
            reason(
                &StopReason::Forced {
                    by: by(),
                    order: OrderId(1),
                    lease: Some(Span(5)),
                }
                .to_string()
            ),
            "forced"
        );
    }

    #[test]
    fn a_failed_load_is_labelled_with_its_kind() {
        let shown = Failure::BinaryMissing.tell("no such thing", "not started");
        assert_eq!(failure(&shown), "binary_missing");
        let after = StopReason::LoadTimedOut {
            deadline: Span(1_000),
        };
        let shown = Failure::NeverReady.tell("still reading", "signal 9");
        assert_eq!(failure(&format!("{after}: {shown}")), "never_ready");
        assert_eq!(failure("the model left the catalogue"), "failed");
    }

    #[tokio::test]
    async fn each_record_is_counted_once_and_earlier_ones_are_not_counted() {
        let home = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/pool.db", home.path().display());
        let store = Store::open(&url).await.unwrap();
        let name = |device: pool::DeviceId| device.to_string();
        store
            .append(&[record(RecordKind::Ready, 1_000, 500)], &name)
            .await
            .unwrap();
        let mut counted = Counted::since(Time(2_000));
        counted.read(&store).await.unwrap();
        let newer = [
            record(RecordKind::Ready, 2_000, 700),
            record(RecordKind::Evict, 12_000, 10_000),
            record(RecordKind::Gone, 15_000, 1_000),
        ];
        store.append(&newer, &name).await.unwrap();
        counted.read(&store).await.unwrap();
        counted.read(&store).await.unwrap();
        let mut text = Text::default();
        counted.write(&mut text);
        let text = text.finish();
        for line in [
            "model_pool_loads_total{model=\"m\",result=\"ready\"} 1",
            "model_pool_load_seconds_sum{model=\"m\"} 0.7",
            "model_pool_evictions_total{model=\"m\",reason=\"turn\",priority=\"1\"} 1",
            "model_pool_eviction_age_seconds_sum 10",
            "model_pool_drain_seconds_sum 2",
        ] {
            assert!(
                text.lines().any(|known| known == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
