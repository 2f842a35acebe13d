//! The Rays in which there may be applications of this pool, in a file that outlives the process: a model file may be deleted
//! while the pool is down, and nothing else would name the Ray in which its application holds GPUs.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::RayAccess;

/// A Ray that the pool has used, and how it was called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedRay {
    pub address: String,
    /// What the names of the pool's applications begin with there.
    pub prefix: String,
    pub token_file: Option<PathBuf>,
    pub timeout_ms: u64,
    /// The section of the configuration that says so, for errors.
    pub section: String,
}

/// The file. It is on the disk before an application is deployed, and without a Ray only once that has none any more.
#[derive(Debug, Default)]
pub struct Ledger {
    /// `None`: nothing outlives the process.
    path: Option<PathBuf>,
    used: Mutex<Vec<UsedRay>>,
}

impl UsedRay {
    pub(super) fn of(access: &RayAccess, address: &str, prefix: &str) -> UsedRay {
        UsedRay {
            address: address.to_owned(),
            prefix: prefix.to_owned(),
            token_file: access.token_file.clone(),
            timeout_ms: u64::try_from(access.timeout.as_millis()).unwrap_or(u64::MAX),
            section: access.section.to_owned(),
        }
    }

    fn is_same_ray(&self, other: &UsedRay) -> bool {
        (&self.address, &self.prefix) == (&other.address, &other.prefix)
    }
}

impl Ledger {
    /// Reads the file. One that cannot be read is kept aside, and does not keep the pool from serving. Blocks.
    pub fn open(path: PathBuf) -> Ledger {
        let read = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let used = read.unwrap_or_else(|error| {
            let aside = path.with_extension("unreadable");
            let _ = std::fs::rename(&path, &aside);
            tracing::error!(
                "{} cannot be read ({error}), and is now {}: applications of this pool in a Ray that no model file names are not found; look into it for the addresses",
                path.display(),
                aside.display()
            );
            Vec::new()
        });
        Ledger {
            path: Some(path),
            used: Mutex::new(used),
        }
    }

    pub fn all(&self) -> Vec<UsedRay> {
        self.lock().clone()
    }

    pub(super) fn has(&self, used: &UsedRay) -> bool {
        self.lock().iter().any(|it| it.is_same_ray(used))
    }

    /// On the disk when this returns. Blocks.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn remember(&self, used: &UsedRay) -> io::Result<()> {
        let mut all = self.lock();
        if all.contains(used) {
            return Ok(());
        }
        let others = all.iter().filter(|it| !it.is_same_ray(used)).cloned();
        let new: Vec<UsedRay> = others.chain([used.clone()]).collect();
        self.write(&new)?;
        *all = new;
        Ok(())
    }

    /// Blocks.
    ///
    /// # Errors
    /// If the file cannot be written; the Ray is looked at once more by a later run then.
    pub(super) fn forget(&self, used: &UsedRay) -> io::Result<()> {
        let mut all = self.lock();
        let others = all.iter().filter(|it| !it.is_same_ray(used));
        let new: Vec<UsedRay> = others.cloned().collect();
        if new.len() < all.len() {
            // If that fails the Ray stays remembered, so that nothing has to be written before it is used again.
            self.write(&new)?;
            *all = new;
        }
        Ok(())
    }

    pub(super) fn shown_path(&self) -> String {
        let path = self.path.as_deref().unwrap_or(Path::new("no file"));
        path.display().to_string()
    }

    /// A power failure leaves the old list or the new one.
    fn write(&self, all: &[UsedRay]) -> io::Result<()> {
        match &self.path {
            Some(path) => private_files::replace(path, &serde_json::to_vec_pretty(all)?),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UsedRay>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(address: &str, token: &str) -> UsedRay {
        UsedRay {
            address: address.to_owned(),
            prefix: "model-pool.lab.r".to_owned(),
            token_file: Some(token.into()),
            timeout_ms: 30_000,
            section: "engine_config".to_owned(),
        }
    }

    #[test]
    fn a_ray_is_remembered_by_the_next_process_until_it_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ray-serve.json");
        let ledger = Ledger::open(path.clone());
        assert_eq!(ledger.all(), []);
        let (first, second) = (used("http://a:8265", "t"), used("http://b:8265", "t"));
        ledger.remember(&first).expect("written");
        ledger.remember(&second).expect("written");
        let moved = used("http://a:8265", "another");
        ledger.remember(&moved).expect("written");
        let expected = [second.clone(), moved];
        assert_eq!(Ledger::open(path.clone()).all(), expected);
        ledger.forget(&first).expect("written");
        assert_eq!(Ledger::open(path).all(), [second]);
    }

    #[test]
    fn what_is_not_on_the_disk_is_not_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::open(folder.path().join("none/ray-serve.json"));
        let first = used("http://a:8265", "t");
        assert!(ledger.remember(&first).is_err());
        assert!(!ledger.has(&first), "the next deployment tries again");
    }

    #[test]
    fn a_ray_that_cannot_be_forgotten_is_used_again_without_a_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).expect("a folder");
        let ledger = Ledger::open(inner.join("ray-serve.json"));
        let first = used("http://a:8265", "t");
        ledger.remember(&first).expect("written");
        std::fs::remove_dir_all(&inner).expect("removed");
        assert!(ledger.forget(&first).is_err());
        assert!(ledger.has(&first));
        ledger.remember(&first).expect("nothing to write");
    }

    #[test]
    fn a_damaged_file_is_kept_aside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ray-serve.json");
        std::fs::write(&path, "[{\"address\":").expect("written");
        let ledger = Ledger::open(path);
        assert_eq!(ledger.all(), []);
        ledger
            .remember(&used("http://a:8265", "t"))
            .expect("written");
        let aside = folder.path().join("ray-serve.unreadable");
        let text = std::fs::read_to_string(aside).expect("kept");
        assert_eq!(text, "[{\"address\":");
    }
}
