//! Cordons of devices, by UUID or name (M7, D1).

use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::{Cordon, Time};

impl Store {
    /// Replaces the device's cordon; `None` deletes it.
    pub async fn save_cordon(
        &self,
        device: &str,
        cordon: Option<&Cordon>,
    ) -> Result<(), StoreError> {
        let change = match cordon {
            None => query("DELETE FROM cordons WHERE device = ?").bind(device),
            Some(cordon) => query(
                "INSERT INTO cordons (device, reason, since_at, until_at, failed) VALUES (?, ?, ?, ?, ?) \
                 ON CONFLICT (device) DO UPDATE SET reason = excluded.reason, since_at = excluded.since_at, \
                 until_at = excluded.until_at, failed = excluded.failed",
            )
            .bind(device)
            .bind(&cordon.reason)
            .bind(to_integer(cordon.since.0))
            .bind(cordon.until.map(|until| to_integer(until.0)))
            .bind(cordon.failed),
        };
        self.write("save a cordon", async |connection| {
            change.execute(connection).await
        })
        .await
        .map(|_| ())
    }

    /// All cordons, by device key.
    pub async fn cordons(&self) -> Result<Vec<(String, Cordon)>, StoreError> {
        let rows =
            query("SELECT device, reason, since_at, until_at, failed FROM cordons ORDER BY device")
                .fetch_all(&self.readers)
                .await
                .map_err(self.failed("read the cordons"))?;
        let cordon = |row: &Row| Cordon {
            reason: row.get("reason"),
            since: Time(from_integer(row.get("since_at"))),
            until: row
                .get::<Option<i64>>("until_at")
                .map(|at| Time(from_integer(at))),
            failed: row.get::<i64>("failed") != 0,
        };
        Ok(rows
            .iter()
            .map(|row| (row.get("device"), cordon(row)))
            .collect())
    }
}
