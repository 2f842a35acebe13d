//! Opens the database: the folder, the lock, checks with clear errors, and the schema. Never deletes or repairs a file on its own.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions,
    SqliteSynchronous,
};

use super::store::{Lock, Store};
use super::writer::Writer;
use super::{migrations, open_postgres};
use crate::sql::error::refused_by_sqlite;
use crate::sql::{Connection, Database, FileWatch, Readers, StoreError};

const HEADER: &[u8; 16] = b"SQLite format 3\0";

/// Other programs (a backup, or `sqlite3`) may lock the file for a short time.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit up to which the complete file is checked at the start, which takes a fraction of a second. Larger files are checked where
/// they are read.
const CHECKED_BYTES: u64 = 64 << 20;

/// Size of SQLite's log after it is folded into the file. A long write may have enlarged it.
const LOG_BYTES_KEPT: &str = "16777216";

/// Number of read-only connections: paging through the history must not block another reader.
const READERS: u32 = 2;

impl Store {
    /// Opens the database, and creates missing folders and files.
    ///
    /// `database_url` is `sqlite://PATH`, where a relative path is relative to the working directory, or
    /// `postgres://USER@HOST/DATABASE` (`open_postgres.rs`).
    ///
    /// # Errors
    /// Every [`StoreError`] names the file and the remedy: the URL or folder is unusable, another model-pool holds the file, or the
    /// file is not a database, damaged, or newer than this program.
    pub async fn open(database_url: &str) -> Result<Store, StoreError> {
        let (path, options) = match parse(database_url)? {
            Database::Sqlite { path, options } => (path, options),
            Database::Postgres(options) => return open_postgres::open(*options).await,
        };
        create_folder(&path)?;
        let lock = lock(&path)?;
        let is_new = check_file(&path)?;
        let opened = Store::open_file(&path, options, is_new, lock).await;
        if opened.is_err() && is_new {
            remove_if_empty(&path);
        }
        opened
    }

    async fn open_file(
        path: &Path,
        options: SqliteConnectOptions,
        is_new: bool,
        lock: Flock<File>,
    ) -> Result<Store, StoreError> {
        // Only a new file can get this setting. An older file would have to be rewritten, and setting it again is a write, which a
        // full disk refuses.
        let for_first = if is_new {
            options.clone().auto_vacuum(SqliteAutoVacuum::Incremental)
        } else {
            options.clone()
        };
        let mut first = for_first
            .connect()
            .await
            .map_err(|source| refused_by_sqlite(path, source))?;
        check_content(path, &mut first).await?;
        let mut first = Connection::Sqlite(first);
        let path = path.to_owned();
        let database = Database::Sqlite { path, options };
        migrations::check_version(&database, &mut first).await?;
        migrations::run(&database, &mut first).await?;
        Store::connected(database, first, Some(Lock::File(lock))).await
    }

    /// Opens the database while a service holds its lock, for changes that the service expects from other programs. Does not
    /// migrate the schema.
    ///
    /// # Errors
    /// As [`Store::open`]. Also fails if the database does not exist, or has another schema version than this program.
    pub async fn open_beside(database_url: &str) -> Result<Store, StoreError> {
        Store::beside(parse(database_url)?).await
    }

    /// Opens the same database again, after this store was closed because another process took over.
    ///
    /// # Errors
    /// As [`Store::open_beside`].
    pub async fn open_again(&self) -> Result<Store, StoreError> {
        Store::beside(self.database.clone()).await
    }

    async fn beside(database: Database) -> Result<Store, StoreError> {
        let database = match database {
            Database::Sqlite { path, options } => {
                if !has_header(&path)? {
                    return Err(StoreError::NotADatabase { path });
                }
                let options = options.create_if_missing(false);
                Database::Sqlite { path, options }
            }
            postgres => postgres,
        };
        let connected = database.for_writes().connect().await;
        let mut first = connected.map_err(|source| database.refused(source))?;
        migrations::check_same_version(&database, &mut first).await?;
        Store::connected(database, first, None).await
    }

    /// `first` becomes the writing connection. It has to come from [`Database::for_writes`].
    pub(crate) async fn connected(
        database: Database,
        first: Connection,
        lock: Option<Lock>,
    ) -> Result<Store, StoreError> {
        let readers = match &database {
            Database::Sqlite { options, .. } => SqlitePoolOptions::new()
                .max_connections(READERS)
                .connect_with(options.clone().pragma("query_only", "on"))
                .await
                .map(Readers::Sqlite),
            Database::Postgres(options) => open_postgres::readers(options).await,
        };
        let readers = readers.map_err(|source| database.refused(source))?;
        let tenure = match &lock {
            Some(Lock::Session(leadership)) => Some(Arc::clone(&leadership.tenure)),
            _ => None,
        };
        let files = match &database {
            Database::Sqlite { path, .. } => {
                let watch = FileWatch::begin(path).map_err(|source| StoreError::Unreadable {
                    path: path.clone(),
                    source,
                })?;
                Some(watch)
            }
            Database::Postgres(_) => None,
        };
        Ok(Store {
            writer: Writer::new(database.for_writes(), files, first, tenure.clone()),
            database,
            readers,
            tenure,
            lock: std::sync::Mutex::new(lock),
        })
    }
}

/// Opens a store's file, or a PostgreSQL URL, for reading. A running pool may be using it.
pub(crate) async fn read_only(path: &Path) -> Result<Connection, sqlx::Error> {
    if let Some(url) = path.to_str().filter(|url| is_postgres(url)) {
        return open_postgres::read_only(url).await;
    }
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    options.connect().await.map(Connection::Sqlite)
}

/// Returns true if the file begins with SQLite's header. Does not change the file.
pub(crate) fn has_header(path: &Path) -> Result<bool, StoreError> {
    let unreadable = |source| StoreError::Unreadable {
        path: path.to_path_buf(),
        source,
    };
    let mut header = Vec::with_capacity(HEADER.len());
    File::open(path)
        .and_then(|file| file.take(HEADER.len() as u64).read_to_end(&mut header))
        .map_err(unreadable)?;
    Ok(header == HEADER)
}

fn is_postgres(database_url: &str) -> bool {
    database_url.starts_with("postgres:") || database_url.starts_with("postgresql:")
}

pub(crate) fn parse(database_url: &str) -> Result<Database, StoreError> {
    if is_postgres(database_url) {
        return open_postgres::parse(database_url);
    }
    let wrong = |problem: String| StoreError::Url {
        url: without_password(database_url),
        problem,
    };
    if !database_url.starts_with("sqlite:") {
        let scheme = database_url.split(':').next().unwrap_or_default();
        return Err(wrong(format!(
            "{scheme:?} databases are not supported, only SQLite and PostgreSQL"
        )));
    }
    let options =
        SqliteConnectOptions::from_str(database_url).map_err(|source| wrong(source.to_string()))?;
    let path = options.get_filename().to_path_buf();
    if path.as_os_str().is_empty() {
        return Err(wrong("it names no file".into()));
    }
    if database_url.contains(":memory:") || database_url.contains("mode=") {
        return Err(wrong(
            "the state must be a writable file, because it has to survive a restart".into(),
        ));
    }
    let options = options
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("journal_size_limit", LOG_BYTES_KEPT)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true);
    Ok(Database::Sqlite { path, options })
}

/// The URL of another kind of database may contain a password, which messages must not.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 < at => {
            format!("{}…{}", &url[..scheme + 3], &url[at..])
        }
        _ => url.to_string(),
    }
}

pub(crate) fn create_folder(path: &Path) -> Result<(), StoreError> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            std::fs::create_dir_all(folder).map_err(|source| StoreError::Folder {
                path: folder.to_path_buf(),
                source,
            })
        }
        _ => Ok(()),
    }
}

/// Locks the state: two controllers on the same state would undo each other's wishes. The lock belongs to the open file, so it ends
/// with the process in every case. Engines do not inherit it.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock_path = PathBuf::from(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&lock_path)
        .map_err(|source| StoreError::NotWritable {
            path: lock_path.clone(),
            source,
        })?;
    let mut held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => held,
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut text = String::new();
            let holder = match file.read_to_string(&mut text) {
                Ok(_) if text.trim().parse::<u32>().is_ok() => {
                    format!(" (process {})", text.trim())
                }
                _ => String::new(),
            };
            return Err(StoreError::InUse {
                path: path.to_path_buf(),
                lock: lock_path,
                holder,
            });
        }
        Err((_, errno)) => {
            return Err(StoreError::Lock {
                path: lock_path,
                source: errno.into(),
            });
        }
    };
    let written = held
        .set_len(0)
        .and_then(|()| held.write_all(format!("{}\n", std::process::id()).as_bytes()));
    match written {
        Ok(()) => Ok(held),
        // The lock is held; only the process id is missing from the file.
        Err(source) if source.kind() == ErrorKind::StorageFull => Ok(held),
        Err(source) => Err(StoreError::NotWritable {
            path: lock_path,
            source,
        }),
    }
}

/// Finds problems that SQLite would report later or less clearly. Returns true if the file is new.
fn check_file(path: &Path) -> Result<bool, StoreError> {
    let unwritable = |source| StoreError::NotWritable {
        path: path.to_path_buf(),
        source,
    };
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            create_file(path)?;
            return Ok(true);
        }
        Err(error) => return Err(unwritable(error)),
    };
    let mut header = Vec::with_capacity(HEADER.len());
    file.take(HEADER.len() as u64)
        .read_to_end(&mut header)
        .map_err(unwritable)?;
    if header.is_empty() {
        return Err(StoreError::Empty {
            path: path.to_path_buf(),
        });
    }
    if header == HEADER {
        Ok(false)
    } else {
        Err(StoreError::NotADatabase {
            path: path.to_path_buf(),
        })
    }
}

/// Creates the file readable only for this user, because it contains the hashes of keys. SQLite gives its other files the same
/// mode.
fn create_file(path: &Path) -> Result<(), StoreError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = PathBuf::from(log);
    // SQLite would remove the log together with the changes in it.
    if std::fs::metadata(&log).is_ok_and(|about| about.len() > 0) {
        return Err(StoreError::LogAlone {
            path: path.to_path_buf(),
            log,
        });
    }
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    created.map(drop).map_err(|source| StoreError::NotWritable {
        path: path.to_path_buf(),
        source,
    })
}

/// Removes a new file that stayed empty, because the next start would refuse it.
fn remove_if_empty(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|about| about.len() == 0) {
        let _ = std::fs::remove_file(path);
    }
}

async fn check_content(path: &Path, first: &mut SqliteConnection) -> Result<(), StoreError> {
    let size = std::fs::metadata(path).map(|data| data.len()).unwrap_or(0);
    if size > CHECKED_BYTES {
        return Ok(());
    }
    let verdict: String = sqlx::query_scalar("PRAGMA quick_check(1)")
        .fetch_one(&mut *first)
        .await
        .map_err(|source| refused_by_sqlite(path, source))?;
    match verdict.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::Damaged {
            path: path.to_path_buf(),
            problem: verdict.replace('\n', " "),
        }),
    }
}
