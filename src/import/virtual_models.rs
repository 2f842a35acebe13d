//! The virtual models of an import: each is checked before it becomes part of the configuration.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::notes::Notes;
use config::{VirtualModelSection, VirtualModelsSection, virtual_models};

/// The virtual models that were translated so far.
#[derive(Debug, Default)]
pub(crate) struct VirtualModels(VirtualModelsSection);

impl VirtualModels {
    /// Adds a virtual model, or warns of the reason why it cannot be used. `key` is its place in the imported file.
    pub fn add(&mut self, key: &str, name: &str, model: VirtualModelSection, notes: &mut Notes) {
        let one = BTreeMap::from([(name.to_owned(), model)]);
        if let Some(problem) = virtual_models::problems(&one).first() {
            notes.warn(key, format!("was left out: {problem}"));
            return;
        }
        self.0.extend(one);
    }

    /// Adds the section to the configuration if it has virtual models.
    pub fn write(&self, settings: &mut Map<String, Value>) {
        if !self.0.is_empty() {
            // Plain data with text keys is always valid JSON.
            let section = serde_json::to_value(&self.0).unwrap_or_default();
            settings.insert("virtual_models".to_owned(), section);
        }
    }
}
