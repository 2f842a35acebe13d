//! Failures to write the state: their recognition, and advice.

use std::path::Path;
use std::time::SystemTime;

use nix::sys::statvfs::{FsFlags, statvfs};

use super::connection::{Database, code, is_fenced};
use super::dialect::Dialect;
use super::file_watch::trouble_of;
use pool::Bytes;

/// Recommended free space: a day of a busy pool's history.
const ROOM: Bytes = Bytes(16 << 20);

/// The reason that the state cannot be written now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTrouble {
    pub since: SystemTime,
    /// The failure, the advice, and the free space.
    pub reason: String,
}

/// The advice for an error.
pub(crate) fn advice(database: &Database, error: &sqlx::Error) -> String {
    match database {
        // The error itself contains the advice.
        Database::Sqlite { .. } if trouble_of(error).is_some() => {
            "no change is acknowledged before that".to_owned()
        }
        Database::Sqlite { path, .. } => disk_advice(path),
        Database::Postgres(_) if is_fenced(error) => {
            "this process ends, because it can no longer store its decisions".to_owned()
        }
        Database::Postgres(_) => server_advice(database, error),
    }
}

/// The advice with the disk's figures.
fn disk_advice(file: &Path) -> String {
    let folder = file.parent().unwrap_or(Path::new("."));
    let (shown, path) = (folder.display(), file.display());
    match statvfs(folder) {
        Ok(disk) if disk.flags().contains(FsFlags::ST_RDONLY) => {
            format!("{shown} is mounted read-only: mount it for writing")
        }
        Ok(disk) => {
            let free = Bytes(disk.blocks_available().saturating_mul(disk.fragment_size()));
            let total = Bytes(disk.blocks().saturating_mul(disk.fragment_size()));
            if free < ROOM {
                format!(
                    "the disk of {shown} has {free} free of {total}: free {ROOM} there, or move state.dir to another disk"
                )
            } else {
                format!(
                    "the disk of {shown} has {free} free of {total}; check that this user can write {path} and that its disk has no errors"
                )
            }
        }
        Err(error) => format!("cannot read {shown} ({error}); check that it is mounted"),
    }
}

/// The advice for PostgreSQL's error code, if the server sent one.
fn server_advice(database: &Database, error: &sqlx::Error) -> String {
    let place = database.place();
    match code(error).as_deref() {
        Some("53100") => {
            format!("free space on the disk of the PostgreSQL server of {place}")
        }
        Some("42501") => {
            format!("give this user the rights on the tables in {place}: it has to own them")
        }
        Some("25006") => format!(
            "{place} takes no writes: it may be a standby now; name the primary in state.database_url"
        ),
        Some("55P03") => format!(
            "another session has locked a table in {place}, as VACUUM FULL does; writing resumes when that ends"
        ),
        _ => format!(
            "check that PostgreSQL runs at {place} and can be reached from here; writing resumes automatically"
        ),
    }
}

/// Returns false for errors of the statement or its values: SQLite's codes 19 (a constraint), 20 (a type) and 25 (a parameter),
/// PostgreSQL's classes 22 (a value), 23 (a constraint) and 42 (a statement) except for missing rights.
pub(crate) fn is_trouble(dialect: Dialect, error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Encode(_) | sqlx::Error::PoolClosed => false,
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            match dialect {
                Dialect::Sqlite => {
                    let code = code.parse::<i32>().ok();
                    !matches!(code.map(|code| code & 0xff), Some(19 | 20 | 25))
                }
                Dialect::Postgres => {
                    code == "42501"
                        || !["22", "23", "42"]
                            .iter()
                            .any(|class| code.starts_with(class))
                }
            }
        }
        _ => true,
    }
}
