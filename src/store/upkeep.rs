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
        sqlx::query(
            "DELETE FROM usage WHERE rowid IN (SELECT rowid FROM usage
             WHERE rowid <= (SELECT max(rowid) FROM usage) - ?1 LIMIT ?2)",
        )
        .bind(USAGE_ROWS_MAX)
        .bind(FORGOTTEN_AT_ONCE)
        .execute(&self.writer)
        .await
        .map(|done| done.rows_affected())
        .map_err(self.failed("forget what was used long ago"))
    }

    /// Deletes, beyond the bounds, the oldest measurements, what is remembered of models that were not wanted
    /// for longest, and the tokens of addresses that came first; answers how many rows went.
    pub async fn forget_facts(&self) -> Result<u64, StoreFault> {
        let measurements = sqlx::query(
            "DELETE FROM measurements WHERE rowid IN
             (SELECT rowid FROM measurements ORDER BY at DESC LIMIT -1 OFFSET ?)",
        )
        .bind(MEASUREMENTS_MAX)
        .execute(&self.writer)
        .await
        .map_err(self.failed("forget old measurements"))?;
        // What is replaced gets a new number: the smallest are those that were not changed for longest.
        let remembered = sqlx::query(
            "DELETE FROM remembered WHERE rowid IN
             (SELECT rowid FROM remembered ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
        )
        .bind(REMEMBERED_MAX)
        .execute(&self.writer)
        .await
        .map_err(self.failed("forget how much models were wanted"))?;
        let addresses = sqlx::query(
            "DELETE FROM tokens_by_day WHERE rowid IN
             (SELECT rowid FROM tokens_by_day WHERE bucket >= 'address:' AND bucket < 'address;'
              ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
        )
        .bind(ADDRESSES_MAX)
        .execute(&self.writer)
        .await
        .map_err(self.failed("forget what addresses used"))?;
        let gone = [measurements, remembered, addresses].map(|it| it.rows_affected());
        Ok(gone.iter().sum())
    }

    /// Gives some of the pages that hold nothing any more back to the disk; answers whether there are more. A
    /// database that was made without this keeps its pages and fills them again.
    pub async fn give_space_back(&self) -> Result<bool, StoreFault> {
        let done = async {
            let mut connection = self.writer.acquire().await?;
            let asked = "SELECT (SELECT auto_vacuum FROM pragma_auto_vacuum) AS kind,
                         (SELECT freelist_count FROM pragma_freelist_count) AS free";
            let row = sqlx::query(asked).fetch_one(&mut *connection).await?;
            let (kind, free): (i64, i64) = (row.get("kind"), row.get("free"));
            let surplus = free - PAGES_KEPT;
            // 2: pages are given back when that is asked for.
            if kind != 2 || surplus <= 0 {
                return Ok(false);
            }
            sqlx::query("PRAGMA incremental_vacuum(256)")
                .execute(&mut *connection)
                .await?;
            if surplus > PAGES_AT_ONCE {
                return Ok(true);
            }
            // The file itself is shortened when SQLite's log is folded into it; nobody waits for that.
            sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
                .execute(&mut *connection)
                .await?;
            Ok(false)
        };
        done.await
            .map_err(self.failed("give space back to the disk"))
    }
}
