//! Bounds everything except the history: rows without another limit, and the space of deleted rows. Every call is a short write;
//! the caller repeats it until nothing is left to do.

use crate::database::Store;
use crate::history::FORGOTTEN_AT_ONCE;
use crate::sql::query::query;
use crate::sql::{Dialect, StoreError};

/// Limit of measurements by model and circumstances. A model whose arguments change leaves its old rows behind.
const MEASUREMENTS_MAX: i64 = 10_000;
/// Limit of models with stored demand, including removed models.
const REMEMBERED_MAX: i64 = 10_000;
/// Limit of minutes times models, in addition to the hundred days.
const USAGE_ROWS_MAX: i64 = 5_000_000;
/// Limit of addresses whose tokens of today are stored. Keys and people have no limit.
const ADDRESSES_MAX: i64 = 100_000;
/// Pages of 4 KiB per release. Each may have to be moved.
const PAGES_AT_ONCE: i64 = 256;
/// Free pages that stay, which lets new rows reuse space instead of growing the file.
const PAGES_KEPT: i64 = 1_024;

impl Store {
    /// Deletes the oldest minute rows beyond the limit. Returns their number, at most [`FORGOTTEN_AT_ONCE`].
    pub async fn forget_usage(&self) -> Result<u64, StoreError> {
        // An update keeps a row's number, and new rows get larger numbers.
        let old = query(
            "DELETE FROM usage WHERE rowid IN (SELECT rowid FROM usage
             WHERE rowid <= (SELECT max(rowid) FROM usage) - ?1 LIMIT ?2)",
        )
        .bind(USAGE_ROWS_MAX)
        .bind(FORGOTTEN_AT_ONCE);
        self.write("delete old usage", async |connection| {
            old.execute(connection).await
        })
        .await
    }

    /// Deletes, beyond the limits, the oldest measurements, the demand of the models unused for longest, and the tokens of the
    /// earliest addresses. Returns the number of rows.
    pub async fn forget_facts(&self) -> Result<u64, StoreError> {
        let bounds = [
            (
                "DELETE FROM measurements WHERE rowid IN
                 (SELECT rowid FROM measurements ORDER BY at DESC LIMIT 1000000 OFFSET ?)",
                MEASUREMENTS_MAX,
            ),
            // A changed row gets a new number, so the smallest numbers were unchanged for longest.
            (
                "DELETE FROM remembered WHERE rowid IN
                 (SELECT rowid FROM remembered ORDER BY rowid DESC LIMIT 1000000 OFFSET ?)",
                REMEMBERED_MAX,
            ),
            (
                "DELETE FROM tokens_by_day WHERE rowid IN
                 (SELECT rowid FROM tokens_by_day WHERE bucket >= 'address:' AND bucket < 'address;'
                  ORDER BY rowid DESC LIMIT 1000000 OFFSET ?)",
                ADDRESSES_MAX,
            ),
        ];
        let mut gone = 0;
        for (statement, most) in bounds {
            let done = self
                .write("delete old measurements and counts", async |connection| {
                    query(statement).bind(most).execute(connection).await
                })
                .await?;
            gone += done;
        }
        Ok(gone)
    }

    /// Releases some unused pages to the disk. Returns true if there are more. A database created without this option keeps and
    /// reuses its pages, and PostgreSQL's autovacuum does this automatically.
    pub async fn give_space_back(&self) -> Result<bool, StoreError> {
        if self.dialect() == Dialect::Postgres {
            return Ok(false);
        }
        let more = self.write("release disk space", async |connection| {
            let sizes = "SELECT (SELECT auto_vacuum FROM pragma_auto_vacuum) AS kind,
                         (SELECT freelist_count FROM pragma_freelist_count) AS free";
            let row = query(sizes).fetch_one(&mut *connection).await?;
            let (kind, free): (i64, i64) = (row.get("kind"), row.get("free"));
            let surplus = free - PAGES_KEPT;
            // 2 means that pages are released on request.
            if kind != 2 || surplus <= 0 {
                return Ok(None);
            }
            query("PRAGMA incremental_vacuum(256)")
                .execute(connection)
                .await?;
            Ok(Some(surplus > PAGES_AT_ONCE))
        });
        let more = more.await?;
        if more == Some(false) {
            // The file shrinks when SQLite's log is folded into it, which delays no other call.
            self.fold_log().await?;
        }
        Ok(more == Some(true))
    }
}
