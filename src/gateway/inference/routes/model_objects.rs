//! The entries of `GET /v1/models`: names, aliases and adapters, with the limits that clients read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::auth::User;
use crate::model_cards::Cards;
use crate::rayllm_names;
use crate::state::App;
use catalog::{Entry, ModelCard, ModelKind};

/// If the disk does not respond in time, the list is returned without these numbers.
const CARDS_WITHIN: Duration = Duration::from_millis(500);

/// An entry of the list.
#[derive(Clone, Default)]
pub(crate) struct ModelObject {
    pub name: String,
    /// Largest number of tokens in a sequence, if known.
    pub context: Option<u64>,
    trained_context: Option<u64>,
    kind: Option<ModelKind>,
    aliases: Vec<String>,
    /// The model behind an alias.
    root: Option<String>,
    /// The base model of an adapter.
    parent: Option<String>,
    /// The members of a virtual model that the user may use.
    members: Vec<String>,
}

impl ModelObject {
    fn new(user: &User, entry: &Entry, card: &ModelCard) -> ModelObject {
        let aliases = entry.aliases.iter().filter(|alias| user.sight.has(alias));
        ModelObject {
            name: entry.name.clone(),
            context: entry.context(card),
            trained_context: card.context,
            kind: entry.kind(card),
            aliases: aliases.cloned().collect(),
            ..ModelObject::default()
        }
    }

    /// The same model under another name.
    fn renamed(&self, name: &str) -> ModelObject {
        ModelObject {
            name: name.to_owned(),
            aliases: Vec::new(),
            ..self.clone()
        }
    }

    fn alias(&self, name: &str) -> ModelObject {
        ModelObject {
            root: Some(self.name.clone()),
            ..self.renamed(name)
        }
    }

    fn adapter(&self, name: &str) -> ModelObject {
        ModelObject {
            parent: Some(self.name.clone()),
            ..self.renamed(name)
        }
    }

    /// A virtual model with these members.
    fn of_members(name: &str, members: &[&ModelObject]) -> ModelObject {
        let kinds = members.iter().map(|member| member.kind);
        let mut kinds: Vec<Option<ModelKind>> = kinds.collect();
        kinds.dedup();
        ModelObject {
            name: name.to_owned(),
            // The length that each member accepts.
            context: members.iter().map(|member| member.context).min().flatten(),
            kind: kinds
                .first()
                .copied()
                .flatten()
                .filter(|_| kinds.len() == 1),
            members: members.iter().map(|member| member.name.clone()).collect(),
            ..ModelObject::default()
        }
    }

    /// The entry in OpenAI's form. The context length has the field names of vLLM, OpenRouter and llama.cpp. `created` is the start
    /// of the service, because the catalogue does not know the age of the weights.
    pub fn openai(&self, app: &App) -> Value {
        let mut object = json!({
            "id": self.name,
            "object": "model",
            "created": app.started_unix_seconds,
            "owned_by": "model-pool",
            "kind": self.kind.map(ModelKind::as_str),
            "aliases": self.aliases,
            "max_model_len": self.context,
            "context_length": self.context,
            "meta": {"n_ctx": self.context, "n_ctx_train": self.trained_context},
        });
        for (field, name) in [("root", &self.root), ("parent", &self.parent)] {
            if let Some(name) = name {
                object[field] = json!(name);
            }
        }
        if !self.members.is_empty() {
            object["members"] = json!(self.members);
        }
        rayllm_names::described(app, &self.name, object)
    }
}

/// The models that the user may use, each followed by its aliases and adapters, and then the virtual models.
pub(crate) async fn all(app: &App, user: &User) -> Vec<ModelObject> {
    let entries = app.handle.entries();
    let cards = cards(app, &entries, true).await;
    let mut rows = Vec::new();
    for (entry, card) in entries.iter().zip(cards) {
        let model = ModelObject::new(user, entry, &card);
        if user.sight.may_use_base(entry) {
            rows.push(model.clone());
            rows.extend(model.aliases.iter().map(|alias| model.alias(alias)));
        }
        let mut adapters = entry.adapters.clone();
        if entry.dynamic_adapters.is_some()
            && let Some(route) = app.handle.route(&entry.name)
        {
            adapters.extend(app.handle.known_adapters(&route));
        }
        let adapters = adapters.iter().filter(|name| user.sight.has(name));
        rows.extend(adapters.map(|name| model.adapter(name)));
    }
    let table = app.virtual_models.table(&app.config());
    let known: BTreeMap<&str, &ModelObject> =
        rows.iter().map(|row| (row.name.as_str(), row)).collect();
    let named = |name: &Arc<str>| known.get(&**name).copied();
    let virtual_models = table.models.iter().filter_map(|(name, model)| {
        let members = model
            .members
            .iter()
            .filter_map(|member| named(&member.name));
        let members: Vec<&ModelObject> = members.collect();
        // A model of the same name takes precedence.
        let is_listed = !members.is_empty() && app.handle.route(name).is_none();
        is_listed.then(|| ModelObject::of_members(name, &members))
    });
    let virtual_models: Vec<ModelObject> = virtual_models.collect();
    rows.extend(virtual_models);
    rows
}

/// The entry for a virtual model, if the user may use any of its members.
pub(crate) async fn of_virtual_model(app: &App, user: &User, name: &str) -> Option<ModelObject> {
    app.virtual_models.named(&app.config(), name)?;
    let rows = all(app, user).await.into_iter();
    let mut rows = rows.filter(|row| !row.members.is_empty());
    rows.find(|row| row.name == name)
}

/// The entry for the name, alias or adapter `known`.
pub(crate) async fn one(app: &App, user: &User, entry: &Arc<Entry>, known: &str) -> ModelObject {
    let cards = cards(app, std::slice::from_ref(entry), false).await;
    let card = cards.into_iter().next().unwrap_or_default();
    let model = ModelObject::new(user, entry, &card);
    match entry.adapter(known) {
        Some(adapter) => model.adapter(adapter),
        None => model,
    }
}

/// The cards of the entries, in the same order. Reads the headers of changed files.
async fn cards(app: &App, entries: &[Arc<Entry>], are_all: bool) -> Vec<Arc<ModelCard>> {
    let listed = entries.to_vec();
    let read = move |cards: &Cards| {
        if are_all {
            cards.keep(&listed);
        }
        listed.iter().map(|entry| cards.card(entry)).collect()
    };
    let read = Arc::clone(&app.cards).read(read);
    match tokio::time::timeout(CARDS_WITHIN, read).await {
        Ok(Ok(cards)) => cards,
        Ok(Err(_)) | Err(_) => vec![Arc::default(); entries.len()],
    }
}
