//! Replaces the database with a checked copy, and keeps the former database next to it. Nothing changes before the copy has been
//! checked.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use chrono::Utc;
use sqlx::{ConnectOptions, Connection as _};

use super::backup::{
    Backup, BackupError, Part, check, error_at, file_of, named, of_target, plain, unwritten,
    with_suffix,
};
use super::migration::raise_last_id;
use crate::database::open;
use crate::keys::KeyHash;
use crate::sql::{Connection, Dialect, StoreError};
use pool::Bytes;

/// Tables whose ids are never reused.
const SEQUENCES: [&str; 3] = ["keys", "history", "audit"];

/// The result of replacing a database with a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreResult {
    pub backup: Backup,
    pub database: PathBuf,
    /// The path of the former database; `None` if there was none.
    pub former: Option<PathBuf>,
    /// True if the given key is valid in the copy.
    pub knows_key: bool,
}

/// Replaces the database at this URL with a checked copy of `backup`, and keeps the former one next to it. Ids of the former
/// database are not assigned again.
///
/// # Errors
/// As [`back_up`](super::backup::back_up); [`StoreError::InUse`] while a service uses the database, [`StoreError::Newer`] for a copy of a newer program.
/// Until the exchange the database is unchanged.
pub async fn restore(
    database_url: &str,
    backup: &Path,
    key: Option<KeyHash>,
) -> Result<RestoreResult, BackupError> {
    let path = file_of(database_url)?;
    if !open::has_header(backup)? {
        return Err(StoreError::NotADatabase {
            path: backup.to_owned(),
        }
        .into());
    }
    open::create_folder(&path)?;
    let _lock = open::lock(&path)?;
    let part = Part::create(&path)?;
    let mut from = File::open(backup).map_err(|source| BackupError::Source {
        path: backup.to_owned(),
        source,
    })?;
    let copied = OpenOptions::new()
        .write(true)
        .open(&part.path)
        .and_then(|mut to| io::copy(&mut from, &mut to));
    let bytes = copied.map_err(|error| unwritten(&part.path, &error))?;
    let contents = check(&part.path)
        .await
        .map_err(|fault| named(fault, &part.path, backup))?;
    let knows_key = match key {
        Some(key) => knows(&part.path, key).await.map_err(error_at(backup))?,
        None => false,
    };
    let is_there = path.exists();
    if is_there {
        let numbers = Numbers::from_path(&path).await;
        numbers
            .raise(&part.path)
            .await
            .map_err(|error| of_target(&path, &path, error))?;
    }
    File::open(&part.path)
        .and_then(|file| file.sync_all())
        .map_err(|error| unwritten(&path, &error))?;
    let former = if is_there {
        Some(set_aside(&path).await?)
    } else {
        None
    };
    part.take_the_place_of(&path)
        .map_err(|source| BackupError::Exchange {
            path: path.clone(),
            former: former.clone().unwrap_or_default(),
            source,
        })?;
    Ok(RestoreResult {
        backup: Backup {
            bytes: Bytes(bytes),
            contents,
        },
        database: path,
        former,
        knows_key,
    })
}

async fn knows(path: &Path, key: KeyHash) -> Result<bool, sqlx::Error> {
    let mut copy = plain(path)
        .immutable(true)
        .read_only(true)
        .connect()
        .await?;
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM keys WHERE hash = ? AND revoked = 0")
        .bind(&key.0[..])
        .fetch_one(&mut copy)
        .await?;
    let _ = copy.close().await;
    Ok(count > 0)
}

/// A row of `used_rays`.
type UsedRay = (String, String, Option<String>, i64, String);

/// Facts of a database that a copy must not undo: the largest numbers assigned to replicas, orders and rows, and the Rays that may
/// run applications.
#[derive(Debug, Default)]
struct Numbers {
    last: Vec<(String, i64)>,
    sequences: Vec<(String, i64)>,
    rays: Vec<UsedRay>,
}

impl Numbers {
    /// Reads as much as possible: damage may be the reason for replacing the database.
    async fn from_path(path: &Path) -> Numbers {
        let Ok(mut database) = plain(path).connect().await else {
            return Numbers::default();
        };
        let last = sqlx::query_as("SELECT name, last FROM numbers").fetch_all(&mut database);
        let last = last.await.unwrap_or_default();
        let sequences = sqlx::query_as("SELECT name, seq FROM sqlite_sequence");
        let sequences = sequences.fetch_all(&mut database).await.unwrap_or_default();
        let rays = sqlx::query_as(
            "SELECT address, prefix, token_file, timeout_ms, section FROM used_rays",
        );
        let rays = rays.fetch_all(&mut database).await.unwrap_or_default();
        let _ = database.close().await;
        Numbers {
            last,
            sequences,
            rays,
        }
    }

    /// A copy of an older schema may lack the tables; its migration counts the existing rows. Such a copy cannot store Rays.
    async fn raise(&self, path: &Path) -> Result<(), sqlx::Error> {
        let mut copy = plain(path).connect().await?;
        let has_numbers: i64 =
            sqlx::query_scalar("SELECT count(*) FROM sqlite_master WHERE name = 'numbers'")
                .fetch_one(&mut copy)
                .await?;
        for (name, last) in self.last.iter().filter(|_| has_numbers > 0) {
            sqlx::query("UPDATE numbers SET last = max(last, ?) WHERE name = ?")
                .bind(last)
                .bind(name)
                .execute(&mut copy)
                .await?;
        }
        let has_rays: i64 =
            sqlx::query_scalar("SELECT count(*) FROM sqlite_master WHERE name = 'used_rays'")
                .fetch_one(&mut copy)
                .await?;
        for (address, prefix, token_file, timeout_ms, section) in
            self.rays.iter().filter(|_| has_rays > 0)
        {
            sqlx::query("INSERT OR IGNORE INTO used_rays (address, prefix, token_file, timeout_ms, section) VALUES (?, ?, ?, ?, ?)")
                .bind(address)
                .bind(prefix)
                .bind(token_file.as_deref())
                .bind(timeout_ms)
                .bind(section)
                .execute(&mut copy)
                .await?;
        }
        let known = |name: &String| SEQUENCES.contains(&name.as_str());
        let mut copy = Connection::Sqlite(copy);
        for (name, last) in self.sequences.iter().filter(|(name, _)| known(name)) {
            raise_last_id(Dialect::Sqlite, &mut copy, name, "id", *last).await?;
        }
        copy.close().await
    }
}

/// Gives the database a second name, which it keeps when the copy takes the first one.
async fn set_aside(path: &Path) -> Result<PathBuf, BackupError> {
    // Folds SQLite's log into the file. A damaged file keeps its log next to it instead.
    if let Ok(mut database) = plain(path).connect().await {
        let _ = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .execute(&mut database)
            .await;
        let _ = database.close().await;
    }
    let former = former_name(path);
    let failed = |source| BackupError::Exchange {
        path: path.to_owned(),
        former: path.to_owned(),
        source,
    };
    for suffix in ["-wal", "-shm"] {
        match std::fs::rename(with_suffix(path, suffix), with_suffix(&former, suffix)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    match std::fs::hard_link(path, &former) {
        Ok(()) => Ok(former),
        // Some file systems have no links. In that case the database is missing until the copy is in place.
        Err(_) => std::fs::rename(path, &former)
            .map(|()| former)
            .map_err(failed),
    }
}

/// A name that no file has yet.
fn former_name(path: &Path) -> PathBuf {
    let moment = Utc::now().format("%Y%m%dT%H%M%SZ");
    let mut name = with_suffix(path, &format!(".before-restore-{moment}"));
    let mut more = 1;
    while name.exists() {
        more += 1;
        name = with_suffix(path, &format!(".before-restore-{moment}-{more}"));
    }
    name
}
