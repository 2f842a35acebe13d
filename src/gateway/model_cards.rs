//! A cache of model cards, keyed by the modification time of the model's files. Listing models does not read unchanged files again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use api_types::error::Failure;
use catalog::{Entry, ModelCard};
use edge::record;
use edge::shares::{Capacity, Class, Shares};
use pool::Time;

/// Largest number of concurrent readers, which limits the threads blocked by a disk that does not respond.
pub const CARD_READERS: u64 = 2;

/// Cards by a model's file or folder, with its modification time.
type Known = BTreeMap<PathBuf, (SystemTime, Arc<ModelCard>)>;

#[derive(Debug)]
pub struct Cards {
    known: Mutex<Known>,
    turns: Arc<Shares>,
}

impl Default for Cards {
    fn default() -> Cards {
        Cards {
            known: Mutex::default(),
            turns: Shares::new(Capacity::in_turns(CARD_READERS)),
        }
    }
}

impl Cards {
    /// Runs `read` on a thread that may block.
    pub async fn read<T: Send + 'static>(
        self: Arc<Self>,
        read: impl FnOnce(&Cards) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (caller, _) = record::caller();
        let turn = self.turns.hold(caller, Class::Small, 1, Time(0)).await;
        let work = move || {
            let read = read(&self);
            drop(turn);
            read
        };
        let worked = tokio::task::spawn_blocking(work).await;
        worked.map_err(|error| {
            tracing::error!(%error, "the files of models could not be read");
            Failure::internal("the model files could not be read; see the server log")
        })
    }

    /// Returns the card of a model whose files are on this machine. Blocks on the file system.
    pub fn card(&self, entry: &Entry) -> Arc<ModelCard> {
        let path = entry.weights_path();
        path.and_then(|path| self.at(&path)).unwrap_or_default()
    }

    fn at(&self, path: &Path) -> Option<Arc<ModelCard>> {
        let changed = std::fs::metadata(path).ok()?.modified().ok()?;
        if let Some((at, card)) = self.known().get(path)
            && *at == changed
        {
            return Some(Arc::clone(card));
        }
        // The lock is not held while the files are read.
        let card = Arc::new(ModelCard::read(path));
        let row = (changed, Arc::clone(&card));
        self.known().insert(path.to_owned(), row);
        Some(card)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the cards of models that have left the catalogue.
    pub fn keep(&self, entries: &[Arc<Entry>]) {
        let paths = entries.iter().filter_map(|entry| entry.weights_path());
        let paths: BTreeSet<PathBuf> = paths.collect();
        self.known().retain(|path, _| paths.contains(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_card_is_reloaded_after_its_folder_changes() {
        let folder = tempfile::tempdir().unwrap();
        let cards = Cards::default();
        let config = folder.path().join("config.json");
        assert_eq!(cards.at(folder.path()).unwrap().quantization, None);
        std::fs::write(&config, r#"{"torch_dtype": "float16"}"#).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        let opened = std::fs::File::open(folder.path()).unwrap();
        opened.set_modified(later).unwrap();
        let card = cards.at(folder.path()).unwrap();
        assert_eq!(card.quantization.as_deref(), Some("F16"));
        assert!(Arc::ptr_eq(&card, &cards.at(folder.path()).unwrap()));
        cards.keep(&[]);
        assert!(!Arc::ptr_eq(&card, &cards.at(folder.path()).unwrap()));
    }
}
