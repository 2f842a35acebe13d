//! A database's name in messages.

use std::fmt;
use std::path::Path;

use sqlx::postgres::PgConnectOptions;

/// Its path, or its address without user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseLocation(String);

impl DatabaseLocation {
    pub(crate) fn new(path: &Path) -> DatabaseLocation {
        DatabaseLocation(path.display().to_string())
    }

    pub(super) fn of_postgres(options: &PgConnectOptions) -> DatabaseLocation {
        let database = options.get_database().unwrap_or(options.get_username());
        DatabaseLocation(match options.get_socket() {
            Some(socket) => format!("postgres:///{database} (socket {})", socket.display()),
            None if options.get_host().starts_with('/') => {
                format!("postgres:///{database} (socket {})", options.get_host())
            }
            None => format!(
                "postgres://{}:{}/{database}",
                options.get_host(),
                options.get_port()
            ),
        })
    }

    /// Returns true for a database on a server, false for this machine's disk.
    pub(super) fn is_on_a_server(&self) -> bool {
        self.0.starts_with("postgres://")
    }
}

impl fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
