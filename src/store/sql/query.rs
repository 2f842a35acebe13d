//! Statements for both databases, written once. `?` stands for a value, and `?1` for a value that is used twice. `dialect.rs` has
//! the few words that differ.

use std::borrow::Cow;
use std::time::Duration;

use futures_util::stream::{BoxStream, try_unfold};
use futures_util::{StreamExt, TryStreamExt};
use sqlx::{AssertSqlSafe, Decode, PgExecutor, Postgres, Sqlite, SqliteExecutor, Type};

use super::connection::{Connection, Readers, in_time};

/// Time limit for a read from PostgreSQL: a response that the network lost never arrives.
const READ_WITHIN: Duration = Duration::from_secs(20);
/// Time limit for the next row of many: the first one may have to wait for sorting.
const ROW_WITHIN: Duration = Duration::from_secs(300);

/// A statement with its values.
pub(crate) struct Query {
    sql: Cow<'static, str>,
    values: Vec<Value>,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Text,
    Bytes,
}

impl Kind {
    /// The kind for a type's name in either database.
    pub fn new(name: &str) -> Kind {
        match name {
            "INTEGER" | "bigint" => Kind::Integer,
            "BLOB" | "bytea" => Kind::Bytes,
            _ => Kind::Text,
        }
    }
}

/// A value of a type that the tables have; `None` is null.
pub(crate) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

pub(crate) fn query(sql: impl Into<Cow<'static, str>>) -> Query {
    Query {
        sql: sql.into(),
        values: Vec::new(),
    }
}

/// The connection that executes a statement.
pub(crate) enum Target<'a> {
    Connection(&'a mut Connection),
    Readers(&'a Readers),
}

impl<'a> From<&'a mut Connection> for Target<'a> {
    fn from(connection: &'a mut Connection) -> Target<'a> {
        Target::Connection(connection)
    }
}

impl<'a> From<&'a Readers> for Target<'a> {
    fn from(readers: &'a Readers) -> Target<'a> {
        Target::Readers(readers)
    }
}

impl Query {
    pub fn bind(mut self, value: impl Into<Value>) -> Query {
        self.values.push(value.into());
        self
    }

    /// Appends to the statement.
    pub fn push(&mut self, sql: &str) -> &mut Query {
        self.sql.to_mut().push_str(sql);
        self
    }

    /// Appends a placeholder and its value.
    pub fn push_bind(&mut self, value: impl Into<Value>) -> &mut Query {
        self.values.push(value.into());
        self.push("?")
    }

    /// Executes the statement and returns the number of changed rows.
    pub async fn execute(self, target: impl Into<Target<'_>>) -> Result<u64, sqlx::Error> {
        match target.into() {
            Target::Connection(Connection::Sqlite(connection)) => {
                self.change_sqlite(connection).await
            }
            Target::Connection(Connection::Postgres(connection)) => {
                self.change_postgres(connection).await
            }
            Target::Readers(Readers::Sqlite(pool)) => self.change_sqlite(pool).await,
            Target::Readers(Readers::Postgres(pool)) => self.change_postgres(pool).await,
        }
    }

    pub async fn fetch_all(self, target: impl Into<Target<'_>>) -> Result<Vec<Row>, sqlx::Error> {
        match target.into() {
            Target::Connection(Connection::Sqlite(connection)) => {
                self.read_sqlite(connection).await
            }
            Target::Connection(Connection::Postgres(connection)) => {
                self.read_postgres(connection).await
            }
            Target::Readers(Readers::Sqlite(pool)) => self.read_sqlite(pool).await,
            Target::Readers(Readers::Postgres(pool)) => {
                in_time(Some(READ_WITHIN), self.read_postgres(pool)).await
            }
        }
    }

    /// For statements that return at most one row.
    pub async fn fetch_optional(
        self,
        target: impl Into<Target<'_>>,
    ) -> Result<Option<Row>, sqlx::Error> {
        Ok(self.fetch_all(target).await?.into_iter().next())
    }

    pub async fn fetch_one(self, target: impl Into<Target<'_>>) -> Result<Row, sqlx::Error> {
        let row = self.fetch_optional(target).await?;
        row.ok_or(sqlx::Error::RowNotFound)
    }

    /// The first column of the only row.
    pub async fn fetch_value<T: for<'r> Column<'r>>(
        self,
        target: impl Into<Target<'_>>,
    ) -> Result<T, sqlx::Error> {
        self.fetch_one(target).await?.try_first()
    }

    /// Streams the rows, however many there are.
    pub fn stream(self, readers: &Readers) -> BoxStream<'_, Result<Row, sqlx::Error>> {
        match readers {
            Readers::Sqlite(pool) => self.for_sqlite().fetch(pool).map_ok(Row::Sqlite).boxed(),
            Readers::Postgres(pool) => {
                let rows = self.for_postgres().fetch(pool).map_ok(Row::Postgres);
                try_unfold(rows.boxed(), |mut rows| async move {
                    let row = in_time(Some(ROW_WITHIN), rows.try_next()).await?;
                    Ok::<_, sqlx::Error>(row.map(|row| (row, rows)))
                })
                .boxed()
            }
        }
    }

    fn for_sqlite(
        self,
    ) -> sqlx::query::Query<'static, Sqlite, <Sqlite as sqlx::Database>::Arguments> {
        let mut query = sqlx::query(AssertSqlSafe(self.sql));
        for value in self.values {
            query = match value {
                Value::Integer(value) => query.bind(value),
                Value::Text(value) => query.bind(value),
                Value::Bytes(value) => query.bind(value),
            };
        }
        query
    }

    fn for_postgres(
        self,
    ) -> sqlx::query::Query<'static, Postgres, <Postgres as sqlx::Database>::Arguments> {
        let mut query = sqlx::query(AssertSqlSafe(with_dollars(&self.sql)));
        for value in self.values {
            query = match value {
                Value::Integer(value) => query.bind(value),
                // PostgreSQL's texts cannot contain NUL.
                Value::Text(Some(text)) if text.contains('\0') => {
                    query.bind(Some(text.replace('\0', "\u{fffd}")))
                }
                Value::Text(value) => query.bind(value),
                Value::Bytes(value) => query.bind(value),
            };
        }
        query
    }

    async fn change_sqlite(self, on: impl SqliteExecutor<'_>) -> Result<u64, sqlx::Error> {
        Ok(self.for_sqlite().execute(on).await?.rows_affected())
    }

    async fn change_postgres(self, on: impl PgExecutor<'_>) -> Result<u64, sqlx::Error> {
        Ok(self.for_postgres().execute(on).await?.rows_affected())
    }

    async fn read_sqlite(self, on: impl SqliteExecutor<'_>) -> Result<Vec<Row>, sqlx::Error> {
        let rows = on.fetch_all(self.for_sqlite()).await?;
        Ok(rows.into_iter().map(Row::Sqlite).collect())
    }

    async fn read_postgres(self, on: impl PgExecutor<'_>) -> Result<Vec<Row>, sqlx::Error> {
        let rows = on.fetch_all(self.for_postgres()).await?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }
}

/// The same error as a failed connection, to be handled in the same way.
pub(crate) fn too_slow(within: Duration) -> sqlx::Error {
    let problem = format!("no response within {} s", within.as_secs());
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, problem))
}

/// Replaces `?` and `?1` with PostgreSQL's `$1`.
fn with_dollars(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len() + 16);
    let mut count = 0;
    let mut is_quoted = false;
    let mut letters = sql.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            '?' if !is_quoted => {
                text.push('$');
                if !letters.peek().is_some_and(char::is_ascii_digit) {
                    count += 1;
                    text.push_str(&count.to_string());
                }
                continue;
            }
            _ => {}
        }
        text.push(letter);
    }
    text
}

/// A row of either database.
pub(crate) enum Row {
    Sqlite(sqlx::sqlite::SqliteRow),
    Postgres(sqlx::postgres::PgRow),
}

/// A type that a column can be read as.
pub(crate) trait Column<'r>:
    Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>
{
}

impl<'r, T> Column<'r> for T where
    T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>
{
}

impl Row {
    /// The column of this name.
    ///
    /// # Panics
    /// If the statement returns no such column, or a column of another type: both are programming errors.
    pub fn get<'r, T: Column<'r>>(&'r self, name: &str) -> T {
        match self {
            Row::Sqlite(row) => sqlx::Row::get(row, name),
            Row::Postgres(row) => sqlx::Row::get(row, name),
        }
    }

    /// The column of this name as a value for another statement.
    pub fn value(&self, name: &str, kind: Kind) -> Value {
        match kind {
            Kind::Integer => Value::Integer(self.get(name)),
            Kind::Text => Value::Text(self.get(name)),
            Kind::Bytes => Value::Bytes(self.get(name)),
        }
    }

    fn try_first<T: for<'r> Column<'r>>(&self) -> Result<T, sqlx::Error> {
        match self {
            Row::Sqlite(row) => sqlx::Row::try_get(row, 0),
            Row::Postgres(row) => sqlx::Row::try_get(row, 0),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Integer(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Value {
        Value::Integer(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Integer(Some(i64::from(value)))
    }
}

/// 0 or 1: the tables have no boolean type.
impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Integer(Some(i64::from(value)))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(Some(text))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Value {
        Value::Text(Some(text.clone()))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Value {
        Value::Text(text.map(str::to_owned))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Value {
        Value::Text(text)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::Bytes(Some(bytes.to_vec()))
    }
}

impl From<Option<Vec<u8>>> for Value {
    fn from(bytes: Option<Vec<u8>>) -> Value {
        Value::Bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_becomes_numbered_outside_of_quotes() {
        for (sql, expected) in [
            ("SELECT 1", "SELECT 1"),
            ("VALUES (?, ?, ?)", "VALUES ($1, $2, $3)"),
            ("a = ?1 OR b = ?2 OR c = ?1", "a = $1 OR b = $2 OR c = $1"),
            ("a = 'what?' AND b = ?", "a = 'what?' AND b = $1"),
            ("a = 'it''s ?' AND b = ?", "a = 'it''s ?' AND b = $1"),
        ] {
            assert_eq!(with_dollars(sql), expected);
        }
    }
}
