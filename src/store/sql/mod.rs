//! SQL on either database: connections, statements, the differences between SQLite and PostgreSQL, and errors.

pub(crate) mod connection;
mod dialect;
pub(crate) mod error;
mod file_watch;
pub(crate) mod integers;
mod location;
pub(crate) mod query;
pub(crate) mod write_problem;

pub(crate) use connection::{Connection, Database, Readers};
pub(crate) use dialect::Dialect;
pub use error::StoreError;
pub(crate) use file_watch::FileWatch;
pub use location::DatabaseLocation;
pub(crate) use query::{Kind, Query, Row};
pub use write_problem::WriteTrouble;
