//! Sums over a period of the history: loads, evictions, refusals and failures, and the waiting times of requests. Reads only an
//! index, and the minutes of usage.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::{Span, Time};

const MINUTE_MS: u64 = 60_000;
/// The period counted in one piece, unless that makes too many pieces.
const PIECE: Span = Span::from_secs(2 * 3600);
const PIECES_MAX: u64 = 128;

/// Events counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCount {
    pub kind: String,
    pub model: Option<String>,
    pub cause: Option<String>,
    pub count: u64,
    /// Their total duration, and the longest one.
    pub took_ms: u64,
    pub longest_ms: u64,
}

/// Events of the callers of one group that are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupEventCount {
    /// The path of the group, such as `physics/lab`.
    pub group: String,
    pub kind: String,
    pub cause: Option<String>,
    pub count: u64,
}

/// The requests for one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UseCount {
    pub model: String,
    pub requests: u64,
    /// Number and total waiting time of requests that waited for their seat.
    pub waited: u64,
    pub waited_ms: u64,
    /// Requests with a target whose first token came in time, and the other requests with a target.
    pub in_time: u64,
    pub late: u64,
}

type Sums = BTreeMap<(String, Option<String>, Option<String>), EventCount>;

fn add(sums: &mut Sums, place: (String, Option<String>, Option<String>), count: EventCount) {
    match sums.entry(place) {
        Entry::Vacant(free) => {
            free.insert(count);
        }
        Entry::Occupied(mut known) => {
            let sum = known.get_mut();
            sum.count += count.count;
            sum.took_ms = sum.took_ms.saturating_add(count.took_ms);
            sum.longest_ms = sum.longest_ms.max(count.longest_ms);
        }
    }
}

impl Store {
    /// All events from `from` until before `to`, by kind, model and reason. Counts the period in pieces, two at a time, because
    /// SQLite's sorting for groups costs more than reading.
    pub async fn count_events(&self, from: Time, to: Time) -> Result<Vec<EventCount>, StoreError> {
        let middle = Time(from.0 + to.since(from).0 / 2);
        let (mut sums, second) = tokio::try_join!(
            self.count_pieces(from, middle),
            self.count_pieces(middle, to)
        )?;
        for (place, count) in second {
            add(&mut sums, place, count);
        }
        Ok(sums.into_values().collect())
    }

    async fn count_pieces(&self, from: Time, to: Time) -> Result<Sums, StoreError> {
        let piece = Span(PIECE.0.max(to.since(from).0 / PIECES_MAX));
        let mut sums = Sums::new();
        let mut begin = from;
        while begin < to {
            let end = to.min(begin + piece);
            for count in self.count_at_once(begin, end).await? {
                let place = (count.kind.clone(), count.model.clone(), count.cause.clone());
                add(&mut sums, place, count);
            }
            begin = end;
        }
        Ok(sums)
    }

    async fn count_at_once(&self, from: Time, to: Time) -> Result<Vec<EventCount>, StoreError> {
        let rows = query(format!(
            "SELECT kind, model, cause, count(*) AS count, CAST(coalesce(sum(took_ms), 0) AS BIGINT) AS took, \
             coalesce(max(took_ms), 0) AS longest FROM history{} WHERE at >= ? AND at < ? GROUP BY kind, model, cause",
            self.dialect().indexed_by("history_by_time")
        ))
        .bind(to_integer(from.0))
        .bind(to_integer(to.0))
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("count the history"))?;
        let count = |row: &Row| EventCount {
            kind: row.get("kind"),
            model: row.get("model"),
            cause: row.get("cause"),
            count: from_integer(row.get("count")),
            took_ms: from_integer(row.get("took")),
            longest_ms: from_integer(row.get("longest")),
        };
        Ok(rows.iter().map(count).collect())
    }

    /// The events of these kinds from `from` until before `to` by the group of their caller, without the groups below it.
    pub async fn count_group_events(
        &self,
        kinds: &[&str],
        from: Time,
        to: Time,
    ) -> Result<Vec<GroupEventCount>, StoreError> {
        let mut sql = query(format!(
            "SELECT asker_group, kind, cause, count(*) AS count FROM history{} \
             WHERE asker_group IS NOT NULL AND at >= ",
            self.dialect().indexed_by("history_by_group_and_time")
        ));
        sql.push_bind(to_integer(from.0)).push(" AND at < ");
        sql.push_bind(to_integer(to.0)).push(" AND kind IN (");
        for (nth, kind) in kinds.iter().enumerate() {
            sql.push(if nth == 0 { "" } else { ", " }).push_bind(*kind);
        }
        sql.push(") GROUP BY asker_group, kind, cause ORDER BY asker_group, kind, cause");
        let rows = sql
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("count the history by group"))?;
        let count = |row: &Row| GroupEventCount {
            group: row.get("asker_group"),
            kind: row.get("kind"),
            cause: row.get("cause"),
            count: from_integer(row.get("count")),
        };
        Ok(rows.iter().map(count).collect())
    }

    /// The requests for all models by steps of this many minutes since 1970, such as hours.
    pub async fn count_use_by(
        &self,
        minutes: u32,
        from: Time,
        to: Time,
    ) -> Result<Vec<(i64, UseCount)>, StoreError> {
        let rows = query(format!(
            "SELECT minute / {minutes} AS step, CAST(sum(requests) AS BIGINT) AS requests, \
             CAST(sum(waited) AS BIGINT) AS waited, CAST(sum(waited_ms) AS BIGINT) AS waited_ms, \
             CAST(sum(in_time) AS BIGINT) AS in_time, CAST(sum(late) AS BIGINT) AS late \
             FROM usage WHERE minute >= ? AND minute < ? GROUP BY minute / {minutes}"
        ))
        .bind(to_integer(from.0 / MINUTE_MS))
        .bind(to_integer(to.0.div_ceil(MINUTE_MS)))
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("count the use"))?;
        let count = |row: &Row| {
            let count = UseCount {
                model: String::new(),
                requests: from_integer(row.get("requests")),
                waited: from_integer(row.get("waited")),
                waited_ms: from_integer(row.get("waited_ms")),
                in_time: from_integer(row.get("in_time")),
                late: from_integer(row.get("late")),
            };
            (row.get("step"), count)
        };
        Ok(rows.iter().map(count).collect())
    }

    /// The requests for models in the minutes from `from` until before `to`.
    pub async fn count_use(&self, from: Time, to: Time) -> Result<Vec<UseCount>, StoreError> {
        let rows = query(
            "SELECT model, CAST(sum(requests) AS BIGINT) AS requests, CAST(sum(waited) AS BIGINT) AS waited, \
             CAST(sum(waited_ms) AS BIGINT) AS waited_ms, CAST(sum(in_time) AS BIGINT) AS in_time, \
             CAST(sum(late) AS BIGINT) AS late \
             FROM usage WHERE minute >= ? AND minute < ? GROUP BY model",
        )
        .bind(to_integer(from.0 / MINUTE_MS))
        .bind(to_integer(to.0.div_ceil(MINUTE_MS)))
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("count the use"))?;
        let count = |row: &Row| UseCount {
            model: row.get("model"),
            requests: from_integer(row.get("requests")),
            waited: from_integer(row.get("waited")),
            waited_ms: from_integer(row.get("waited_ms")),
            in_time: from_integer(row.get("in_time")),
            late: from_integer(row.get("late")),
        };
        Ok(rows.iter().map(count).collect())
    }
}
