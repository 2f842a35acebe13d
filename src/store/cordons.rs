//! Cordons of devices, by UUID or name (M7, D1).

use sqlx::Row;

use super::{Store, StoreFault, from_integer, to_integer};
use pool::{Cordon, Time};

impl Store {
    /// Replaces the device's cordon; `None` deletes it.
    pub async fn save_cordon(
        &self,
        device: &str,
        cordon: Option<&Cordon>,
    ) -> Result<(), StoreFault> {
        let query = match cordon {
            None => sqlx::query("DELETE FROM cordons WHERE device = ?").bind(device),
            Some(cordon) => sqlx::query(
                "REPLACE INTO cordons (device, reason, since_at, until_at, failed) VALUES (?, ?, ?, ?, ?)",
            )
            .bind(device)
            .bind(&cordon.reason)
            .bind(to_integer(cordon.since.0))
            .bind(cordon.until.map(|until| to_integer(until.0)))
            .bind(cordon.failed),
        };
        self.write("save a cordon", async |connection| {
            query.execute(connection).await
        })
        .await
        .map(|_| ())
    }

    /// All cordons, by the device's key.
    pub async fn cordons(&self) -> Result<Vec<(String, Cordon)>, StoreFault> {
        let rows = sqlx::query(
            "SELECT device, reason, since_at, until_at, failed FROM cordons ORDER BY device",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read the cordons"))?;
        let cordon = |row: &sqlx::sqlite::SqliteRow| Cordon {
            reason: row.get("reason"),
            since: Time(from_integer(row.get("since_at"))),
            until: row
                .get::<Option<i64>, _>("until_at")
                .map(|at| Time(from_integer(at))),
            failed: row.get("failed"),
        };
        Ok(rows
            .iter()
            .map(|row| (row.get("device"), cordon(row)))
            .collect())
    }
}
