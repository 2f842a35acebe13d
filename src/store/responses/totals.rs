//! The total numbers and sizes of stored responses, conversations and background responses. A write changes them in the transaction
//! that changes the rows: a limit of all holders then costs the same for any number of rows.

use crate::sql::integers::from_integer;
use crate::sql::query::query;
use crate::sql::{Connection, Row};

/// A table with totals. Its rows have `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Responses,
    NamedConversations,
    BackgroundResponses,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Responses => "responses",
            Table::NamedConversations => "named_conversations",
            Table::BackgroundResponses => "background_responses",
        }
    }
}

/// The totals of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub number: u64,
    pub bytes: u64,
}

/// Adds to the totals of a table. Negative values subtract.
pub(super) async fn change(
    connection: &mut Connection,
    table: Table,
    number: i64,
    bytes: i64,
) -> Result<(), sqlx::Error> {
    if (number, bytes) == (0, 0) {
        return Ok(());
    }
    let sql = "UPDATE response_totals SET number = number + ?, bytes = bytes + ? WHERE name = ?";
    let changed = query(sql)
        .bind(number)
        .bind(bytes)
        .bind(table.name())
        .execute(connection)
        .await?;
    if changed == 1 {
        Ok(())
    } else {
        Err(sqlx::Error::RowNotFound)
    }
}

/// Subtracts deleted rows, which return their `bytes`, from the totals of a table. Returns their number.
pub(super) async fn subtract(
    connection: &mut Connection,
    table: Table,
    deleted: Vec<Row>,
) -> Result<usize, sqlx::Error> {
    let sizes: Vec<i64> = deleted.iter().map(|row| row.get("bytes")).collect();
    drop(deleted);
    let number = i64::try_from(sizes.len()).unwrap_or(i64::MAX);
    let bytes: i64 = sizes.iter().sum();
    change(connection, table, -number, -bytes).await?;
    Ok(sizes.len())
}

/// The totals of a table.
pub(super) async fn total(connection: &mut Connection, table: Table) -> Result<Total, sqlx::Error> {
    let row = query("SELECT number, bytes FROM response_totals WHERE name = ?")
        .bind(table.name())
        .fetch_one(connection)
        .await?;
    Ok(Total {
        number: from_integer(row.get("number")),
        bytes: from_integer(row.get("bytes")),
    })
}

/// The size of all tables.
pub(super) async fn bytes(connection: &mut Connection) -> Result<u64, sqlx::Error> {
    let sum: i64 = query("SELECT CAST(sum(bytes) AS BIGINT) AS bytes FROM response_totals")
        .fetch_value(connection)
        .await?;
    Ok(from_integer(sum))
}

/// Ends a `SELECT` whose rows the transaction then changes: no other process can change them before it ends.
pub(super) fn for_change(connection: &Connection) -> &'static str {
    match connection {
        // A transaction that writes is the only writer.
        Connection::Sqlite(_) => "",
        Connection::Postgres(_) => " FOR UPDATE",
    }
}

#[cfg(test)]
mod tests;
