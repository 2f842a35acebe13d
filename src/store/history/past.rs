//! The past of a pool's models, for replays: the lifetimes of their replicas, and the times that loading and stopping took. Reads
//! the history and writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::records::StoredShare;
use crate::database::Store;
use crate::database::open::read_only;
use crate::sql::integers::from_integer;
use crate::sql::query::query;
use pool::{Bytes, Span, Time};

/// One model's past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelPast {
    /// Number and total time of the loads that ended with a ready replica, without wakes.
    pub loads: u64,
    pub loading: Span,
    /// Number and total time of wakes, and the total time that the woken engines took to fall asleep before.
    pub wakes: u64,
    pub waking: Span,
    pub parking: Span,
    /// The last replica's number of devices, and the memory on each.
    pub placed: Option<(u32, Bytes)>,
    /// The names of the devices whose memory its last replica held; empty if it runs on none of the pool's.
    pub devices: Vec<String>,
    /// The lifetimes of its replicas.
    pub stays: Vec<PastStay>,
}

/// The lifetime of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastStay {
    /// The decision to load it, or the time at which an earlier process's replica was found.
    pub began: Time,
    /// `None` if it never became ready, as far as is known.
    pub ready: Option<Time>,
    /// The time at which it began to leave; `None` if it still runs.
    pub left: Option<Time>,
    /// It was found ready, so no request waited for it.
    pub is_adopted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolHistory {
    pub models: BTreeMap<String, ModelPast>,
    /// Number and total time of the stops of replicas.
    pub stops: u64,
    pub stopping: Span,
}

impl ModelPast {
    /// The mean time of a load, if it was ever loaded.
    pub fn load(&self) -> Option<Span> {
        self.loading.0.checked_div(self.loads).map(Span)
    }

    /// The mean time of waking a sleeper.
    pub fn wake(&self) -> Option<Span> {
        self.waking.0.checked_div(self.wakes).map(Span)
    }

    /// The mean time of falling asleep, for engines that were woken later.
    pub fn park(&self) -> Option<Span> {
        self.parking.0.checked_div(self.wakes).map(Span)
    }
}

impl PoolHistory {
    /// The mean time of a stop.
    pub fn stop(&self) -> Option<Span> {
        self.stopping.0.checked_div(self.stops).map(Span)
    }

    /// The names of the devices of its models' last replicas.
    pub fn devices(&self) -> BTreeSet<&str> {
        let names = self.models.values().flat_map(|model| &model.devices);
        names.map(String::as_str).collect()
    }
}

impl Store {
    /// Reads the past from a store's file, or a PostgreSQL URL. A running pool may be using it.
    pub async fn read_past(path: &Path) -> Result<PoolHistory, sqlx::Error> {
        let mut connection = read_only(path).await?;
        let rows = query(
            "SELECT at, kind, model, replica, placement, took_ms FROM history \
             WHERE model IS NOT NULL AND replica IS NOT NULL \
             AND kind IN ('load', 'ready', 'adopt', 'evict', 'drain', 'unload', 'sleep', 'crash', 'load_failed', 'gone') \
             ORDER BY id",
        )
        .fetch_all(&mut connection)
        .await?;
        let mut past = PoolHistory::default();
        // For each present replica, the index of its stay, and true if it has become ready.
        let mut open: BTreeMap<(String, i64), (usize, bool)> = BTreeMap::new();
        // The time that each sleeper took to fall asleep. A replica that failed to fall asleep ends after its record.
        let mut asleep: BTreeMap<(String, i64), u64> = BTreeMap::new();
        let mut waking: BTreeMap<(String, i64), u64> = BTreeMap::new();
        for row in &rows {
            let (kind, name): (String, String) = (row.get("kind"), row.get("model"));
            let at = Time(from_integer(row.get("at")));
            let took: Option<i64> = row.get("took_ms");
            let took = took.map(from_integer);
            let replica: (String, i64) = (name.clone(), row.get("replica"));
            let model = past.models.entry(name).or_default();
            match kind.as_str() {
                "load" | "adopt" => {
                    let placement: String = row.get("placement");
                    let shares: Vec<StoredShare> =
                        serde_json::from_str(&placement).unwrap_or_default();
                    if let Some(first) = shares.first() {
                        let devices = u32::try_from(shares.len()).unwrap_or(u32::MAX);
                        model.placed = Some((devices, Bytes(first.bytes)));
                        let held = shares.iter().filter(|share| share.bytes > 0);
                        model.devices = held.map(|share| share.device.clone()).collect();
                    }
                    // A dropped load leaves no record of its end.
                    open.retain(|(name, _), (nth, ready)| {
                        let dropped = *name == replica.0 && !*ready;
                        if dropped {
                            model.stays[*nth].left = Some(at);
                        }
                        !dropped
                    });
                    if let Some(parking) = asleep.remove(&replica) {
                        waking.insert(replica.clone(), parking);
                    }
                    let is_adopted = kind == "adopt";
                    let before = open.insert(replica, (model.stays.len(), is_adopted));
                    // Another process continues with the replica.
                    if let Some((nth, _)) = before {
                        model.stays[nth].left = Some(at);
                    }
                    model.stays.push(PastStay {
                        began: at,
                        ready: is_adopted.then_some(at),
                        left: None,
                        is_adopted,
                    });
                }
                "ready" => {
                    if let Some((nth, ready)) = open.get_mut(&replica) {
                        *ready = true;
                        model.stays[*nth].ready.get_or_insert(at);
                    }
                    let took = took.unwrap_or(0);
                    if let Some(parking) = waking.remove(&replica) {
                        model.wakes += 1;
                        model.waking = Span(model.waking.0.saturating_add(took));
                        model.parking = Span(model.parking.0.saturating_add(parking));
                    } else {
                        model.loads += 1;
                        model.loading = Span(model.loading.0.saturating_add(took));
                    }
                }
                other => {
                    if other == "sleep" {
                        asleep.insert(replica.clone(), took.unwrap_or(0));
                    } else {
                        asleep.remove(&replica);
                        waking.remove(&replica);
                    }
                    if let Some((nth, _)) = open.remove(&replica) {
                        model.stays[nth].left = Some(at);
                    }
                    if other == "gone"
                        && let Some(took) = took
                    {
                        past.stops += 1;
                        past.stopping = Span(past.stopping.0.saturating_add(took));
                    }
                }
            }
        }
        Ok(past)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::file_after;

    #[tokio::test]
    async fn a_stay_records_when_its_load_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let statements = [
            "CREATE TABLE history (id INTEGER PRIMARY KEY, at INTEGER, kind TEXT, model TEXT, \
             replica INTEGER, placement TEXT, took_ms INTEGER)",
            "INSERT INTO history (at, kind, model, replica, placement, took_ms) VALUES \
             (1000, 'load', 'a', 1, '[]', NULL), (6000, 'ready', 'a', 1, '[]', 5000), \
             (7000, 'evict', 'a', 1, '[]', NULL), (7500, 'gone', 'a', 1, '[]', 500), \
             (8000, 'load', 'a', 2, '[]', NULL), (9000, 'ready', 'a', 2, '[]', 1000), \
             (9500, 'adopt', 'a', 2, '[]', NULL), (9800, 'load', 'a', 3, '[]', NULL), \
             (9900, 'load', 'b', 4, '[{\"device\":\"gpu1\",\"bytes\":7}]', NULL), \
             (9950, 'load', 'c', 5, '[{\"device\":\"elsewhere\",\"bytes\":0}]', NULL)",
        ];
        let path = file_after(folder.path(), &statements).await;
        let past = Store::read_past(&path).await.expect("read");
        let stay = |began, ready: Option<u64>, left: Option<u64>, is_adopted| PastStay {
            began: Time(began),
            ready: ready.map(Time),
            left: left.map(Time),
            is_adopted,
        };
        let model = &past.models["a"];
        let expected = [
            stay(1_000, Some(6_000), Some(7_000), false),
            stay(8_000, Some(9_000), Some(9_500), false),
            stay(9_500, Some(9_500), None, true),
            stay(9_800, None, None, false),
        ];
        assert_eq!(model.stays, expected);
        assert_eq!(model.load(), Some(Span(3_000)));
        assert_eq!(past.stop(), Some(Span(500)));
        let devices: Vec<&str> = past.devices().into_iter().collect();
        assert_eq!(devices, ["gpu1"], "those whose memory is the pool's");
    }

    #[tokio::test]
    async fn waking_a_sleeper_is_not_a_load_and_a_failed_sleep_is_not_a_sleep() {
        let folder = tempfile::tempdir().expect("a folder");
        let statements = [
            "CREATE TABLE history (id INTEGER PRIMARY KEY, at INTEGER, kind TEXT, model TEXT, \
             replica INTEGER, placement TEXT, took_ms INTEGER)",
            "INSERT INTO history (at, kind, model, replica, placement, took_ms) VALUES \
             (1000, 'load', 'a', 1, '[]', NULL), (61000, 'ready', 'a', 1, '[]', 60000), \
             (70000, 'sleep', 'a', 1, '[]', 700), (80000, 'load', 'a', 1, '[]', NULL), \
             (82000, 'ready', 'a', 1, '[]', 2000), (90000, 'sleep', 'a', 1, '[]', 900), \
             (91000, 'gone', 'a', 1, '[]', 100), (95000, 'load', 'a', 2, '[]', NULL), \
             (135000, 'ready', 'a', 2, '[]', 40000)",
        ];
        let path = file_after(folder.path(), &statements).await;
        let past = Store::read_past(&path).await.expect("read");
        let model = &past.models["a"];
        assert_eq!(model.load(), Some(Span(50_000)));
        assert_eq!(model.wake(), Some(Span(2_000)));
        assert_eq!(model.park(), Some(Span(700)));
    }
}
