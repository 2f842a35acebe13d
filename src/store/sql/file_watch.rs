//! Detects that SQLite's files were moved away, replaced or truncated while they are open. The connection would keep
//! writing to a file that the next start does not find, and every acknowledged change would be lost (D1).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::connection::Connection;
use super::query::query;

/// A change to a file behind SQLite's back, and the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileTrouble {
    #[error(
        "{} was moved away or removed while it is in use; put it back, or stop model-pool and restore a copy", .path.display()
    )]
    Gone { path: PathBuf },
    #[error(
        "{} was replaced by another file while it is in use; put the first one back, or restart model-pool to use this one", .path.display()
    )]
    Replaced { path: PathBuf },
    #[error(
        "{} was removed while it is in use; its content is in the database: restart model-pool", .path.display()
    )]
    LogGone { path: PathBuf },
    #[error(
        "{} was truncated while it is in use: it has {has} bytes of {needs}; stop model-pool and restore a copy", .path.display()
    )]
    CutOff { path: PathBuf, has: u64, needs: u64 },
}

/// Identifies a file regardless of its name.
type Mark = (u64, u64);

/// The identity of the database file and its log when they were opened.
pub(crate) struct FileWatch {
    path: PathBuf,
    log: PathBuf,
    mark: Mark,
    /// Prevents reuse of the file's inode number.
    _file: File,
    seen: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    size: u64,
    /// The log of the writing connection; `None` if it is not known yet.
    log: Option<Mark>,
    /// True if the log was removed while open. Readers still hold it, which prevents SQLite from creating a new log.
    log_gone: bool,
}

impl FileWatch {
    /// Starts to watch the files of an open database.
    ///
    /// # Errors
    /// If the file's metadata cannot be read.
    pub fn begin(path: &Path) -> io::Result<FileWatch> {
        let mut options = OpenOptions::new();
        options.read(true);
        // Closing an ordinary descriptor would release SQLite's locks on the file.
        #[cfg(target_os = "linux")]
        options.custom_flags(nix::libc::O_PATH);
        let file = options.open(path)?;
        let about = file.metadata()?;
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let watch = FileWatch {
            path: path.to_owned(),
            log: log.into(),
            mark: mark(&about),
            _file: file,
            seen: Mutex::default(),
        };
        watch.wrote();
        Ok(watch)
    }

    /// Fails if a new connection would open other files than the first connection did.
    pub fn before_connect(&self) -> Result<(), FileTrouble> {
        // SQLite may have removed the log of the last connection.
        self.seen().log = None;
        self.check()
    }

    /// Fails if the next start would not find the next write.
    pub async fn before_write(&self, connection: &mut Connection) -> Result<(), sqlx::Error> {
        self.check_and_fold(connection).await?;
        let size = fs::metadata(&self.path).map(|about| about.len());
        let has = size.unwrap_or(u64::MAX);
        if has >= self.seen().size {
            return Ok(());
        }
        // Another program may have vacuumed the file. Its length then matches SQLite's page count.
        let size = "SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size) AS size";
        let size: i64 = query(size).fetch_one(connection).await?.get("size");
        let needs = u64::try_from(size).unwrap_or(0);
        if has >= needs {
            return Ok(());
        }
        let path = self.path.clone();
        Err(FileTrouble::CutOff { path, has, needs }.into())
    }

    /// Fails if the next start would not find the last write.
    pub async fn after_write(&self, connection: &mut Connection) -> Result<(), sqlx::Error> {
        self.check_and_fold(connection).await?;
        self.wrote();
        Ok(())
    }

    /// Fails as [`FileWatch::check`] does. Before that, moves the writes of a removed log into the database: they are
    /// acknowledged, and the connection still has the log open.
    async fn check_and_fold(&self, connection: &mut Connection) -> Result<(), sqlx::Error> {
        let Err(trouble) = self.check() else {
            return Ok(());
        };
        if matches!(trouble, FileTrouble::LogGone { .. }) {
            let fold = query("PRAGMA wal_checkpoint(TRUNCATE)");
            fold.execute(connection).await?;
        }
        Err(trouble.into())
    }

    /// Fails if the connection has other files open than the files at these paths.
    fn check(&self) -> Result<(), FileTrouble> {
        let path = || self.path.clone();
        match fs::metadata(&self.path) {
            Ok(about) if mark(&about) == self.mark => {}
            Ok(_) => return Err(FileTrouble::Replaced { path: path() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FileTrouble::Gone { path: path() });
            }
            // Unknown is not gone; SQLite reports files that it cannot write.
            Err(_) => return Ok(()),
        }
        let now = self.log_mark();
        let mut seen = self.seen();
        let is_another = |known: Mark| now.is_some_and(|now| now != Some(known));
        seen.log_gone |= seen.log.is_some_and(is_another);
        if seen.log_gone {
            return Err(FileTrouble::LogGone {
                path: self.log.clone(),
            });
        }
        Ok(())
    }

    /// Records the state of the files after a write by the connection.
    pub fn wrote(&self) {
        let size = fs::metadata(&self.path).map(|about| about.len());
        let log = self.log_mark().flatten();
        let mut seen = self.seen();
        seen.size = size.unwrap_or(seen.size);
        seen.log = log;
    }

    /// The outer `None` means that it is not known.
    fn log_mark(&self) -> Option<Option<Mark>> {
        match fs::metadata(&self.log) {
            Ok(about) => Some(Some(mark(&about))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
            Err(_) => None,
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, FileState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mark(about: &Metadata) -> Mark {
    (about.dev(), about.ino())
}

impl From<FileTrouble> for sqlx::Error {
    fn from(trouble: FileTrouble) -> sqlx::Error {
        sqlx::Error::Io(io::Error::other(trouble))
    }
}

/// The file problem that caused an error.
pub(super) fn trouble_of(error: &sqlx::Error) -> Option<&FileTrouble> {
    match error {
        sqlx::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Store;
    use crate::sql::error::StoreError;

    async fn opened(folder: &Path) -> (Store, PathBuf) {
        let path = folder.join("state.db");
        let store = Store::open(&format!("sqlite://{}", path.display())).await;
        (store.expect("opened"), path)
    }

    async fn refused(store: &Store, words: &str) {
        let error = store.save_meta("a", "lost").await.expect_err(words);
        assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(store.trouble().is_some());
    }

    async fn kept(store: &Store, key: &str) -> Option<String> {
        store.meta(key).await.expect("read")
    }

    #[tokio::test]
    async fn writes_are_refused_while_the_database_file_is_moved_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, path) = opened(folder.path()).await;
        store.save_meta("before", "1").await.expect("kept");
        let away = folder.path().join("away.db");
        fs::rename(&path, &away).expect("moved");
        for _ in 0..3 {
            refused(&store, "was moved away").await;
        }
        assert_eq!(kept(&store, "a").await, None);
        fs::rename(&away, &path).expect("back");
        store.probe().await.expect("it is back");
        store.save_meta("after", "2").await.expect("kept");
        assert!(store.trouble().is_none());
        store.close().await;
        drop(store);
        let (store, _) = opened(folder.path()).await;
        let all = [kept(&store, "before").await, kept(&store, "after").await];
        assert_eq!(all, [Some("1".to_owned()), Some("2".to_owned())]);
        assert_eq!(kept(&store, "a").await, None);
    }

    #[tokio::test]
    async fn a_database_that_replaces_the_open_one_is_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = tempfile::tempdir().expect("a folder");
        let (store, path) = opened(folder.path()).await;
        let (another, of_other) = opened(other.path()).await;
        another.close().await;
        fs::rename(&of_other, &path).expect("replaced");
        refused(&store, "was replaced by another file").await;
        refused(&store, "was replaced by another file").await;
    }

    #[tokio::test]
    async fn acknowledged_changes_survive_the_removal_of_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, path) = opened(folder.path()).await;
        store.save_meta("before", "1").await.expect("kept");
        fs::remove_file(path.with_extension("db-wal")).expect("a log");
        refused(&store, "restart model-pool").await;
        refused(&store, "restart model-pool").await;
        // As after a kill: nothing more is written at the end.
        let copy = tempfile::tempdir().expect("a folder");
        fs::copy(&path, copy.path().join("state.db")).expect("copied");
        let (copied, _) = opened(copy.path()).await;
        assert_eq!(kept(&copied, "before").await.as_deref(), Some("1"));
        assert_eq!(kept(&copied, "a").await, None);
    }

    #[tokio::test]
    async fn a_database_truncated_while_in_use_is_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, path) = opened(folder.path()).await;
        store.save_meta("before", "1").await.expect("kept");
        store.fold_log().await.expect("folded");
        let file = OpenOptions::new().write(true).open(&path).expect("a file");
        file.set_len(8_192).expect("cut off");
        refused(&store, "was truncated").await;
        store.save_meta("a", "lost").await.expect_err("damaged");
        assert!(store.trouble().is_some());
    }

    #[tokio::test]
    async fn an_abandoned_connection_does_not_indicate_a_lost_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, _) = opened(folder.path()).await;
        for nth in 0..3 {
            let broken = store.write("break", async |connection| {
                let rolls_back = crate::sql::query::query("ROLLBACK");
                rolls_back.execute(connection).await
            });
            broken.await.expect_err("there was nothing to commit");
            store.save_meta("a", &nth.to_string()).await.expect("kept");
        }
    }

    #[tokio::test]
    async fn an_empty_database_and_a_log_without_one_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, path) = opened(folder.path()).await;
        store.close().await;
        drop(store);
        let url = format!("sqlite://{}", path.display());
        let file = OpenOptions::new().write(true).open(&path).expect("a file");
        file.set_len(0).expect("cut off");
        let error = Store::open(&url).await.expect_err("empty");
        assert!(matches!(error, StoreError::Empty { .. }), "{error}");
        fs::remove_file(&path).expect("removed");
        let log = path.with_extension("db-wal");
        fs::write(&log, "changes").expect("a log");
        let error = Store::open(&url).await.expect_err("a log alone");
        assert!(matches!(error, StoreError::LogAlone { .. }), "{error}");
        assert!(!path.exists() && log.exists());
        fs::remove_file(&log).expect("removed");
        Store::open(&url).await.expect("a new one");
    }
}
