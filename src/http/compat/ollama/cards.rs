//! What the files of models say, kept for as long as they do not change: a list of models must not read them all each
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::error::Failure;
use catalog::{Entry, ModelCard};

/// Readers of files at a time; a disk that does not answer holds no more threads than this.
const TURNS: usize = 2;

/// By the file or folder of a model, with the time of its last change.
type Known = BTreeMap<PathBuf, (SystemTime, Arc<ModelCard>)>;

#[derive(Debug)]
pub(super) struct Cards {
    known: Mutex<Known>,
    turns: Arc<Semaphore>,
}

impl Default for Cards {
    fn default() -> Cards {
        Cards {
            known: Mutex::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }
}

impl Cards {
    /// Runs what reads cards on a thread that may block.
    pub async fn read<T: Send + 'static>(
        self: Arc<Self>,
        read: impl FnOnce(&Cards) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        // It is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        let work = move || {
            let read = read(&self);
            drop(turn);
            read
        };
        let worked = tokio::task::spawn_blocking(work).await;
        worked.map_err(|error| {
            tracing::error!(%error, "the files of models could not be read");
            Failure::internal("the models' files could not be read; the service's log says why")
        })
    }

    /// The card of a model whose files are on this machine. It blocks.
    pub fn of(&self, entry: &Entry) -> Arc<ModelCard> {
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
        // Others are not kept waiting while the files are read.
        let card = Arc::new(ModelCard::read(path));
        let row = (changed, Arc::clone(&card));
        self.known().insert(path.to_owned(), row);
        Some(card)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the files of models that have left the catalogue.
    pub fn keep(&self, entries: &[Arc<Entry>]) {
        let paths = entries.iter().filter_map(|it| it.weights_path());
        let paths: BTreeSet<PathBuf> = paths.collect();
        self.known().retain(|path, _| paths.contains(path));
    }
}

/// Ollama's `details`, with what is known. `parent`: the model that an adapter belongs to.
pub(super) fn details(card: &ModelCard, parent: &str) -> Value {
    let mut fields = Map::new();
    fields.insert("parent_model".to_owned(), json!(parent));
    for (name, value) in [
        ("format", card.format.map(|it| json!(it))),
        ("family", card.family.as_ref().map(|it| json!(it))),
        ("families", card.family.as_ref().map(|it| json!([it]))),
        (
            "parameter_size",
            card.parameters.map(|it| json!(short_count(it))),
        ),
        (
            "quantization_level",
            card.quantization.as_ref().map(|it| json!(it)),
        ),
    ] {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    }
    Value::Object(fields)
}

/// `8B`, `1.5B`, `134.52M`, `13K`.
fn short_count(count: u64) -> String {
    let number = count as f64;
    let (part, unit, digits) = match count {
        1_000_000_000.. => (number / 1e9, "B", 1),
        1_000_000.. => (number / 1e6, "M", 2),
        1_000.. => (number / 1e3, "K", 0),
        _ => return count.to_string(),
    };
    let digits = if part.fract() == 0.0 { 0 } else { digits };
    format!("{part:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_as_ollama_writes_them() {
        for (count, words) in [
            (999, "999"),
            (13_400, "13K"),
            (134_515_008, "134.52M"),
            (7_000_000, "7M"),
            (1_543_714_304, "1.5B"),
            (8_000_000_000, "8B"),
        ] {
            assert_eq!(short_count(count), words);
        }
    }

    #[test]
    fn a_card_is_read_again_when_its_folder_has_changed() {
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

    #[test]
    fn of_what_is_not_known_nothing_is_said() {
        assert_eq!(
            details(&ModelCard::default(), ""),
            json!({"parent_model": ""})
        );
    }
}
