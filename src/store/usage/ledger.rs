//! The parts of the time of devices, by hour and by day. Names are stored once. Hours are kept for a short time, days for as long as
//! configured.

use std::collections::BTreeMap;

use super::ledger_batch::{LedgerAmount, LedgerBatch};
use super::pool_minutes;
use crate::database::Store;
use crate::sql::integers::{from_integer, saturating_sum, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::Time;

/// Hours that are kept.
const HOURS_KEPT: i64 = 14 * 24;
/// The most rows that are deleted in one write.
const FORGOTTEN_AT_ONCE: i64 = 2_000;
/// A device that no controller has seen for this many hours is forgotten. Controllers count a gap of at most 31 days as not known.
const SEEN_HOURS_KEPT: i64 = 32 * 24;
const HOUR_MS: i64 = 3_600_000;
/// The row of `meta` with the number of the last batch.
const LAST_BATCH: &str = "ledger_batch";

/// A sum over a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSum {
    /// The device, or the day, as the query says; empty otherwise.
    pub device: String,
    /// The day or hour since 1970; 0 for a sum over all.
    pub period: i64,
    pub model: String,
    pub payer: String,
    pub state: String,
    pub amount: LedgerAmount,
}

macro_rules! add {
    ($table:literal, $period:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (",
            $period,
            ", device, model, payer, state, device_ms, byte_seconds, energy_mj, energy_ms) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) \
             ON CONFLICT (",
            $period,
            ", device, model, payer, state) DO UPDATE SET device_ms = ",
            saturating_sum!("TABLE.device_ms", "excluded.device_ms"),
            ", byte_seconds = ",
            saturating_sum!("TABLE.byte_seconds", "excluded.byte_seconds"),
            ", energy_mj = ",
            saturating_sum!("TABLE.energy_mj", "excluded.energy_mj"),
            ", energy_ms = ",
            saturating_sum!("TABLE.energy_ms", "excluded.energy_ms")
        )
    };
}

/// Sums of bytes and energy may exceed an integer. They are summed in two parts: multiples of this number, and the rest.
const UNIT: u32 = 1 << 20;

/// The sums of the columns. Times stay far below an integer. PostgreSQL sums to a larger type.
macro_rules! sums {
    (times: $($time:literal),+; others: $($column:literal),+) => {
        concat!(
            $(", CAST(sum(", $time, ") AS BIGINT) AS ", $time,)+
            $(
                ", CAST(sum(", $column, " / 1048576) AS BIGINT) AS ", $column, "_units, CAST(sum(", $column,
                " % 1048576) AS BIGINT) AS ", $column, "_rest",
            )+
        )
    };
}

const SUMS: &str = sums!(times: "device_ms", "energy_ms"; others: "byte_seconds", "energy_mj");
const SUM_COLUMNS: &str =
    "device_ms, energy_ms, byte_seconds_units, byte_seconds_rest, energy_mj_units, energy_mj_rest";

impl Store {
    /// Adds to the stored hours and days. A write that fails may still have been committed: if it is repeated with the same number
    /// before any other batch, its parts are added once.
    pub async fn add_ledger(&self, batch: &LedgerBatch) -> Result<(), StoreError> {
        let hours = add!("ledger_hours", "hour").replace("TABLE", "ledger_hours");
        let days = add!("ledger_days", "day").replace("TABLE", "ledger_days");
        self.write("save the ledger", async |connection| {
            if let Some(number) = batch.number
                && !is_next(number, &mut *connection).await?
            {
                return Ok(());
            }
            let ids = ids_of(&batch.names(), &mut *connection).await?;
            let id = |name: &str| ids.get(name).copied().unwrap_or_default();
            for (key, amount) in &batch.parts {
                for (statement, period) in [(&hours, key.hour), (&days, key.day)] {
                    query(statement.clone())
                        .bind(period)
                        .bind(id(&key.device))
                        .bind(id(&key.model))
                        .bind(id(&key.payer))
                        .bind(id(&key.state))
                        .bind(to_integer(amount.device_ms))
                        .bind(to_integer(saturated(amount.byte_seconds)))
                        .bind(to_integer(amount.energy_mj))
                        .bind(to_integer(amount.energy_ms))
                        .execute(&mut *connection)
                        .await?;
                }
            }
            if let Some(minute) = batch.pool_minute() {
                pool_minutes::add(&minute, &mut *connection).await?;
            }
            for (device, until) in &batch.seen {
                query(
                    "INSERT INTO ledger_seen (device, until) VALUES (?, ?) \
                     ON CONFLICT (device) DO UPDATE SET until = excluded.until",
                )
                .bind(device)
                .bind(to_integer(until.0))
                .execute(&mut *connection)
                .await?;
            }
            Ok(())
        })
        .await
    }

    /// The time up to which the parts of each device are stored, by the machine's clock.
    pub async fn ledger_seen(&self) -> Result<BTreeMap<String, Time>, StoreError> {
        let rows = query("SELECT device, until FROM ledger_seen")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the ledger"))?;
        let seen = |row: &Row| (row.get("device"), Time(from_integer(row.get("until"))));
        Ok(rows.iter().map(seen).collect())
    }

    /// The sums of the days from `first` to `last` by model, payer and state.
    pub async fn ledger_by_payer(
        &self,
        first: i64,
        last: i64,
    ) -> Result<Vec<LedgerSum>, StoreError> {
        let sums = format!(
            "SELECT model, payer, state{SUMS} FROM ledger_days WHERE day >= ? AND day <= ? \
             GROUP BY model, payer, state"
        );
        let statement = format!(
            "SELECT '' AS device, CAST(0 AS BIGINT) AS period, m.name AS model, p.name AS payer, s.name AS state, \
             {SUM_COLUMNS} FROM ({sums}) AS sums \
             JOIN ledger_names AS m ON m.id = sums.model JOIN ledger_names AS p ON p.id = sums.payer \
             JOIN ledger_names AS s ON s.id = sums.state ORDER BY m.name, p.name, s.name"
        );
        self.ledger_sums(statement, first, last).await
    }

    /// The sums of one payer over these days in all its groups, by model and state. Reads only the payer's rows.
    pub async fn ledger_of_payer(
        &self,
        payer: &str,
        days: impl Iterator<Item = i64>,
    ) -> Result<Vec<LedgerSum>, StoreError> {
        let days: Vec<String> = days.map(|day| day.to_string()).collect();
        let wanted = self.dialect().wanted();
        let sums = format!(
            "SELECT model, state{SUMS} FROM {wanted} CROSS JOIN ledger_days \
             WHERE ledger_days.day = CAST(wanted.value AS BIGINT) \
             AND payer IN (SELECT id FROM ledger_names WHERE name = ?2 OR name LIKE '%/' || ?2) GROUP BY model, state"
        );
        let statement = format!(
            "SELECT '' AS device, CAST(0 AS BIGINT) AS period, m.name AS model, '' AS payer, s.name AS state, \
             {SUM_COLUMNS} FROM ({sums}) AS sums \
             JOIN ledger_names AS m ON m.id = sums.model JOIN ledger_names AS s ON s.id = sums.state \
             ORDER BY m.name, s.name"
        );
        let list = format!("[{}]", days.join(","));
        let rows = query(statement)
            .bind(list)
            .bind(payer)
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the ledger"))?;
        Ok(rows.iter().map(sum_of).collect())
    }

    /// The sums of the days from `first` to `last` by device and state.
    pub async fn ledger_by_device(
        &self,
        first: i64,
        last: i64,
    ) -> Result<Vec<LedgerSum>, StoreError> {
        let sums = format!(
            "SELECT device, state{SUMS} FROM ledger_days WHERE day >= ? AND day <= ? GROUP BY device, state"
        );
        let statement = format!(
            "SELECT d.name AS device, CAST(0 AS BIGINT) AS period, '' AS model, '' AS payer, s.name AS state, \
             {SUM_COLUMNS} FROM ({sums}) AS sums \
             JOIN ledger_names AS d ON d.id = sums.device JOIN ledger_names AS s ON s.id = sums.state \
             ORDER BY d.name, s.name"
        );
        self.ledger_sums(statement, first, last).await
    }

    /// The sums of the hours from `first` to `last` by hour and state.
    pub async fn ledger_by_hour(
        &self,
        first: i64,
        last: i64,
    ) -> Result<Vec<LedgerSum>, StoreError> {
        let sums = format!(
            "SELECT hour, state{SUMS} FROM ledger_hours WHERE hour >= ? AND hour <= ? GROUP BY hour, state"
        );
        let statement = format!(
            "SELECT '' AS device, sums.hour AS period, '' AS model, '' AS payer, s.name AS state, \
             {SUM_COLUMNS} FROM ({sums}) AS sums \
             JOIN ledger_names AS s ON s.id = sums.state ORDER BY sums.hour, s.name"
        );
        self.ledger_sums(statement, first, last).await
    }

    async fn ledger_sums(
        &self,
        statement: String,
        first: i64,
        last: i64,
    ) -> Result<Vec<LedgerSum>, StoreError> {
        let rows = query(statement)
            .bind(first)
            .bind(last)
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the ledger"))?;
        Ok(rows.iter().map(sum_of).collect())
    }

    /// Deletes old hours, the days before `first_day`, and what is known of devices that have been away for long. Returns the number
    /// of deleted hours and days; call it again until it is 0.
    pub async fn forget_ledger(&self, hour: i64, first_day: i64) -> Result<u64, StoreError> {
        let bounds = [
            (
                "DELETE FROM ledger_hours WHERE hour < ? AND (hour, device, model, payer, state) IN \
              (SELECT hour, device, model, payer, state FROM ledger_hours ORDER BY hour LIMIT ?)",
                hour - HOURS_KEPT,
            ),
            (
                "DELETE FROM ledger_days WHERE day < ? AND (day, payer, device, model, state) IN \
              (SELECT day, payer, device, model, state FROM ledger_days ORDER BY day LIMIT ?)",
                first_day,
            ),
        ];
        let mut gone = [0; 2];
        for ((statement, first), gone) in bounds.into_iter().zip(&mut gone) {
            *gone = self
                .write("delete old parts of the ledger", async |connection| {
                    query(statement)
                        .bind(first)
                        .bind(FORGOTTEN_AT_ONCE)
                        .execute(connection)
                        .await
                })
                .await?;
        }
        let [hours, days] = gone;
        self.write("forget devices of the ledger", async |connection| {
            query("DELETE FROM ledger_seen WHERE until < ?")
                .bind(hour.saturating_sub(SEEN_HOURS_KEPT).saturating_mul(HOUR_MS))
                .execute(connection)
                .await
        })
        .await?;
        // Only deleted days leave names without a row. The last of several calls deletes less than the most.
        if days > 0 && days < FORGOTTEN_AT_ONCE as u64 {
            self.forget_ledger_names().await?;
        }
        Ok(hours + days)
    }

    /// Deletes names without a row, for example of ended nodes. Reads all rows, without delaying writes.
    async fn forget_ledger_names(&self) -> Result<(), StoreError> {
        let columns = ["device", "model", "payer", "state"];
        let uses = columns.map(|column| {
            format!("SELECT {column} FROM ledger_hours UNION SELECT {column} FROM ledger_days")
        });
        let unused = format!(
            "SELECT id FROM ledger_names WHERE id NOT IN ({})",
            uses.join(" UNION ")
        );
        let unused = query(unused)
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the names of the ledger"))?;
        let ids: Vec<i64> = unused.iter().map(|row| row.get("id")).collect();
        self.write("delete names of the ledger", async |connection| {
            for id in &ids {
                query("DELETE FROM ledger_names WHERE id = ?")
                    .bind(*id)
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
        .await
    }
}

/// Records the number of a batch. Returns false if the last batch has the same number.
async fn is_next(number: u128, connection: &mut Connection) -> Result<bool, sqlx::Error> {
    let changed = query(
        "INSERT INTO meta (key, value) VALUES (?, ?) \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE meta.value <> excluded.value",
    )
    .bind(LAST_BATCH)
    .bind(number.to_string())
    .execute(connection)
    .await?;
    Ok(changed > 0)
}

fn sum_of(row: &Row) -> LedgerSum {
    LedgerSum {
        device: row.get("device"),
        period: row.get("period"),
        model: row.get("model"),
        payer: row.get("payer"),
        state: row.get("state"),
        amount: LedgerAmount {
            device_ms: from_integer(row.get("device_ms")),
            byte_seconds: summed(row, "byte_seconds"),
            energy_mj: saturated(summed(row, "energy_mj")),
            energy_ms: from_integer(row.get("energy_ms")),
        },
    }
}

/// The sum of a column from its two parts.
fn summed(row: &Row, column: &str) -> u128 {
    let part = |of: &str| u128::from(from_integer(row.get(&format!("{column}_{of}"))));
    part("units") * u128::from(UNIT) + part("rest")
}

fn saturated(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The numbers of these names. New names get one.
async fn ids_of(
    names: &[&str],
    connection: &mut Connection,
) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let mut ids = BTreeMap::new();
    for &name in names {
        let find = || query("SELECT id FROM ledger_names WHERE name = ?").bind(name);
        let mut found = find().fetch_all(&mut *connection).await?;
        if found.is_empty() {
            query("INSERT INTO ledger_names (name) VALUES (?)")
                .bind(name)
                .execute(&mut *connection)
                .await?;
            found = find().fetch_all(&mut *connection).await?;
        }
        if let Some(row) = found.first() {
            ids.insert(name.to_owned(), row.get("id"));
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests;
