//! `model-pool migrate-store`: copies every row of one database into another, empty one. Uses one transaction: the other database
//! ends up with all of it, or nothing.

use futures_util::TryStreamExt;

use crate::database::{Store, open};
use crate::sql::integers::from_integer;
use crate::sql::query::query;
use crate::sql::{Connection, Database, DatabaseLocation, Dialect, Kind, Row, StoreError};

/// All tables, with referenced rows before the rows that refer to them, and the order of their rows: numbers that the other
/// database assigns rise in the same order.
const TABLES: [(&str, &str); 42] = [
    ("overrides", "model"),
    ("loads", "model"),
    ("registrations", "name"),
    ("meta", "key"),
    ("cordons", "device"),
    ("groups", "name"),
    ("virtual_models", "name"),
    ("measurements", "rowid"),
    ("remembered", "rowid"),
    ("usage", "rowid"),
    ("tokens_by_day", "rowid"),
    ("key_usage", "holder, day, model"),
    ("group_usage", "day, path"),
    ("group_hours", "hour, path"),
    ("pool_minutes", "minute"),
    ("ledger_names", "id"),
    ("ledger_hours", "hour, device, model, payer, state"),
    ("ledger_days", "day, payer, device, model, state"),
    ("ledger_seen", "device"),
    ("keys", "id"),
    ("audit", "id"),
    ("numbers", "name"),
    ("history", "id"),
    ("decisions", "event"),
    ("history_hours", "hour"),
    ("history_groups", "name, event"),
    ("conversations", "id"),
    ("responses", "nth"),
    ("response_items", "rowid"),
    ("votes", "id"),
    ("ratings", "model"),
    ("nodes", "id"),
    ("node_devices", "id"),
    ("node_tokens", "id"),
    ("used_rays", "address, prefix"),
    ("files", "id"),
    ("unused_objects", "bucket, name"),
    ("batches", "id"),
    ("background_responses", "id"),
    ("named_conversations", "id"),
    ("conversation_items", "nth"),
    ("response_totals", "name"),
];

/// Tables whose rows the schema creates. A move replaces these rows.
const OF_SCHEMA: [&str; 2] = ["numbers", "response_totals"];

/// Tables whose ids are never reused, even after their rows are gone.
const SEQUENCES: [&str; 7] = [
    "keys",
    "audit",
    "history",
    "votes",
    "nodes",
    "node_devices",
    "node_tokens",
];

/// Tables whose numbers may be reused, but only after the row is gone, and the columns of these numbers.
const NUMBERED: [(&str, &str); 4] = [
    ("conversations", "id"),
    ("responses", "nth"),
    ("conversation_items", "nth"),
    ("ledger_names", "id"),
];

/// Rows per statement. The widest table stays within either database's limit of values.
const ROWS_AT_ONCE: usize = 200;

/// The number of moved rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTable {
    pub table: &'static str,
    pub rows: u64,
}

/// The error of a move.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Store(#[from] StoreError),

    #[error("cannot find the database {place} to move")]
    NoDatabase { place: DatabaseLocation },

    #[error("{place} is both the source and the target; name two databases")]
    Same { place: DatabaseLocation },

    #[error(
        "the database {place} is not empty: its table {table} has {rows} rows; nothing was moved: name an empty database, or delete this one first"
    )]
    NotEmpty {
        place: DatabaseLocation,
        table: &'static str,
        rows: u64,
    },

    #[error(
        "table {table} has {here} rows in {from} and {there} in {to}; nothing was moved: this is an error of model-pool, report it"
    )]
    Count {
        table: &'static str,
        from: DatabaseLocation,
        here: u64,
        to: DatabaseLocation,
        there: u64,
    },
}

/// Moves all rows. Locks both databases against services for that time, and first migrates both to this program's schema. Calls
/// `moved` for each table.
///
/// # Errors
/// [`MoveError`], after which the database `to` has no rows.
pub async fn move_store(
    from: &str,
    to: &str,
    moved: impl FnMut(&MovedTable),
) -> Result<Vec<MovedTable>, MoveError> {
    let (source, target) = (open::parse(from)?, open::parse(to)?);
    if source.place() == target.place() {
        return Err(MoveError::Same {
            place: source.place(),
        });
    }
    if let Database::Sqlite { path, .. } = &source
        && !path.exists()
    {
        return Err(MoveError::NoDatabase {
            place: source.place(),
        });
    }
    let source = Store::open(from).await?;
    let target = Store::open(to).await?;
    let done = all_rows(&source, &target, moved).await;
    target.close().await;
    source.close().await;
    done
}

async fn all_rows(
    source: &Store,
    target: &Store,
    mut moved: impl FnMut(&MovedTable),
) -> Result<Vec<MovedTable>, MoveError> {
    for (table, _) in TABLES {
        if OF_SCHEMA.contains(&table) {
            continue;
        }
        let rows = count(target, table).await?;
        if rows > 0 {
            return Err(MoveError::NotEmpty {
                place: target.place(),
                table,
                rows,
            });
        }
    }
    let mut tables = Vec::with_capacity(TABLES.len());
    let mut wrong = None;
    let written = target.write_all("move the state", async |connection| {
        if target.dialect() == Dialect::Postgres {
            // A slow source must not time out the target.
            query("SET LOCAL idle_in_transaction_session_timeout = 0")
                .execute(&mut *connection)
                .await?;
        }
        for table in OF_SCHEMA {
            query(format!("DELETE FROM {table}"))
                .execute(&mut *connection)
                .await?;
        }
        for (table, order) in TABLES {
            let rows = rows_of(source, table, order, &mut *connection).await?;
            let here = count_in(source, table).await?;
            let there: i64 = query(format!("SELECT count(*) FROM {table}"))
                .fetch_value(&mut *connection)
                .await?;
            if here != rows || from_integer(there) != rows {
                wrong = Some((table, here, from_integer(there)));
                return Err(sqlx::Error::RowNotFound);
            }
            tables.push(MovedTable { table, rows });
            if let Some(table) = tables.last() {
                moved(table);
            }
        }
        numbers(source, target.dialect(), connection).await
    });
    match written.await {
        Ok(()) => Ok(tables),
        Err(error) => Err(match wrong {
            Some((table, here, there)) => MoveError::Count {
                table,
                from: source.place(),
                here,
                to: target.place(),
                there,
            },
            None => error.into(),
        }),
    }
}

async fn count(store: &Store, table: &'static str) -> Result<u64, StoreError> {
    let counted = count_in(store, table).await;
    counted.map_err(store.failed("count rows"))
}

async fn count_in(store: &Store, table: &'static str) -> Result<u64, sqlx::Error> {
    let rows: i64 = query(format!("SELECT count(*) FROM {table}"))
        .fetch_value(&store.readers)
        .await?;
    Ok(from_integer(rows))
}

/// Copies a table and returns its number of rows.
async fn rows_of(
    source: &Store,
    table: &'static str,
    order: &'static str,
    connection: &mut Connection,
) -> Result<u64, sqlx::Error> {
    let columns = columns(source, table).await?;
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    let mut rows =
        query(format!("SELECT {names} FROM {table} ORDER BY {order}")).stream(&source.readers);
    let mut some: Vec<Row> = Vec::with_capacity(ROWS_AT_ONCE);
    let mut all = 0;
    loop {
        let row = rows.try_next().await?;
        let is_last = row.is_none();
        some.extend(row);
        if some.len() >= ROWS_AT_ONCE || (is_last && !some.is_empty()) {
            all += some.len() as u64;
            insert(connection, table, &names, &columns, &some).await?;
            some.clear();
        }
        if is_last {
            return Ok(all);
        }
    }
}

async fn insert(
    connection: &mut Connection,
    table: &str,
    names: &str,
    columns: &[(String, Kind)],
    rows: &[Row],
) -> Result<(), sqlx::Error> {
    let mut statement = query(format!("INSERT INTO {table} ({names}) VALUES "));
    for (nth, row) in rows.iter().enumerate() {
        statement.push(if nth == 0 { "(" } else { ", (" });
        for (place, (name, kind)) in columns.iter().enumerate() {
            if place > 0 {
                statement.push(", ");
            }
            statement.push_bind(row.value(name, *kind));
        }
        statement.push(")");
    }
    statement.execute(connection).await.map(|_| ())
}

/// The columns that both databases have, and their types.
async fn columns(store: &Store, table: &'static str) -> Result<Vec<(String, Kind)>, sqlx::Error> {
    let rows = query(store.dialect().columns())
        .bind(table)
        .fetch_all(&store.readers)
        .await?;
    let column = |row: &Row| {
        let (name, kind): (String, String) = (row.get("name"), row.get("kind"));
        // SQLite has no such column, but numbers its rows nevertheless.
        (name != "rowid").then(|| (name, Kind::new(&kind)))
    };
    Ok(rows.iter().filter_map(column).collect())
}

/// Raises the target's next ids above all ids that the source has assigned.
async fn numbers(
    source: &Store,
    dialect: Dialect,
    connection: &mut Connection,
) -> Result<(), sqlx::Error> {
    for table in SEQUENCES {
        let last: i64 = query(source.dialect().last_id())
            .bind(table)
            .fetch_value(&source.readers)
            .await?;
        raise_last_id(dialect, connection, table, "id", last).await?;
    }
    for (table, id) in NUMBERED {
        if dialect == Dialect::Postgres {
            let last: i64 = query(format!("SELECT coalesce(max({id}), 0) FROM {table}"))
                .fetch_value(&mut *connection)
                .await?;
            raise_last_id(dialect, connection, table, id, last).await?;
        }
    }
    Ok(())
}

/// Makes the table's next row get an id larger than `last`.
pub(super) async fn raise_last_id(
    dialect: Dialect,
    connection: &mut Connection,
    table: &str,
    id: &str,
    last: i64,
) -> Result<(), sqlx::Error> {
    if dialect == Dialect::Postgres {
        if last > 0 {
            query("SELECT setval(CAST(pg_get_serial_sequence(?, ?) AS regclass), ?, true)")
                .bind(table)
                .bind(id)
                .bind(last)
                .fetch_all(connection)
                .await?;
        }
        return Ok(());
    }
    let raised = query("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?")
        .bind(last)
        .bind(table)
        .execute(&mut *connection)
        .await?;
    // A table that never had a row has no entry yet.
    if raised == 0 {
        query(
            "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2
             WHERE EXISTS (SELECT 1 FROM sqlite_master WHERE name = ?1)",
        )
        .bind(table)
        .bind(last)
        .execute(connection)
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
