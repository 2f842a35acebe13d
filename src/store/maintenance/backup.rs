//! A consistent copy of the database while a service writes to it. SQLite reads every copy completely before the copy counts.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection as _};

use crate::database::{BUSY_TIMEOUT, migrations, open};
use crate::sql::error::refused_by_sqlite;
use crate::sql::integers::from_integer;
use crate::sql::query::query;
use crate::sql::{Connection, Database, DatabaseLocation, StoreError};
use pool::Bytes;

/// The contents of a copy, for a person to recognize the right one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupContents {
    /// Valid and expired keys, without revoked ones.
    pub keys: u64,
    /// Priorities and keep-hot times set by administrators.
    pub overrides: u64,
    /// Models that administrators loaded permanently.
    pub loads: u64,
    pub registrations: u64,
    /// Records of the history.
    pub history: u64,
    /// Stored responses for later turns; none in a copy of an older program.
    pub responses: u64,
}

/// A copy that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    pub bytes: Bytes,
    pub contents: BackupContents,
}

/// The error of a backup or a restore.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Store(#[from] StoreError),

    #[error("cannot find the database {} to back up; name the configuration of the service with --config, or run this in the folder in which the service runs", path.display())]
    NoDatabase { path: PathBuf },

    #[error(
        "the state is in {place}, which PostgreSQL's own programs copy: `pg_dump --format=custom --file=FILE DATABASE`, and `pg_restore --clean --if-exists --dbname=DATABASE FILE` while no service runs"
    )]
    Postgres { place: DatabaseLocation },

    #[error("{} exists; name another file, or replace it with --force", path.display())]
    Exists { path: PathBuf },

    #[error("{} belongs to the database itself; name a file on another disk", path.display())]
    Itself { path: PathBuf },

    #[error("cannot write {}: {problem}", path.display())]
    Target { path: PathBuf, problem: String },

    #[error("cannot read {}: {source}", path.display())]
    Source { path: PathBuf, source: io::Error },

    #[error("{} is a SQLite database, but not model-pool's: it has no table of schema versions; name a file that `model-pool backup` wrote", path.display())]
    Foreign { path: PathBuf },

    #[error("cannot put the copy in the place of {}: {source}; the former database is at {}", path.display(), former.display())]
    Exchange {
        path: PathBuf,
        former: PathBuf,
        source: io::Error,
    },
}

/// Writes a copy of the database at this URL to `target`, readable only for this account (mode 0600). A service may run and write:
/// the copy is a snapshot.
///
/// # Errors
/// [`BackupError`] names the file and the remedy. After an error `target` is unchanged.
pub async fn back_up(
    database_url: &str,
    target: &Path,
    replace: bool,
) -> Result<Backup, BackupError> {
    let path = file_of(database_url)?;
    if !path.exists() {
        return Err(BackupError::NoDatabase { path });
    }
    if !open::has_header(&path)? {
        return Err(StoreError::NotADatabase { path }.into());
    }
    check_target(&path, target, replace)?;
    let part = Part::create(target)?;
    let written = async {
        let mut source = plain(&path).connect().await.map_err(error_at(&path))?;
        let text = part.text()?;
        sqlx::query("VACUUM INTO ?")
            .bind(text)
            .execute(&mut source)
            .await
            .map_err(|error| of_target(target, &path, error))?;
        let _ = source.close().await;
        let contents = check(&part.path).await?;
        let synced = File::open(&part.path).and_then(|file| {
            file.sync_all()?;
            file.metadata()
        });
        let bytes = synced.map_err(|error| unwritten(target, &error))?.len();
        Ok(Backup {
            bytes: Bytes(bytes),
            contents,
        })
    };
    let backup = written
        .await
        .map_err(|fault| named(fault, &part.path, target))?;
    part.take_the_place_of(target)
        .map_err(|error| unwritten(target, &error))?;
    Ok(backup)
}

/// The file of this URL.
pub(super) fn file_of(database_url: &str) -> Result<PathBuf, BackupError> {
    match open::parse(database_url)? {
        Database::Sqlite { path, .. } => Ok(path),
        postgres => Err(BackupError::Postgres {
            place: postgres.place(),
        }),
    }
}

/// A file that is written under a temporary name next to its final name. Removed if dropped before it is renamed.
pub(crate) struct Part {
    pub path: PathBuf,
    is_done: bool,
}

impl Part {
    pub(crate) fn create(target: &Path) -> Result<Part, BackupError> {
        let path = with_suffix(target, &format!(".part-{}", std::process::id()));
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| unwritten(target, &error))?;
        Ok(Part {
            path,
            is_done: false,
        })
    }

    fn text(&self) -> Result<&str, BackupError> {
        self.path.to_str().ok_or_else(|| BackupError::Target {
            path: self.path.clone(),
            problem: "the path is not UTF-8, which SQLite needs; name another file".to_owned(),
        })
    }

    pub(super) fn take_the_place_of(mut self, target: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, target)?;
        self.is_done = true;
        sync_folder(target)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // SQLite may have created additional files next to it.
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let _ = std::fs::remove_file(with_suffix(&self.path, suffix));
        }
    }
}

fn check_target(database: &Path, target: &Path, replace: bool) -> Result<(), BackupError> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let own = ["", "-wal", "-shm", ".lock"].map(|suffix| real(&with_suffix(database, suffix)));
    let found = real(target);
    if found.is_some() && own.contains(&found) {
        return Err(BackupError::Itself {
            path: target.to_owned(),
        });
    }
    match std::fs::symlink_metadata(target) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unwritten(target, &error)),
        Ok(data) if data.is_dir() => Err(BackupError::Target {
            path: target.to_owned(),
            problem: "it is a folder; name a file in it".to_owned(),
        }),
        Ok(_) if replace => Ok(()),
        Ok(_) => Err(BackupError::Exists {
            path: target.to_owned(),
        }),
    }
}

/// Options that change no setting, which leaves an opened file unchanged.
pub(crate) fn plain(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
}

/// Reads a copy completely and counts its contents.
pub(crate) async fn check(path: &Path) -> Result<BackupContents, BackupError> {
    let failed = error_at(path);
    let mut copy = plain(path)
        .immutable(true)
        .read_only(true)
        .connect()
        .await
        .map_err(&failed)?;
    let verdict: String = sqlx::query_scalar("PRAGMA integrity_check(1)")
        .fetch_one(&mut copy)
        .await
        .map_err(&failed)?;
    if verdict != "ok" {
        return Err(StoreError::Damaged {
            path: path.to_owned(),
            problem: verdict.replace('\n', " "),
        }
        .into());
    }
    let mut copy = Connection::Sqlite(copy);
    let database = Database::Sqlite {
        path: path.to_owned(),
        options: plain(path),
    };
    if migrations::check_version(&database, &mut copy)
        .await?
        .is_none()
    {
        return Err(BackupError::Foreign {
            path: path.to_owned(),
        });
    }
    let mut count = async |sql: &'static str| -> Result<u64, BackupError> {
        let rows = query(sql)
            .fetch_value(&mut copy)
            .await
            .map_err(error_at(path))?;
        Ok(from_integer(rows))
    };
    let has_responses =
        count("SELECT count(*) FROM sqlite_master WHERE name = 'responses'").await? > 0;
    let contents = BackupContents {
        keys: count("SELECT count(*) FROM keys WHERE revoked = 0").await?,
        overrides: count("SELECT count(*) FROM overrides").await?,
        loads: count("SELECT count(*) FROM loads").await?,
        registrations: count("SELECT count(*) FROM registrations").await?,
        history: count("SELECT count(*) FROM history").await?,
        responses: if has_responses {
            count("SELECT count(*) FROM responses").await?
        } else {
            0
        },
    };
    let _ = copy.close().await;
    Ok(contents)
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

pub(super) fn error_at(path: &Path) -> impl Fn(sqlx::Error) -> BackupError {
    move |error| refused_by_sqlite(path, error).into()
}

/// Replaces the temporary name of the copy in the error with its final name.
pub(crate) fn named(error: BackupError, part: &Path, name: &Path) -> BackupError {
    let renamed = |path: PathBuf| if path == part { name.to_owned() } else { path };
    let moved = |place: DatabaseLocation| {
        if place == DatabaseLocation::new(part) {
            DatabaseLocation::new(name)
        } else {
            place
        }
    };
    match error {
        BackupError::Foreign { path } => BackupError::Foreign {
            path: renamed(path),
        },
        BackupError::Store(StoreError::Damaged { path, problem }) => StoreError::Damaged {
            path: renamed(path),
            problem,
        }
        .into(),
        BackupError::Store(StoreError::NotADatabase { path }) => StoreError::NotADatabase {
            path: renamed(path),
        }
        .into(),
        BackupError::Store(StoreError::Newer {
            place,
            found,
            known,
        }) => StoreError::Newer {
            place: moved(place),
            found,
            known,
        }
        .into(),
        BackupError::Store(StoreError::Open { place, source }) => StoreError::Open {
            place: moved(place),
            source,
        }
        .into(),
        other => other,
    }
}

/// SQLite's result codes 11 and 26 concern the database. Any other failure of a copy concerns the target's disk.
pub(super) fn of_target(target: &Path, database: &Path, error: sqlx::Error) -> BackupError {
    match refused_by_sqlite(database, error) {
        StoreError::Open { source, .. } => BackupError::Target {
            path: target.to_owned(),
            problem: format!("{source}; {}", disk_of(target)),
        },
        about_the_database => about_the_database.into(),
    }
}

pub(super) fn unwritten(target: &Path, error: &io::Error) -> BackupError {
    let problem = match error.kind() {
        ErrorKind::NotFound => format!("{error}; create its folder, or name another one"),
        ErrorKind::PermissionDenied => {
            format!("{error}; name a folder that this account may write to")
        }
        _ => format!("{error}; {}", disk_of(target)),
    };
    BackupError::Target {
        path: target.to_owned(),
        problem,
    }
}

/// The free space of the target's disk.
fn disk_of(target: &Path) -> String {
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match statvfs(folder) {
        Ok(disk) => {
            let bytes = |blocks: u64| Bytes(blocks.saturating_mul(disk.fragment_size()));
            format!(
                "the disk of {} has {} free of {}; free some, or name a file on another disk",
                folder.display(),
                bytes(disk.blocks_available()),
                bytes(disk.blocks())
            )
        }
        Err(error) => format!("cannot read {} ({error})", folder.display()),
    }
}
