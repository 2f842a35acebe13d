//! The virtual models of the configuration and of administrators. The table is made again after a reload or a change, at its next
//! use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::table::{Table, VirtualModel};
use config::{Config, VirtualModelsSection};
use store::{Store, StoreError};

#[derive(Debug, Default)]
pub struct VirtualModels {
    made: ArcSwap<Made>,
    /// The virtual models that administrators have set, which are stored.
    kept: ArcSwap<VirtualModelsSection>,
    /// Serializes changes by administrators.
    changes: tokio::sync::Mutex<()>,
    /// Requests without a conversation, which a split divides by their number.
    requests: AtomicU64,
}

/// A table with its sources.
#[derive(Debug, Default)]
struct Made {
    config: Option<Arc<Config>>,
    kept: Arc<VirtualModelsSection>,
    table: Arc<Table>,
}

impl VirtualModels {
    /// Reads the virtual models of administrators. Leaves out what this version cannot read.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn load(&self, store: &Store) -> Result<(), StoreError> {
        self.set_kept(parsed(&store.virtual_models().await?));
        Ok(())
    }

    pub fn kept(&self) -> VirtualModelsSection {
        VirtualModelsSection::clone(&self.kept.load())
    }

    pub(crate) fn set_kept(&self, kept: VirtualModelsSection) {
        self.kept.store(Arc::new(kept));
    }

    pub(crate) fn changes(&self) -> &tokio::sync::Mutex<()> {
        &self.changes
    }

    /// The virtual models in force with this configuration.
    pub fn table(&self, config: &Arc<Config>) -> Arc<Table> {
        let made = self.made.load();
        let kept = self.kept.load();
        let is_of_config = made
            .config
            .as_ref()
            .is_some_and(|of| Arc::ptr_eq(of, config));
        if is_of_config && Arc::ptr_eq(&made.kept, &kept) {
            return Arc::clone(&made.table);
        }
        let (table, warnings) = Table::new(&config.virtual_models, &kept);
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let table = Arc::new(table);
        self.made.store(Arc::new(Made {
            config: Some(Arc::clone(config)),
            kept: Arc::clone(&kept),
            table: Arc::clone(&table),
        }));
        table
    }

    /// The virtual model of this name. A model or alias of the same name takes precedence.
    pub fn named(&self, config: &Arc<Config>, name: &str) -> Option<Arc<VirtualModel>> {
        self.table(config).models.get(name).cloned()
    }

    /// A number that differs for each request.
    pub(crate) fn next_number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }
}

fn parsed(stored: &BTreeMap<String, String>) -> VirtualModelsSection {
    let mut kept = VirtualModelsSection::new();
    for (name, text) in stored {
        match reading::json(text) {
            Ok(model) => drop(kept.insert(name.clone(), model)),
            Err(error) => {
                tracing::error!(
                    "the stored virtual model {name} cannot be read and is left out: {error}"
                );
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Arc<Config> {
        Arc::new(reading::yaml(text).expect("a configuration"))
    }

    #[test]
    fn the_table_is_made_again_after_a_reload_and_after_a_change() {
        let all = VirtualModels::default();
        let first = config("virtual_models: {a: {any_of: [m]}}");
        let table = all.table(&first);
        assert!(Arc::ptr_eq(&table, &all.table(&first)));
        let second = config("virtual_models: {b: {fallback: [m, n]}}");
        assert!(all.named(&second, "a").is_none());
        assert!(all.named(&second, "b").is_some());
        assert!(all.table(&second).has_fallback);
        all.set_kept(reading::yaml("b: {split: {m: 1, n: 2}}").expect("virtual models"));
        assert_eq!(all.named(&second, "b").expect("kept").kind(), "split");
        assert!(!all.table(&second).has_fallback);
    }

    #[test]
    fn a_stored_virtual_model_of_another_version_is_left_out() {
        let stored = [("a", r#"{"any_of":["m"]}"#), ("b", r#"{"new_rule":["m"]}"#)];
        let stored = stored.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let read = parsed(&BTreeMap::from(stored));
        assert_eq!(read.keys().collect::<Vec<_>>(), ["a"]);
    }
}
