//! Looks for adapters by their names below the paths of their base models, and checks them before any engine has to: the
//! rank, the base model, the size. What was found or not is kept for a few seconds, and who invents names is slowed down.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Semaphore;

use catalog::{AdapterFiles, DynamicAdapters, Entry};
use pool::{Bytes, FilesMark, Span, Time};

/// So long a result is kept, found or not.
const FRESH: Span = Span(1000);
const MISSED_FOR: Span = Span(3000);
/// Names that are kept; the one that was looked for longest ago goes first.
const KEPT_MAX: usize = 2000;
/// Listed as known for so long after its last request.
const KNOWN_FOR: Span = Span(600_000);
/// Names without an adapter that may be looked for within a second, by all users together.
const MISSES_MAX: u32 = 50;
/// Lookups at once: a disk that hangs holds no more threads.
const AT_ONCE: usize = 8;
/// Files of one adapter.
const FILES_MAX: usize = 1000;

/// An adapter that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterFound {
    pub name: String,
    /// The `suffix:id` of its name.
    pub id: String,
    pub folder: PathBuf,
    /// Changes with its files.
    pub mark: FilesMark,
    pub rank: u32,
    pub bytes: Bytes,
}

#[derive(Clone, Debug, Error)]
pub enum AdapterError {
    #[error("there is no adapter {name}")]
    Unknown { name: String },
    #[error("the adapter {name} cannot be used: {problem}")]
    Unusable { name: String, problem: String },
    #[error("{message}; ask again in {retry}")]
    NotNow { message: String, retry: Span },
}

#[derive(Debug)]
struct Looked {
    at: Time,
    base: String,
    result: Result<Arc<AdapterFound>, AdapterError>,
}

#[derive(Debug, Default)]
struct State {
    looked: BTreeMap<String, Looked>,
    /// The second that misses are counted in.
    second: u64,
    misses: u32,
}

#[derive(Debug)]
pub(super) struct AdapterLookups {
    state: Mutex<State>,
    at_once: Arc<Semaphore>,
}

impl Default for AdapterLookups {
    fn default() -> AdapterLookups {
        AdapterLookups {
            state: Mutex::default(),
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl AdapterLookups {
    /// The adapter of this name, if the model may have one of it and it can be loaded.
    pub async fn find(
        &self,
        entry: &Arc<Entry>,
        name: &str,
        now: impl Fn() -> Time,
    ) -> Result<Arc<AdapterFound>, AdapterError> {
        if let Some(known) = self.kept(name, now()) {
            return known;
        }
        let Some(is_counted) = self.count_miss(name, now()) else {
            return Err(AdapterError::NotNow {
                message: format!(
                    "{MISSES_MAX} requests within a second named adapters that are not there"
                ),
                retry: Span(1000),
            });
        };
        let within = entry
            .dynamic_adapters
            .as_ref()
            .map_or(Duration::ZERO, |it| Duration::from_millis(it.timeout.0));
        let looked = tokio::time::timeout(within, self.look(entry, name)).await;
        let result = looked.unwrap_or_else(|_| {
            Err(AdapterError::NotNow {
                message: format!(
                    "the adapter {name} could not be read within {} s",
                    within.as_secs()
                ),
                retry: MISSED_FOR,
            })
        });
        self.keep(name, entry, result.clone(), now());
        if is_counted && result.is_ok() {
            self.uncount_miss();
        }
        result
    }

    async fn look(
        &self,
        entry: &Arc<Entry>,
        name: &str,
    ) -> Result<Arc<AdapterFound>, AdapterError> {
        let busy = |_| AdapterError::NotNow {
            message: "the pool is ending".to_owned(),
            retry: MISSED_FOR,
        };
        let at_once = Arc::clone(&self.at_once);
        let permit = at_once.acquire_owned().await.map_err(busy)?;
        let (entry, owned) = (Arc::clone(entry), name.to_owned());
        let task = tokio::task::spawn_blocking(move || {
            // Held by the thread, which goes on when the request that waits for it has given up.
            let _permit = permit;
            look(&entry, &owned)
        });
        task.await
            .unwrap_or_else(|_| {
                Err(AdapterError::Unusable {
                    name: name.to_owned(),
                    problem: "its files could not be read".to_owned(),
                })
            })
            .map(Arc::new)
    }

    /// Adapters of this model that requests have named lately, and that are there.
    pub fn known(&self, base: &str, now: Time) -> Vec<String> {
        let state = self.state();
        let known = state.looked.iter().filter(|(_, it)| {
            it.base == base && it.result.is_ok() && now.since(it.at) <= KNOWN_FOR
        });
        known.map(|(name, _)| name.clone()).collect()
    }

    fn kept(&self, name: &str, now: Time) -> Option<Result<Arc<AdapterFound>, AdapterError>> {
        let state = self.state();
        let looked = state.looked.get(name)?;
        let fresh = match looked.result {
            Ok(_) => FRESH,
            Err(_) => MISSED_FOR,
        };
        (now.since(looked.at) < fresh).then(|| looked.result.clone())
    }

    /// Counts a name that may not be there before it is looked for, so that many at once are no more than the bound.
    /// `Some(false)`: it was there, and is not counted, so that invented names keep no request from what is there. `None`: there
    /// were too many within this second.
    fn count_miss(&self, name: &str, now: Time) -> Option<bool> {
        let mut state = self.state();
        if state.looked.get(name).is_some_and(|it| it.result.is_ok()) {
            return Some(false);
        }
        if state.second != now.0 / 1000 {
            state.second = now.0 / 1000;
            state.misses = 0;
        }
        state.misses += 1;
        (state.misses <= MISSES_MAX).then_some(true)
    }

    /// A name that was counted was there after all.
    fn uncount_miss(&self) {
        let mut state = self.state();
        state.misses = state.misses.saturating_sub(1);
    }

    fn keep(
        &self,
        name: &str,
        entry: &Entry,
        result: Result<Arc<AdapterFound>, AdapterError>,
        now: Time,
    ) {
        let mut state = self.state();
        let looked = Looked {
            at: now,
            base: entry.name.clone(),
            result,
        };
        state.looked.insert(name.to_owned(), looked);
        if state.looked.len() > KEPT_MAX {
            let oldest = state.looked.iter().min_by_key(|(_, it)| it.at);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| state.looked.remove(&name));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocking.
fn look(entry: &Entry, name: &str) -> Result<AdapterFound, AdapterError> {
    let unknown = || AdapterError::Unknown {
        name: name.to_owned(),
    };
    let (Some(dynamic), Some(id)) = (&entry.dynamic_adapters, entry.adapter_id(name)) else {
        return Err(unknown());
    };
    let root = &dynamic.folder;
    let mut folders = [root.join(name), root.join(id)].into_iter();
    let folder = folders.find(|it| it.is_dir()).ok_or_else(unknown)?;
    check(dynamic, &folder)
        .map(|(mark, rank, bytes)| AdapterFound {
            name: name.to_owned(),
            id: id.to_owned(),
            folder,
            mark,
            rank,
            bytes,
        })
        .map_err(|problem| AdapterError::Unusable {
            name: name.to_owned(),
            problem,
        })
}

fn check(dynamic: &DynamicAdapters, folder: &Path) -> Result<(FilesMark, u32, Bytes), String> {
    let (mark, bytes) = files_of(folder).map_err(|error| format!("its files: {error}"))?;
    if bytes > dynamic.bytes_max {
        return Err(format!(
            "its files take {bytes}, and at most {} are allowed (lora_config.max_adapter_gib)",
            dynamic.bytes_max
        ));
    }
    let files = AdapterFiles::read(folder).map_err(|error| {
        let text = error.to_string();
        // The message does not show where the pool keeps it.
        let folder = format!("{}/", folder.display());
        text.replace(&folder, "")
            .replace(folder.trim_end_matches('/'), "its folder")
    })?;
    let (rank, most) = (files.rank(), dynamic.room.rank);
    if rank > most {
        return Err(format!(
            "its rank is {rank}, and the engine has room for {most} (lora_config.max_lora_rank)"
        ));
    }
    match files.config.base.as_deref() {
        Some(base) if !dynamic.is_base(base) => Err(format!(
            "adapter_config.json says that it was trained for {}, and this model is {}; if that is the same, add the name to lora_config.base_models",
            base.escape_debug(),
            dynamic.bases.join(" or ")
        )),
        _ => Ok((mark, rank, bytes)),
    }
}

/// A mark of the files of a folder, and their size. No file is read.
fn files_of(folder: &Path) -> std::io::Result<(FilesMark, Bytes)> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        let about = std::fs::metadata(file.path())?;
        if about.is_file() {
            files.push((file.file_name(), about));
        }
        if files.len() > FILES_MAX {
            return Err(std::io::Error::other(format!("more than {FILES_MAX}")));
        }
    }
    files.sort_by(|one, other| one.0.cmp(&other.0));
    let mut hasher = DefaultHasher::new();
    let mut bytes = 0_u64;
    for (name, about) in &files {
        name.hash(&mut hasher);
        (about.len(), about.mtime(), about.mtime_nsec(), about.ino()).hash(&mut hasher);
        bytes = bytes.saturating_add(about.len());
    }
    Ok((hasher.finish(), Bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_before_they_are_looked_for_and_those_that_are_there_are_given_back() {
        let lookups = AdapterLookups::default();
        let counted = |now: u64| lookups.count_miss("base:nobody:1", Time(now));
        for _ in 0..MISSES_MAX {
            assert_eq!(
                counted(5_000),
                Some(true),
                "none of them has been looked for yet"
            );
        }
        assert_eq!(counted(5_999), None);
        assert_eq!(counted(6_000), Some(true), "another second");
        for _ in 0..2 * MISSES_MAX {
            lookups.uncount_miss();
            assert_eq!(counted(6_500), Some(true));
        }
    }
}
