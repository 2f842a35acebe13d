//! What happened to the models in a pool's past, for replays of it: when their replicas were there, and how long loading
//! and stopping took. From the history; nothing is written.

use std::collections::BTreeMap;
use std::path::Path;

use super::history::StoredShare;
use super::open::read_only;
use super::query::query;
use super::{Store, from_integer};
use pool::{Bytes, Span, Time};

/// One model's past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelPast {
    /// Loads that ended with a ready replica, and the time that they took together.
    pub loads: u64,
    pub loading: Span,
    /// Where its last replica was: the number of devices, and the memory on each.
    pub placed: Option<(u32, Bytes)>,
    /// From the decision to load a replica until it began to leave; `None`: it is still there.
    pub stays: Vec<(Time, Option<Time>)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    pub models: BTreeMap<String, ModelPast>,
    /// Replicas that were stopped, and the time that it took together.
    pub stops: u64,
    pub stopping: Span,
}

impl ModelPast {
    /// The mean time of its loads, if it was ever loaded.
    pub fn load(&self) -> Option<Span> {
        self.loading.0.checked_div(self.loads).map(Span)
    }
}

impl Past {
    /// The mean time of a stop.
    pub fn stop(&self) -> Option<Span> {
        self.stopping.0.checked_div(self.stops).map(Span)
    }
}

impl Store {
    /// The past in a store's file, or at a URL of PostgreSQL, which a running pool may be using.
    pub async fn read_past(path: &Path) -> Result<Past, sqlx::Error> {
        let mut connection = read_only(path).await?;
        let rows = query(
            "SELECT at, kind, model, replica, placement, took_ms FROM history \
             WHERE model IS NOT NULL AND replica IS NOT NULL \
             AND kind IN ('load', 'ready', 'adopt', 'evict', 'drain', 'unload', 'sleep', 'crash', 'load_failed', 'gone') \
             ORDER BY id",
        )
        .fetch_all(&mut connection)
        .await?;
        let mut past = Past::default();
        // Where the stay of each replica that is there now is kept, and whether it has become ready.
        let mut open: BTreeMap<(String, i64), (usize, bool)> = BTreeMap::new();
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
                    }
                    // A load that was dropped leaves no line behind.
                    open.retain(|(name, _), (nth, ready)| {
                        let dropped = *name == replica.0 && !*ready;
                        if dropped {
                            model.stays[*nth].1 = Some(at);
                        }
                        !dropped
                    });
                    open.insert(replica, (model.stays.len(), kind == "adopt"));
                    model.stays.push((at, None));
                }
                "ready" => {
                    if let Some((_, ready)) = open.get_mut(&replica) {
                        *ready = true;
                    }
                    model.loads += 1;
                    model.loading = Span(model.loading.0.saturating_add(took.unwrap_or(0)));
                }
                other => {
                    if let Some((nth, _)) = open.remove(&replica) {
                        model.stays[nth].1 = Some(at);
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
