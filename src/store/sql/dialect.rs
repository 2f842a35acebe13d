//! The parts of statements that differ between SQLite and PostgreSQL.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The elements of the JSON list `?1` as a table `wanted`, with their places as `key`.
    pub fn wanted(self) -> &'static str {
        match self {
            Dialect::Sqlite => "json_each(?1) AS wanted",
            Dialect::Postgres => {
                "json_array_elements_text(CAST(?1 AS json)) WITH ORDINALITY AS wanted (value, key)"
            }
        }
    }

    /// Names an index for SQLite, which has no statistics to choose one. PostgreSQL keeps statistics.
    pub fn indexed_by(self, index: &str) -> String {
        match self {
            Dialect::Sqlite => format!(" INDEXED BY {index}"),
            Dialect::Postgres => String::new(),
        }
    }

    /// The last id assigned by the table `?`, whose row may be gone.
    pub fn last_id(self) -> &'static str {
        match self {
            Dialect::Sqlite => "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?",
            Dialect::Postgres => {
                "SELECT coalesce(pg_sequence_last_value(CAST(pg_get_serial_sequence(?, 'id') AS regclass)), 0)"
            }
        }
    }

    /// Tests whether this schema has a table `?`.
    pub fn has_table(self) -> &'static str {
        match self {
            Dialect::Sqlite => {
                "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
            }
            Dialect::Postgres => {
                "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = ?"
            }
        }
    }

    /// The names of all tables.
    #[cfg(test)]
    pub fn tables(self) -> &'static str {
        match self {
            Dialect::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table'",
            Dialect::Postgres => {
                "SELECT CAST(table_name AS TEXT) AS name FROM information_schema.tables WHERE table_schema = current_schema()"
            }
        }
    }

    /// The columns of the table `?` and their types, in order.
    pub fn columns(self) -> &'static str {
        match self {
            Dialect::Sqlite => "SELECT name, type AS kind FROM pragma_table_info(?) ORDER BY cid",
            Dialect::Postgres => {
                "SELECT CAST(column_name AS TEXT) AS name, CAST(data_type AS TEXT) AS kind FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position"
            }
        }
    }
}
