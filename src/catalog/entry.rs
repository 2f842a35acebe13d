//! One model of the catalogue: a document, read and checked against the reference and the
//! configuration. Every mistake is refused with the key that holds it; whatever has no effect is
//! a warning. How the engine is started is made in `engine_config`.

mod checks;
mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use config::{Config, IdleProbe, KeepHot, MaxTurn, MinResident, UnknownFields};
use pool::{Bytes, Priority, Scaling, Span};

use super::adapter_names::DynamicAdapters;
use super::constraint::DeviceConstraint;
use super::diagnostics::Diagnostics;
use super::engines::Parking;
use super::entry_source::Source;
use super::generation::Generation;
use super::model_file::{LoraAdapter, ModelDocument};
use super::recipe::Recipe;
use super::reference::Reference;
use super::validation::Validation;
use super::weights::Fetch;
use super::{CatalogError, Warning, document};

/// Which of the places of P1 a model's own priority was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityFrom {
    File,
    Reference,
    Default,
}

impl PriorityFrom {
    pub fn name(self) -> &'static str {
        match self {
            PriorityFrom::File => "file",
            PriorityFrom::Reference => "reference",
            PriorityFrom::Default => "default",
        }
    }
}

/// One model. Times that are `None` are the pool's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub aliases: Vec<String>,
    /// Names of LoRA adapters that its engine serves beside it.
    pub adapters: Vec<String>,
    pub source: Source,
    pub recipe: Recipe,
    /// What the pool fetches for it.
    pub fetch: Option<Fetch>,
    pub priority: Priority,
    pub priority_from: PriorityFrom,
    /// At least 1: the configured number, or else 1.
    pub devices_per_replica: u32,
    /// What the model's file, the reference or the command itself says of it, if anything does.
    pub devices_configured: Option<u32>,
    /// The only devices it may use.
    pub devices: DeviceConstraint,
    /// Adapters that are looked for by their names.
    pub dynamic_adapters: Option<DynamicAdapters>,
    /// Requests that one replica takes at once; at least 1.
    pub seats_per_replica: u32,
    /// How it sleeps, if its file says so.
    pub parking: Option<&'static Parking>,
    /// An administrator's figure for one replica, on all its devices together.
    pub memory: Option<Bytes>,
    pub keep_hot: Option<KeepHot>,
    pub min_resident: Option<MinResident>,
    pub max_turn: Option<MaxTurn>,
    pub queue_limit: Option<u32>,
    pub queue_timeout: Option<Span>,
    pub load_deadline: Option<Span>,
    pub stop_grace: Option<Span>,
    pub stall_after: Option<Span>,
    pub first_token_after: Option<Span>,
    pub idle_probe: Option<IdleProbe>,
    pub labels: BTreeMap<String, String>,
    /// How it grows with its requests.
    pub scaling: Option<Scaling>,
    /// What is added to its requests.
    pub generation: Generation,
    /// The same of adapters that have their own.
    pub adapter_generation: BTreeMap<String, Generation>,
    /// Handling of request fields that the engine is not known to support.
    pub unknown_fields: UnknownFields,
    /// If true, non-streaming requests reach the engine without `stream`. `None` uses the default of the engine's kind.
    pub plain_requests: Option<bool>,
    /// What texts of users must be.
    pub validation: Option<Validation>,
    document: ModelDocument,
}

impl Entry {
    /// The name that its engine knows an adapter by, if this is one of its.
    /// Of those that are looked for it is whatever may be one.
    pub fn adapter<'a>(&self, name: &'a str) -> Option<&'a str> {
        let is_one = self.adapters.iter().any(|known| known == name);
        (is_one || self.adapter_id(name).is_some()).then_some(name)
    }

    /// The `suffix:id` of a name that may be one of its adapters that are looked for.
    pub fn adapter_id<'a>(&self, name: &'a str) -> Option<&'a str> {
        self.dynamic_adapters.as_ref()?.id_of(&self.name, name)
    }

    /// What is added to requests that have this name: the model's, an alias, or an adapter.
    pub fn generation_of(&self, name: &str) -> &Generation {
        let own = self.adapter_generation.get(name);
        own.unwrap_or(&self.generation)
    }

    /// Reads a document that came over the API or from the store. The warnings name every key
    /// that has no effect.
    pub fn from_document(
        document: &Value,
        source: Source,
        config: &Config,
        reference: &Reference,
    ) -> Result<(Entry, Vec<Warning>), CatalogError> {
        let mut notes = Diagnostics::of(&source);
        notes.is_strict = config.catalog.strict;
        let read = document::typed(document.clone(), None, &mut notes)?;
        let Some(read) = read else {
            return Err(notes.refuse("enabled", "is false; leave the model out instead"));
        };
        let entry = Entry::from_read(read, source, &mut notes, config, reference)?;
        Ok((entry, notes.warnings))
    }

    /// The document that this entry was read from; reads back to an equal entry. It holds the
    /// values of `engine_config.env` in clear: for the store, not for answers.
    pub fn to_document(&self) -> Value {
        // Plain data with text keys: there is nothing in it that JSON cannot hold.
        serde_json::to_value(&self.document).unwrap_or(Value::Null)
    }

    pub(super) fn document(&self) -> &ModelDocument {
        &self.document
    }

    /// The same model with one more adapter.
    pub(super) fn with_adapter(
        &self,
        adapter: &LoraAdapter,
        config: &Config,
        reference: &Reference,
    ) -> Result<Entry, CatalogError> {
        let mut document = self.document.clone();
        document.engine_config.lora_adapters.push(adapter.clone());
        let mut notes = Diagnostics::of(&self.source);
        Entry::from_read(document, self.source.clone(), &mut notes, config, reference)
    }

    /// The key of its document that names the model.
    pub(super) fn path_key(&self) -> String {
        let key = match self.document.engine_config.model_path {
            Some(_) => "model_path",
            None => "hf_model_id",
        };
        format!("engine_config.{key}")
    }

    /// The model's `tokenizer.json` on this machine. Blocking: looks for it.
    pub fn tokenizer_file(&self) -> Option<PathBuf> {
        let path = self.weights_path()?;
        let folder = if path.is_dir() { &path } else { path.parent()? };
        Some(folder.join("tokenizer.json")).filter(|file| file.is_file())
    }

    /// Whether its tokens can be counted, now or once its weights have been fetched.
    fn can_count_tokens(&self) -> Result<(), String> {
        match (self.tokenizer_file(), self.weights_path()) {
            (Some(_), _) => Ok(()),
            (None, _) if self.fetch.is_some() => Ok(()),
            (None, Some(path)) => Err(format!("there is no tokenizer.json in {}", path.display())),
            (None, None) => Err(format!(
                "the {} engine has no folder of the model on this machine with a tokenizer.json",
                self.recipe.engine()
            )),
        }
    }
}
