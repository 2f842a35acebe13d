//! Keeps what is not history within bounds: rows that nobody deletes otherwise, and the space that deleted ones
//! leave. Every call is one short write; whoever calls does so again while there is more to do.

use sqlx::Row;

use super::history::FORGOTTEN_AT_ONCE;
use super::{Store, StoreFault};

/// Replicas' needs, by model and circumstances: a model whose arguments are changed leaves the old ones behind.
const MEASUREMENTS_MAX: i64 = 10_000;
/// Models whose demand is remembered, those of today and those that were removed.
const REMEMBERED_MAX: i64 = 10_000;
/// Minutes times models, beside the hundred days.
const USAGE_ROWS_MAX: i64 = 5_000_000;
/// Addresses whose tokens of today are kept; keys and people are all kept.
const ADDRESSES_MAX: i64 = 100_000;
/// Pages of 4 KiB that are given back at once; each may have to be moved.
const PAGES_AT_ONCE: i64 = 256;
/// New rows take these without the file growing.
const PAGES_KEPT: i64 = 1_024;

impl Store {
    /// Deletes the oldest rows of minutes beyond the bound; answers how many went, at most
    /// [`FORGOTTEN_AT_ONCE`].
    pub async fn forget_usage(&self) -> Result<u64, StoreFault> {
        // A row keeps its number while its minute is added to, and new ones get larger numbers.
        let query = sqlx::query(
            "DELETE FROM usage WHERE rowid IN (SELECT rowid FROM usage
             WHERE rowid <= (SELECT max(rowid) FROM usage) - ?1 LIMIT ?2)",
        )
        .bind(USAGE_ROWS_MAX)
        .bind(FORGOTTEN_AT_ONCE);
        self.write("forget what was used long ago", async |connection| {
            query.execute(connection).await
        })
        .await
        .map(|done| done.rows_affected())
    }

    /// Deletes, beyond the bounds, the oldest measurements, what is remembered of models that were not wanted
    /// for longest, and the tokens of addresses that came first; answers how many rows went.
    pub async fn forget_facts(&self) -> Result<u64, StoreFault> {
        let bounds = [
            (
                "DELETE FROM measurements WHERE rowid IN
                 (SELECT rowid FROM measurements ORDER BY at DESC LIMIT -1 OFFSET ?)",
                MEASUREMENTS_MAX,
            ),
            // What is replaced gets a new number: the smallest are those that were not changed for longest.
            (
                "DELETE FROM remembered WHERE rowid IN
                 (SELECT rowid FROM remembered ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
                REMEMBERED_MAX,
            ),
            (
                "DELETE FROM tokens_by_day WHERE rowid IN
                 (SELECT rowid FROM tokens_by_day WHERE bucket >= 'address:' AND bucket < 'address;'
                  ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
                ADDRESSES_MAX,
            ),
        ];
        let mut gone = 0;
        for (statement, most) in bounds {
            let done = self
                .write("forget old measurements and counts", async |connection| {
                    sqlx::query(statement).bind(most).execute(connection).await
                })
                .await?;
            gone += done.rows_affected();
        }
        Ok(gone)
    }

    /// Gives some of the pages that hold nothing any more back to the disk; answers whether there are more. A
    /// database that was made without this keeps its pages and fills them again.
    pub async fn give_space_back(&self) -> Result<bool, StoreFault> {
        let more = self.write("give space back to the disk", async |connection| {
            let asked = "SELECT (SELECT auto_vacuum FROM pragma_auto_vacuum) AS kind,
                         (SELECT freelist_count FROM pragma_freelist_count) AS free";
            let row = sqlx::query(asked).fetch_one(&mut *connection).await?;
            let (kind, free): (i64, i64) = (row.get("kind"), row.get("free"));
            let surplus = free - PAGES_KEPT;
            // 2: pages are given back when that is asked for.
            if kind != 2 || surplus <= 0 {
                return Ok(None);
            }
            sqlx::query("PRAGMA incremental_vacuum(256)")
                .execute(connection)
                .await?;
            Ok(Some(surplus > PAGES_AT_ONCE))
        });
        let more = more.await?;
        if more == Some(false) {
            // The file itself is shortened when SQLite's log is folded into it; nobody waits for that.
            self.fold_log().await?;
        }
        Ok(more == Some(true))
    }
}
