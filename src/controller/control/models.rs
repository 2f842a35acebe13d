//! The models that the pool knows, with their numbers and facts, and the pending changes of the catalogue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::messages::Message;
use crate::view::ModelFacts;
use catalog::{Entry, Warning};
use pool::{ModelId, ModelView};

#[derive(Default)]
pub(crate) struct Models {
    ids: BTreeMap<String, ModelId>,
    facts: Arc<BTreeMap<ModelId, ModelFacts>>,
    /// Changes of the catalogue, in order of arrival.
    changes: VecDeque<Message>,
    /// A change is being computed.
    changing: bool,
}

impl Models {
    /// The number of the model `name`. Assigns a new one to a new name.
    pub fn id(&mut self, name: &str) -> ModelId {
        if let Some(&known) = self.ids.get(name) {
            return known;
        }
        let fresh = ModelId(u32::try_from(self.ids.len()).unwrap_or(u32::MAX));
        self.ids.insert(name.to_owned(), fresh);
        fresh
    }

    pub fn ids(&self) -> &BTreeMap<String, ModelId> {
        &self.ids
    }

    /// The number of a known model.
    pub fn find(&self, name: &str) -> Option<ModelId> {
        self.ids.get(name).copied()
    }

    /// The facts of all models in the catalogue, for readers.
    pub fn facts(&self) -> &Arc<BTreeMap<ModelId, ModelFacts>> {
        &self.facts
    }

    pub fn replace(&mut self, facts: BTreeMap<ModelId, ModelFacts>) {
        self.facts = Arc::new(facts);
    }

    pub fn get(&self, model: ModelId) -> Option<&ModelFacts> {
        self.facts.get(&model)
    }

    pub fn entry(&self, model: ModelId) -> Option<Arc<Entry>> {
        self.get(model).map(|facts| Arc::clone(&facts.entry))
    }

    /// Sets the fingerprint of a model's weights. Returns the facts if it has changed.
    pub fn set_weights(&mut self, model: ModelId, found: u64) -> Option<&ModelFacts> {
        let facts = Arc::make_mut(&mut self.facts).get_mut(&model)?;
        let before = facts.weights.replace(found);
        (before != Some(found)).then_some(facts)
    }

    /// The names of the models that run on devices of the pool.
    pub fn local(&self) -> Vec<String> {
        let local = self.facts.values();
        let local = local.filter(|facts| !facts.entry.recipe.is_remote());
        local.map(|facts| facts.entry.name.clone()).collect()
    }

    /// Warnings about weights on this machine that were damaged at the last check.
    pub fn damaged(&self, models: &[ModelView]) -> Vec<Warning> {
        let damaged = models.iter().filter_map(|model| {
            Some(Warning {
                origin: self.get(model.model)?.entry.source.to_string(),
                line: None,
                key: None,
                message: model.damage.clone()?,
            })
        });
        damaged.collect()
    }

    /// Adds a change of the catalogue after all earlier ones.
    pub fn queue(&mut self, change: Message) {
        self.changes.push_back(change);
    }

    pub fn has_queued(&self, is_it: impl Fn(&Message) -> bool) -> bool {
        self.changes.iter().any(is_it)
    }

    /// The next change, unless one is being computed: two changes never start from the same catalogue.
    pub fn begin_change(&mut self) -> Option<Message> {
        if self.changing {
            return None;
        }
        let change = self.changes.pop_front();
        self.changing = change.is_some();
        change
    }

    pub fn end_change(&mut self) {
        self.changing = false;
    }

    pub fn name(&self, model: ModelId) -> String {
        self.facts
            .get(&model)
            .map_or_else(|| model.to_string(), |facts| facts.entry.name.clone())
    }

    /// Fingerprints of the files that figures were computed from, by model name.
    pub fn files_marks(&self) -> BTreeMap<String, u64> {
        let facts = self.facts.values();
        facts
            .map(|facts| (facts.entry.name.clone(), facts.files_mark))
            .collect()
    }

    /// The arguments that a model's engine is started with; empty for an unknown model.
    pub fn arguments(&self, model: ModelId) -> String {
        let facts = self.facts.get(&model);
        facts.map_or_else(String::new, ModelFacts::arguments)
    }
}
