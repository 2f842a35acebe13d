//! The models that the pool knows: their numbers and facts, and the changes of the catalogue that wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::message::Message;
use super::snapshot::ModelFacts;
use pool::ModelId;

#[derive(Default)]
pub(super) struct Models {
    pub ids: BTreeMap<String, ModelId>,
    pub facts: Arc<BTreeMap<ModelId, ModelFacts>>,
    /// Changes of the catalogue, in the order in which they came.
    pub changes: VecDeque<Message>,
    /// Whether one is being worked out.
    pub changing: bool,
}

impl Models {
    /// The number of a name, a new one for a new name.
    pub fn id(&mut self, name: &str) -> ModelId {
        if let Some(&known) = self.ids.get(name) {
            return known;
        }
        let fresh = ModelId(u32::try_from(self.ids.len()).unwrap_or(u32::MAX));
        self.ids.insert(name.to_owned(), fresh);
        fresh
    }

    pub fn name(&self, model: ModelId) -> String {
        self.facts
            .get(&model)
            .map_or_else(|| model.to_string(), |facts| facts.entry.name.clone())
    }

    /// Marks of the files that models were figured from, by name.
    pub fn files_marks(&self) -> BTreeMap<String, u64> {
        let facts = self.facts.values();
        facts
            .map(|facts| (facts.entry.name.clone(), facts.files_mark))
            .collect()
    }

    /// What a model's engine is started with; empty for an unknown model.
    pub fn arguments(&self, model: ModelId) -> String {
        let facts = self.facts.get(&model);
        facts.map_or_else(String::new, ModelFacts::arguments)
    }
}
