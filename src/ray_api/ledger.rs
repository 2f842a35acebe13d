//! A durable list of the Rays that may run applications of this pool. A model file may be deleted while the pool is down, and no
//! other record would name the Ray in which its application holds GPUs.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::RayAccess;

/// A Ray that the pool has used, with its access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedRay {
    pub address: String,
    /// Prefix of the names of the pool's applications in it.
    pub prefix: String,
    pub token_file: Option<PathBuf>,
    pub timeout_ms: u64,
    /// The section of the configuration, for errors.
    pub section: String,
}

/// The result of a write. The error is one line for users.
pub type RayWrite<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Storage for used Rays. A write counts once it has returned.
pub trait KeepRays: fmt::Debug + Send + Sync {
    /// Replaces the record with the same address and prefix.
    fn save(&self, used: UsedRay) -> RayWrite<'_>;
    fn delete(&self, used: UsedRay) -> RayWrite<'_>;
    /// Returns true if this process is the leader, whose orders count.
    fn leads(&self) -> bool;
}

/// The stored Rays. A Ray is stored before an application is deployed in it, and removed only once it has no application of the
/// pool.
#[derive(Debug, Default)]
pub struct Ledger {
    /// `None` if nothing is stored beyond the process.
    store: Option<Arc<dyn KeepRays>>,
    /// The Rays that are certainly stored.
    used: Mutex<Vec<UsedRay>>,
    /// Serializes writes.
    turn: tokio::sync::Mutex<()>,
}

impl UsedRay {
    pub(super) fn new(access: &RayAccess, address: &str, prefix: &str) -> UsedRay {
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
    /// `used` is the current content of the store.
    pub fn new(store: Arc<dyn KeepRays>, used: Vec<UsedRay>) -> Ledger {
        Ledger {
            store: Some(store),
            used: Mutex::new(used),
            turn: tokio::sync::Mutex::default(),
        }
    }

    pub fn all(&self) -> Vec<UsedRay> {
        self.lock().clone()
    }

    pub(super) fn has(&self, used: &UsedRay) -> bool {
        self.lock().iter().any(|known| known.is_same_ray(used))
    }

    /// Stores a Ray before it returns.
    ///
    /// # Errors
    /// If the store cannot write.
    pub(super) async fn remember(&self, used: &UsedRay) -> Result<(), String> {
        let _turn = self.turn.lock().await;
        if self.lock().contains(used) {
            return Ok(());
        }
        if let Some(store) = &self.store {
            store.save(used.clone()).await?;
        }
        let mut all = self.lock();
        all.retain(|known| !known.is_same_ray(used));
        all.push(used.clone());
        Ok(())
    }

    /// # Errors
    /// If the store cannot write. A later process checks the Ray once more in that case.
    pub(super) async fn forget(&self, used: &UsedRay) -> Result<(), String> {
        let _turn = self.turn.lock().await;
        if !self.has(used) {
            return Ok(());
        }
        // Removed first: a failed or abandoned write may have been carried out. The Ray is then stored again before its next use.
        self.lock().retain(|known| !known.is_same_ray(used));
        match &self.store {
            Some(store) => store.delete(used.clone()).await,
            None => Ok(()),
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.store.as_ref().is_none_or(|store| store.leads())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UsedRay>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store for tests.
#[cfg(test)]
pub(super) mod memory {
    use std::future::ready;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    pub struct Memory {
        rows: Mutex<Vec<UsedRay>>,
        is_full: AtomicBool,
        is_deposed: AtomicBool,
    }

    impl Memory {
        /// The ledger of a process that starts now.
        pub fn ledger(self: &Arc<Memory>) -> Ledger {
            let store: Arc<dyn KeepRays> = Arc::clone(self) as Arc<dyn KeepRays>;
            Ledger::new(store, self.rows())
        }

        pub fn rows(&self) -> Vec<UsedRay> {
            self.rows.lock().expect("no panic").clone()
        }

        /// Makes writes fail.
        pub fn set_full(&self, is_full: bool) {
            self.is_full.store(is_full, Ordering::Relaxed);
        }

        /// Makes another process the leader.
        pub fn depose(&self) {
            self.is_deposed.store(true, Ordering::Relaxed);
        }

        fn write(&self, used: &UsedRay, rows: &[UsedRay]) -> Result<(), String> {
            if self.is_full.load(Ordering::Relaxed) {
                return Err("the disk is full".to_owned());
            }
            let mut all = self.rows.lock().expect("no panic");
            all.retain(|known| !known.is_same_ray(used));
            all.extend_from_slice(rows);
            Ok(())
        }
    }

    impl KeepRays for Memory {
        fn save(&self, used: UsedRay) -> RayWrite<'_> {
            Box::pin(ready(self.write(&used, std::slice::from_ref(&used))))
        }

        fn delete(&self, used: UsedRay) -> RayWrite<'_> {
            Box::pin(ready(self.write(&used, &[])))
        }

        fn leads(&self) -> bool {
            !self.is_deposed.load(Ordering::Relaxed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::memory::Memory;
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

    #[tokio::test]
    async fn a_ray_address_persists_across_processes_until_it_is_forgotten() {
        let store: Arc<Memory> = Arc::default();
        let ledger = store.ledger();
        assert_eq!(ledger.all(), []);
        let (first, second) = (used("http://a:8265", "t"), used("http://b:8265", "t"));
        ledger.remember(&first).await.expect("written");
        ledger.remember(&second).await.expect("written");
        let moved = used("http://a:8265", "another");
        ledger.remember(&moved).await.expect("written");
        assert_eq!(store.ledger().all(), [second.clone(), moved]);
        ledger.forget(&first).await.expect("written");
        assert_eq!(store.ledger().all(), [second]);
    }

    #[tokio::test]
    async fn a_ray_address_that_could_not_be_stored_is_not_remembered() {
        let store: Arc<Memory> = Arc::default();
        let ledger = store.ledger();
        let first = used("http://a:8265", "t");
        store.set_full(true);
        assert!(ledger.remember(&first).await.is_err());
        assert!(!ledger.has(&first), "the next deployment tries again");
        store.set_full(false);
        ledger.remember(&first).await.expect("written");
        assert_eq!(store.rows(), [first]);
    }

    #[tokio::test]
    async fn a_ray_address_with_a_failed_removal_is_saved_again_before_its_next_use() {
        let store: Arc<Memory> = Arc::default();
        let ledger = store.ledger();
        let first = used("http://a:8265", "t");
        ledger.remember(&first).await.expect("written");
        store.set_full(true);
        assert!(ledger.forget(&first).await.is_err());
        assert!(
            ledger.remember(&first).await.is_err(),
            "it is unknown whether the store still has it"
        );
        store.set_full(false);
        ledger.remember(&first).await.expect("written");
        assert_eq!(store.rows(), [first]);
    }
}
