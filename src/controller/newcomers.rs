//! Models of the hub that nobody has written a file for: looked up there when somebody names one, and
//! registered if the configuration lets them. Whoever may do so is `catalog.on_unknown`'s business.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use thiserror::Error;

use super::control::Control;
use super::handle::Handle;
use super::registry::ChangeError;
use super::routing::Route;
use crate::catalog::{Catalog, Entry, Source};
use crate::config::Config;
use crate::pool::{Remedy, Span, Time};
use crate::source::Sources;

/// So long the hub is not asked again for a name that it does not have, and for so many names.
const MISSED_FOR: Span = Span::from_secs(60);
const MISSED_MAX: usize = 256;
/// The label that tells who brought a model in.
const LABEL: &str = "registered_by";

/// Who names the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    Administrator,
    User,
}

impl NamedBy {
    fn word(self) -> &'static str {
        match self {
            NamedBy::Administrator => "administrator",
            NamedBy::User => "user",
        }
    }
}

/// What must hold of the catalogue at the moment in which a model is registered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Terms {
    /// One that was registered before is replaced.
    Any,
    /// Nothing has the name.
    NewName,
    /// The same, and users have brought in fewer than the limit.
    OneMoreOfUsers { limit: u32 },
}

impl Terms {
    pub fn allow(self, catalog: &Catalog, name: &str) -> Result<(), ChangeError> {
        let is_taken = !matches!(self, Terms::Any) && catalog.get(name).is_some();
        if is_taken {
            let name = name.to_owned();
            return Err(ChangeError::Taken { name });
        }
        let Terms::OneMoreOfUsers { limit } = self else {
            return Ok(());
        };
        let word = NamedBy::User.word();
        let of_users = |entry: &&Entry| entry.labels.get(LABEL).is_some_and(|it| it == word);
        match catalog.entries().values().filter(of_users).count() >= limit as usize {
            true => Err(ChangeError::Full { limit }),
            false => Ok(()),
        }
    }
}

#[derive(Debug, Error)]
pub enum NewcomerError {
    #[error("{name} is no name on the hub: organisation/name")]
    NoName { name: String },
    /// It is not there, or nothing of it can be run.
    #[error("{message}")]
    NotThere { message: String },
    /// It could not be looked up; later it may.
    #[error("{message}")]
    NotNow { message: String },
    #[error(transparent)]
    Change(#[from] ChangeError),
}

/// What looking up takes.
#[derive(Debug)]
pub(super) struct Newcomers {
    sources: Arc<Sources>,
    config: Arc<Config>,
    missed: Mutex<VecDeque<(String, Time, String)>>,
}

impl Control {
    pub(super) fn newcomers(&self) -> Arc<Newcomers> {
        Arc::new(Newcomers {
            sources: Arc::clone(&self.sources),
            config: Arc::clone(&self.config),
            missed: Mutex::default(),
        })
    }
}

impl Newcomers {
    fn missed(&self, name: &str, now: Time) -> Option<String> {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.retain(|(_, at, _)| *at + MISSED_FOR > now);
        let found = missed.iter().find(|(known, ..)| known == name);
        found.map(|(.., message)| message.clone())
    }

    fn miss(&self, name: &str, now: Time, message: &str) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.truncate(MISSED_MAX - 1);
        missed.push_front((name.to_owned(), now, message.to_owned()));
    }
}

impl Handle {
    /// Registers the hub's model of this name with the engine that the reference or the configuration
    /// names, and gives its route. The hub must have it, in a form that its engine reads.
    pub async fn newcomer(&self, name: &str, by: NamedBy) -> Result<Arc<Route>, NewcomerError> {
        let now = self.clock.now();
        let settings = &self.newcomers.config.catalog;
        if name.split('/').count() != 2 {
            let name = name.to_owned();
            return Err(NewcomerError::NoName { name });
        }
        if let Some(message) = self.newcomers.missed(name, now) {
            return Err(NewcomerError::NotThere { message });
        }
        let routes = self.routes.load_full();
        if let Some(route) = routes.get(name) {
            return Ok(route);
        }
        let known = &routes.catalog;
        let terms = match by {
            NamedBy::Administrator => Terms::NewName,
            NamedBy::User => Terms::OneMoreOfUsers {
                limit: settings.unknown_limit,
            },
        };
        // The hub need not be asked for what would not be registered anyway.
        terms.allow(known, name)?;
        let engine = known.reference().get(name).and_then(|it| it.engine.clone());
        let document = json!({
            "engine_config": {
                "model_id": name,
                "hf_model_id": name,
                "type": engine.unwrap_or_else(|| settings.unknown_engine.clone()),
            },
            "pool_config": {"labels": {LABEL: by.word()}},
        });
        let (entry, _) = Entry::from_document(
            &document,
            Source::Registered,
            &self.newcomers.config,
            known.reference(),
        )
        .map_err(|_| NewcomerError::NoName {
            name: name.to_owned(),
        })?;
        let Some(fetch) = &entry.fetch else {
            let message = format!(
                "{} fetches by itself, so that nobody knows whether there is a {name}; set catalog.unknown_engine to one that the pool fetches for",
                entry.recipe.engine()
            );
            return Err(NewcomerError::NotThere { message });
        };
        if let Err(fault) = self.newcomers.sources.look(fetch).await {
            let message = fault.to_string();
            if fault.remedy() == Remedy::Time {
                return Err(NewcomerError::NotNow { message });
            }
            self.newcomers.miss(name, now, &message);
            return Err(NewcomerError::NotThere { message });
        }
        match self.register_under(document, terms).await {
            Ok(_) => tracing::info!(
                model = name,
                by = by.word(),
                "a model of the hub was registered"
            ),
            // Somebody else was quicker; what they have registered is what is asked for.
            Err(ChangeError::Taken { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.route(name)
            .ok_or(NewcomerError::Change(ChangeError::Gone))
    }
}
