//! Performance with a long history: the first page of every filter, the end of a selective filter, and a report. The default number
//! of rows is small; `HISTORY_ROWS=10000000` is a year of a busy pool.

use std::time::{Duration, Instant};

use model_pool::pool::Time;
use model_pool::store::{EventCount, HistoryQuery, Store};
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection};
use support::table::rows_of;

const PAGE_WITHIN: Duration = Duration::from_millis(50);
/// A report over a week, from an index over a year.
const REPORT_WITHIN: Duration = Duration::from_secs(1);
/// One event every three seconds, ten million in a year.
const EVENT_EVERY_MS: i64 = 3_000;

/// Evictions of models a to z with every third reason; a rare model, a rare reason and a rare key at the start.
const FILL: &str = "
WITH RECURSIVE rows (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM rows WHERE n < ?1)
INSERT INTO history (at, kind, model, replica, order_id, reason, priority, placement, candidates, memory, took_ms, cause, asked_by)
SELECT n * 3000,
       CASE n % 4 WHEN 0 THEN 'load' WHEN 1 THEN 'ready' WHEN 2 THEN 'evict' ELSE 'gone' END,
       CASE WHEN n < 3 THEN 'rare' ELSE char(97 + n % 26) END,
       n, NULL, 'preempted by another model: priority 1 over 0 (P2); 0 in flight', 0,
       '[{\"device\":\"gpu0\",\"bytes\":17179869184}]', '[\"chosen: gpu0: free, 3.0 GiB left over\"]',
       '[{\"device\":\"gpu0\",\"before_bytes\":17179869184,\"after_bytes\":0}]', n % 60000,
       CASE WHEN n < 3 THEN 'forced' WHEN n % 4 = 2 THEN 'preempted' WHEN n % 4 = 0 THEN 'requests' END,
       CASE WHEN n < 3 THEN 'k9' WHEN n % 4 = 1 THEN NULL ELSE 'k' || (n % 5) END
FROM rows";
const AT_ONCE: &str = "SELECT kind, model, cause, count(*) AS count, sum(took_ms) AS took, max(took_ms) AS longest FROM history WHERE at >= ? AND at < ? GROUP BY kind, model, cause";
const HOURS: &str = "INSERT INTO history_hours (hour, first_id, last_id) SELECT at / 3600000, min(id), max(id) FROM history GROUP BY 1";

async fn filled(folder: &std::path::Path, rows: i64) -> Store {
    let url = format!("sqlite://{}/state.db", folder.display());
    Store::open(&url).await.unwrap().close().await;
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    sqlx::query(FILL)
        .bind(rows)
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query(HOURS).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    Store::open(&url).await.unwrap()
}

/// Kind, model and reason, with the number of events, their total time, and the longest.
type Sums = (String, Option<String>, Option<String>, [i64; 3]);

fn sums_of_row(row: &SqliteRow) -> Sums {
    let figures = [row.get("count"), row.get("took"), row.get("longest")];
    (row.get("kind"), row.get("model"), row.get("cause"), figures)
}

fn sums(row: &EventCount) -> Sums {
    let figures =
        [row.count, row.took_ms, row.longest_ms].map(|figure| i64::try_from(figure).unwrap());
    (
        row.kind.clone(),
        row.model.clone(),
        row.cause.clone(),
        figures,
    )
}

/// A name | filters, with days after the end of the history and hours after its beginning | the events of the first page
const FILTERS: &str = "
    none | | 100
    model | model=c | 100
    kind | kind=evict | 100
    reason | reason=preempted | 100
    key | key=k2 | 100
    a rare model | model=rare | 2
    a rare reason | reason=forced | 2
    a rare key | key=k9 | 2
    a model and a reason that it never had | model=c reason=forced | 0
    a model and a kind that it never had | model=c kind=refuse | 0
    the last two days of a model | from=-2 model=c | 100
    the last two days of a rare model | from=-2 model=rare | 0
    the last two days of a rare key | from=-2 key=k9 | 0
    a day long ago | from=begin to=24 | 100
    the end of the first hour | to=1 | 100
    all of them | from=-2 model=c reason=preempted key=k2 | 100
    after the end | from=1 | 0
";

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
async fn the_first_page_of_every_filter_is_quick_for_a_history_of_any_length() {
    let _turn = super::ALONE.lock().await;
    let rows = std::env::var("HISTORY_ROWS").map_or(400_000, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path(), rows).await;
    let end = rows * EVENT_EVERY_MS;
    let time = |ms: i64| Some(Time(u64::try_from(ms).unwrap()));
    let day = 86_400_000;
    for [name, filters, expected] in rows_of(FILTERS) {
        let mut query = HistoryQuery {
            limit: 100,
            ..HistoryQuery::default()
        };
        for filter in filters.split_whitespace() {
            let (key, value) = filter.split_once('=').expect(filter);
            let text = Some(value.to_owned());
            match (key, value) {
                ("model", _) => query.model = text,
                ("kind", _) => query.kind = text,
                ("reason", _) => query.cause = text,
                ("key", _) => query.asked_by = text,
                ("from", "begin") => (query.since, query.after) = (time(0), Some(0)),
                ("from", days) => query.since = time(end + days.parse::<i64>().unwrap() * day),
                ("to", hours) => query.until = time(hours.parse::<i64>().unwrap() * 3_600_000),
                other => panic!("{other:?}"),
            }
        }
        let mut best = Duration::MAX;
        let mut found = 0;
        for _ in 0..3 {
            let began = Instant::now();
            found = store.history(query.clone()).await.unwrap().len();
            best = best.min(began.elapsed());
        }
        println!("{name}: {found} in {best:?}");
        assert_eq!(found.to_string(), expected, "{name}");
        assert!(best <= PAGE_WITHIN, "{name} took {best:?} with {rows} rows");
    }
    let (from, to) = (
        time(end - 7 * day).unwrap_or_default(),
        time(end + 1).unwrap(),
    );
    let began = Instant::now();
    let counts = store.count_events(from, to).await.unwrap();
    let took = began.elapsed();
    let counted: u64 = counts.iter().map(|row| row.count).sum();
    let url = format!("sqlite://{}/state.db", folder.path().display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let at_once = sqlx::query(AT_ONCE)
        .bind(i64::try_from(from.0).unwrap())
        .bind(i64::try_from(to.0).unwrap())
        .fetch_all(&mut connection);
    let mut at_once: Vec<_> = at_once.await.unwrap().iter().map(sums_of_row).collect();
    let mut sums: Vec<_> = counts.iter().map(sums).collect();
    at_once.sort();
    sums.sort();
    assert_eq!(sums, at_once, "the pieces add up to the total");
    println!("a report of a week: {counted} events in {took:?}");
    assert_eq!(
        counted,
        u64::try_from((7 * day / EVENT_EVERY_MS).min(rows - 1) + 1).unwrap()
    );
    assert!(took <= REPORT_WITHIN, "{took:?}");
}
