//! One model of the catalogue: a document that has been read and checked against the reference and the configuration. Every error
//! names its key; keys without effect cause warnings. `engine_config` defines how the engine is started.

mod checks;
mod conversion;
mod settings;
mod start;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use config::{Config, IdleProbe, KeepHot, MaxTurn, MinResident, UnknownFields};
use pool::{Bytes, NodeSpan, Priority, Scaling, Span};

use super::reference::Reference;
use crate::documents::{
    CatalogError, DeviceConstraint, Diagnostics, LoraAdapter, ModelDocument, Source, Validation,
    Warning,
};
use crate::engines::Parking;
use crate::forms::document;
use crate::recipes::Recipe;
use crate::requests::Generation;
use crate::weights::{DynamicAdapters, Fetch};

/// The source of a model's own priority (P1).
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

/// A model. Durations that are `None` use the pool's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub aliases: Vec<String>,
    /// Names of the LoRA adapters that its engine serves.
    pub adapters: Vec<String>,
    pub source: Source,
    pub recipe: Recipe,
    /// Weights that the pool fetches for the model.
    pub fetch: Option<Fetch>,
    pub priority: Priority,
    pub priority_from: PriorityFrom,
    /// At least 1: the configured number, or else 1.
    pub devices_per_replica: u32,
    /// The number set by the model's file, the reference or the command itself.
    pub devices_configured: Option<u32>,
    /// The nodes over which the devices of a replica are spread (M8).
    pub nodes: NodeSpan,
    /// Restricts the devices that the model may use.
    pub devices: DeviceConstraint,
    /// Adapters that are found by name.
    pub dynamic_adapters: Option<DynamicAdapters>,
    /// Simultaneous requests per replica; at least 1.
    pub seats_per_replica: u32,
    /// The sleep mode, if its file sets one.
    pub parking: Option<&'static Parking>,
    /// An administrator's memory figure for one replica, on all its devices together.
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
    /// Limits and targets for scaling by requests.
    pub scaling: Option<Scaling>,
    /// Settings added to the model's requests.
    pub generation: Generation,
    /// The same for adapters with separate settings.
    pub adapter_generation: BTreeMap<String, Generation>,
    /// Handling of request fields that the engine is not known to support.
    pub unknown_fields: UnknownFields,
    /// If true, non-streaming requests reach the engine without `stream`. `None` uses the default of the engine's kind.
    pub plain_requests: Option<bool>,
    /// Conditions for the text of users.
    pub validation: Option<Validation>,
    document: ModelDocument,
}

impl Entry {
    /// Returns the engine's name for an adapter of this model. For adapters found by name, this is any name that may be an adapter.
    pub fn adapter<'a>(&self, name: &'a str) -> Option<&'a str> {
        let is_one = self.adapters.iter().any(|known| known == name);
        (is_one || self.adapter_id(name).is_some()).then_some(name)
    }

    /// The `suffix:id` of a name that may be an adapter found by name.
    pub fn adapter_id<'a>(&self, name: &'a str) -> Option<&'a str> {
        self.dynamic_adapters.as_ref()?.id_of(&self.name, name)
    }

    /// The settings added to requests with this name: the model's, an alias, or an adapter.
    pub fn generation_of(&self, name: &str) -> &Generation {
        let own = self.adapter_generation.get(name);
        own.unwrap_or(&self.generation)
    }

    /// Reads a document from the API or the store. The warnings name every key without effect.
    pub fn from_document(
        document: &Value,
        source: Source,
        config: &Config,
        reference: &Reference,
    ) -> Result<(Entry, Vec<Warning>), CatalogError> {
        let mut notes = Diagnostics::for_source(&source);
        notes.is_strict = config.catalog.strict;
        let read = document::typed(document.clone(), None, &mut notes)?;
        let Some(read) = read else {
            return Err(notes.refuse("enabled", "is false; leave the model out instead"));
        };
        let entry = Entry::from_read(read, source, &mut notes, config, reference)?;
        Ok((entry, notes.warnings))
    }

    /// The document that this entry was read from; it reads back to an equal entry. It contains the values of `engine_config.env`
    /// in clear text: keep it in the store, and out of responses.
    pub fn to_document(&self) -> Value {
        // Plain data with text keys is always valid JSON.
        serde_json::to_value(&self.document).unwrap_or(Value::Null)
    }

    pub(crate) fn document(&self) -> &ModelDocument {
        &self.document
    }

    /// The same model with an additional adapter.
    pub(crate) fn with_adapter(
        &self,
        adapter: &LoraAdapter,
        config: &Config,
        reference: &Reference,
    ) -> Result<Entry, CatalogError> {
        let mut document = self.document.clone();
        document.engine_config.lora_adapters.push(adapter.clone());
        let mut notes = Diagnostics::for_source(&self.source);
        Entry::from_read(document, self.source.clone(), &mut notes, config, reference)
    }

    /// The document's key for the model's path or name.
    pub(crate) fn path_key(&self) -> String {
        let key = match self.document.engine_config.model_path {
            Some(_) => "model_path",
            None => "hf_model_id",
        };
        format!("engine_config.{key}")
    }

    /// The model's local `tokenizer.json`. Blocking: accesses the file system.
    pub fn tokenizer_file(&self) -> Option<PathBuf> {
        let path = self.weights_path()?;
        let folder = if path.is_dir() { &path } else { path.parent()? };
        Some(folder.join("tokenizer.json")).filter(|file| file.is_file())
    }

    /// Checks that tokens can be counted, now or after the weights have been fetched.
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
