//! Looks up adapters by name below the paths of their base models. Results, found or not, are cached for a few seconds, and callers
//! that invent names are slowed down. A fetch from a bucket continues after its request has left.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Semaphore, watch};

use super::adapter_fetch;
use super::adapter_files::look_in_folder;
use super::caller_share::{Counts, LookupCaller};
use catalog::{AdapterPlace, Entry};
use pool::{Bytes, FilesFingerprint, Span, Time};
use source::Sources;

/// Time a result from a folder is cached, whether the adapter was found or not.
const FRESH: Span = Span(1000);
/// Buckets are queried less often than folders: a request takes longer and may cost money.
const FRESH_FROM_BUCKET: Span = Span(30_000);
const MISSED_FOR: Span = Span(3000);
/// Maximum number of cached names. The name whose last lookup is oldest is dropped first.
const KEPT_MAX: usize = 2000;
/// Time an adapter stays listed as known after its last request.
const KNOWN_FOR: Span = Span(600_000);
/// Unknown names that all users together may look up per second. Each user has a share.
pub const ADAPTER_MISSES_MAX: u32 = 50;
/// Concurrent lookups in folders, and separately in buckets. Bounds the threads that a hanging disk holds; a hanging bucket does
/// not delay folders.
const AT_ONCE: usize = 8;
/// Concurrent lookups per user. A user's further lookups wait behind these, without delaying other users.
const AT_ONCE_OF_ONE: usize = 3;
/// Lookups that may run or wait at a time. Each user has a share.
pub const ADAPTER_LOOKUPS_MAX: u32 = 500;
/// Time limit of a fetch.
const FETCH_MAX: Duration = Duration::from_secs(3600);

/// Counts one lookup of a caller until it is dropped, also after a panic.
struct LookupGuard {
    lookups: Arc<AdapterLookups>,
    caller: LookupCaller,
}

impl Drop for LookupGuard {
    fn drop(&mut self) {
        self.lookups.state().running_of.give_back(&self.caller);
    }
}

/// An adapter that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterFound {
    pub name: String,
    /// The adapter's name as `suffix:id`.
    pub id: String,
    pub folder: PathBuf,
    /// Changes when its files change.
    pub mark: FilesFingerprint,
    pub rank: u32,
    pub bytes: Bytes,
}

#[derive(Clone, Debug, Error)]
pub enum AdapterError {
    #[error("there is no adapter {name}")]
    Unknown { name: String },
    #[error("the adapter {name} cannot be used: {problem}")]
    Unusable { name: String, problem: String },
    #[error("{message}; retry in {retry}")]
    NotNow { message: String, retry: Span },
    #[error("the adapter {name} cannot be fetched to this machine: {problem}")]
    Unreachable {
        name: String,
        problem: String,
        retry: Span,
    },
}

type LookupResult = Result<Arc<AdapterFound>, AdapterError>;

#[derive(Debug)]
struct CachedLookup {
    at: Time,
    base: String,
    fresh: Span,
    result: LookupResult,
}

#[derive(Debug, Default)]
struct LookupState {
    looked: BTreeMap<String, CachedLookup>,
    /// Lookups that have not ended.
    running: BTreeMap<String, watch::Receiver<Option<LookupResult>>>,
    /// Lookups in progress, per caller.
    running_of: Counts,
    turns: BTreeMap<LookupCaller, Weak<Semaphore>>,
    /// The second that misses are counted in.
    second: u64,
    misses: Counts,
}

#[derive(Debug)]
pub(crate) struct AdapterLookups {
    state: Mutex<LookupState>,
    sources: Arc<Sources>,
    in_folders: Semaphore,
    in_buckets: Semaphore,
}

impl AdapterLookups {
    pub fn new(sources: Arc<Sources>) -> AdapterLookups {
        AdapterLookups {
            state: Mutex::default(),
            sources,
            in_folders: Semaphore::new(AT_ONCE),
            in_buckets: Semaphore::new(AT_ONCE),
        }
    }

    /// The adapter `name`, if the model finds adapters by name and the files can be loaded.
    pub async fn find(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        name: &str,
        caller: &LookupCaller,
        now: impl Fn() -> Time + Send + 'static,
    ) -> LookupResult {
        if let Some(known) = self.kept(name, now()) {
            return known;
        }
        let Some(dynamic) = &entry.dynamic_adapters else {
            return Err(AdapterError::Unknown {
                name: name.to_owned(),
            });
        };
        let within = Duration::from_millis(dynamic.timeout.0);
        let mut ended = self.begin(entry, name, caller, now)?;
        match tokio::time::timeout(within, ended.wait_for(Option::is_some)).await {
            Ok(Ok(result)) => result.clone().unwrap_or_else(|| Err(lost(name))),
            Ok(Err(_)) => Err(lost(name)),
            Err(_) => Err(AdapterError::NotNow {
                message: match &dynamic.place {
                    AdapterPlace::Folder(_) => {
                        format!(
                            "the adapter {name} could not be read within {} s",
                            within.as_secs()
                        )
                    }
                    AdapterPlace::Bucket(_) => {
                        format!(
                            "the adapter {name} is being fetched, which takes longer than {} s (lora_config.download_timeout_s)",
                            within.as_secs()
                        )
                    }
                },
                retry: MISSED_FOR,
            }),
        }
    }

    /// Joins the lookup of this name, or starts one.
    #[expect(
        clippy::disallowed_methods,
        reason = "a fetch continues for later requests after the first has left; it is bounded in number and time"
    )]
    fn begin(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        name: &str,
        caller: &LookupCaller,
        now: impl Fn() -> Time + Send + 'static,
    ) -> Result<watch::Receiver<Option<LookupResult>>, AdapterError> {
        let joined = self.state().running.get(name).cloned();
        // The sender of a lookup that panicked is closed.
        if let Some(joined) = joined.filter(|joined| joined.has_changed().is_ok()) {
            return Ok(joined);
        }
        let Some(is_counted) = self.count_miss(name, caller, now()) else {
            return Err(AdapterError::NotNow {
                message: format!(
                    "all users together may name {ADAPTER_MISSES_MAX} unknown adapters per second, and this caller's share is used up"
                ),
                retry: Span(1000),
            });
        };
        let (sender, ended) = watch::channel(None);
        {
            let mut state = self.state();
            state
                .running
                .retain(|_, lookup| lookup.has_changed().is_ok());
            if !state.running_of.take(caller, ADAPTER_LOOKUPS_MAX) {
                return Err(AdapterError::NotNow {
                    message: format!(
                        "all users together may look for {ADAPTER_LOOKUPS_MAX} adapters at a time, and this caller's share is used up"
                    ),
                    retry: MISSED_FOR,
                });
            }
            state.running.insert(name.to_owned(), ended.clone());
        }
        let (own, entry, name) = (Arc::clone(self), Arc::clone(entry), name.to_owned());
        let running = LookupGuard {
            lookups: Arc::clone(self),
            caller: caller.clone(),
        };
        tokio::spawn(async move {
            let turn = own.turn(&running.caller);
            let looked = async {
                let Ok(_turn) = turn.acquire().await else {
                    return Err(lost(&name));
                };
                own.look(&entry, &name).await
            };
            let looked = tokio::time::timeout(FETCH_MAX, looked).await;
            let result = looked.unwrap_or_else(|_| {
                Err(AdapterError::Unreachable {
                    name: name.clone(),
                    problem: format!("it took longer than {} s", FETCH_MAX.as_secs()),
                    retry: MISSED_FOR,
                })
            });
            if is_counted && result.is_ok() {
                own.uncount_miss(&running.caller);
            }
            drop(running);
            own.keep(&name, &entry, result.clone(), now());
            let _ = sender.send(Some(result));
        });
        Ok(ended)
    }

    async fn look(self: &Arc<Self>, entry: &Arc<Entry>, name: &str) -> LookupResult {
        let unknown = || AdapterError::Unknown {
            name: name.to_owned(),
        };
        let (Some(dynamic), Some(id)) = (&entry.dynamic_adapters, entry.adapter_id(name)) else {
            return Err(unknown());
        };
        let at_once = match &dynamic.place {
            AdapterPlace::Folder(_) => &self.in_folders,
            AdapterPlace::Bucket(_) => &self.in_buckets,
        };
        let Ok(_permit) = at_once.acquire().await else {
            return Err(lost(name));
        };
        let place = &dynamic.place;
        let found = match place {
            AdapterPlace::Folder(_) => {
                let (entry, owned) = (Arc::clone(entry), name.to_owned());
                let looked = tokio::task::spawn_blocking(move || look_in_folder(&entry, &owned));
                looked.await.unwrap_or_else(|_| Err(lost(name)))
            }
            AdapterPlace::Bucket(bucket) => {
                adapter_fetch::look(&self.sources, dynamic, bucket, (name, id)).await
            }
        };
        found?.map(Arc::new).ok_or_else(unknown)
    }

    /// Existing adapters of this model that requests have named recently.
    pub fn known(&self, base: &str, now: Time) -> Vec<String> {
        let state = self.state();
        let known = state.looked.iter().filter(|(_, kept)| {
            kept.base == base && kept.result.is_ok() && now.since(kept.at) <= KNOWN_FOR
        });
        known.map(|(name, _)| name.clone()).collect()
    }

    fn kept(&self, name: &str, now: Time) -> Option<LookupResult> {
        let state = self.state();
        let kept = state.looked.get(name)?;
        (now.since(kept.at) < kept.fresh).then(|| kept.result.clone())
    }

    /// Counts a name as a possible miss before the lookup starts, which bounds concurrent misses too. Returns `Some(false)` if the
    /// adapter is known to exist and was not counted, so invented names do not block requests for it; `None` if too many names were
    /// missed within this second.
    fn count_miss(&self, name: &str, caller: &LookupCaller, now: Time) -> Option<bool> {
        let mut state = self.state();
        if state
            .looked
            .get(name)
            .is_some_and(|known| known.result.is_ok())
        {
            return Some(false);
        }
        if state.second != now.0 / 1000 {
            state.second = now.0 / 1000;
            state.misses = Counts::default();
        }
        let has_room = state.misses.take(caller, ADAPTER_MISSES_MAX);
        has_room.then_some(true)
    }

    /// The semaphore that limits a caller's concurrent lookups.
    fn turn(&self, caller: &LookupCaller) -> Arc<Semaphore> {
        let mut state = self.state();
        if let Some(known) = state.turns.get(caller).and_then(Weak::upgrade) {
            return known;
        }
        state.turns.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(AT_ONCE_OF_ONE));
        state.turns.insert(caller.clone(), Arc::downgrade(&turns));
        turns
    }

    /// Takes back a counted miss whose adapter was found.
    fn uncount_miss(&self, caller: &LookupCaller) {
        self.state().misses.give_back(caller);
    }

    fn keep(&self, name: &str, entry: &Entry, result: LookupResult, now: Time) {
        let place = entry
            .dynamic_adapters
            .as_ref()
            .map(|adapters| &adapters.place);
        let kept = CachedLookup {
            at: now,
            base: entry.name.clone(),
            fresh: match (&result, place) {
                (Err(_), _) => MISSED_FOR,
                (Ok(_), Some(AdapterPlace::Bucket(_))) => FRESH_FROM_BUCKET,
                (Ok(_), _) => FRESH,
            },
            result,
        };
        let mut state = self.state();
        state.running.remove(name);
        state.looked.insert(name.to_owned(), kept);
        if state.looked.len() > KEPT_MAX {
            // A miss counts for seconds; a found adapter stays listed as known.
            let rank = |kept: &CachedLookup| (kept.result.is_ok(), kept.at);
            let oldest = state.looked.iter().min_by_key(|(_, kept)| rank(kept));
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| state.looked.remove(&name));
        }
    }

    fn state(&self) -> MutexGuard<'_, LookupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(name: &str) -> AdapterError {
    AdapterError::Unusable {
        name: name.to_owned(),
        problem: "its files could not be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapter_misses_are_limited_per_caller_and_hits_are_returned() {
        let sources = Sources::new(source::Settings {
            hub: String::new(),
            offline: true,
            files_at_once: 1,
            models_at_once: 1,
            keep_free: 0,
            pause: Duration::ZERO,
        });
        let lookups = AdapterLookups::new(Arc::new(sources));
        let caller = |name: &str| LookupCaller(name.to_owned());
        let counted = |now: u64| lookups.count_miss("base:nobody:1", &caller("ann"), Time(now));
        let mut room = 0;
        while counted(5_000).is_some() {
            room += 1;
        }
        assert!(room < ADAPTER_MISSES_MAX, "{room} are all of them");
        assert_eq!(counted(5_999), None);
        let other = lookups.count_miss("base:nobody:2", &caller("ben"), Time(5_999));
        assert_eq!(other, Some(true), "another user");
        assert_eq!(counted(6_000), Some(true), "another second");
        for _ in 0..2 * ADAPTER_MISSES_MAX {
            lookups.uncount_miss(&caller("ann"));
            assert_eq!(counted(6_500), Some(true));
        }
    }
}
