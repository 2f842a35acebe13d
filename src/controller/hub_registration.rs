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
use catalog::{Catalog, Entry, Source};
use config::Config;
use pool::{Bytes, Remedy, Span, Time};
use source::Sources;

/// So long the hub is not asked again for a name that it does not have, and for so many names.
const MISSED_FOR: Span = Span::from_secs(60);
const MISSED_MAX: usize = 256;
/// Names that the hub is asked for in a minute because of users: whoever invents names must not have the
/// hub turn all of the lab away.
const LOOKS: u32 = 60;
const LOOKS_WITHIN: Span = Span::from_secs(60);
const HOUR: Span = Span::from_secs(3600);
/// The hub's own names are shorter.
const NAME_BYTES_MAX: usize = 200;
/// The labels that tell who brought a model in, and what its weights take on the disk.
const LABEL: &str = "registered_by";
const BYTES_LABEL: &str = "registered_bytes";

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
    /// The same, and users have brought in fewer than the limit, and this one's weights find room
    /// beside theirs.
    OneMoreOfUsers {
        limit: u32,
        bytes: Bytes,
        room: Bytes,
    },
}

impl Terms {
    pub fn allow(self, catalog: &Catalog, name: &str) -> Result<(), ChangeError> {
        let is_taken = !matches!(self, Terms::Any) && catalog.get(name).is_some();
        if is_taken {
            let name = name.to_owned();
            return Err(ChangeError::Taken { name });
        }
        let Terms::OneMoreOfUsers { limit, bytes, room } = self else {
            return Ok(());
        };
        let word = NamedBy::User.word();
        let of_users = |entry: &&Entry| entry.labels.get(LABEL).is_some_and(|it| it == word);
        let of_users: Vec<&Entry> = catalog.entries().values().filter(of_users).collect();
        if of_users.len() >= limit as usize {
            return Err(ChangeError::Full { limit });
        }
        let taken = |entry: &&Entry| entry.labels.get(BYTES_LABEL)?.parse().ok();
        let held: Bytes = of_users.iter().filter_map(taken).map(Bytes).sum();
        match held + bytes > room {
            true => Err(ChangeError::TooLarge { bytes, held, room }),
            false => Ok(()),
        }
    }
}

#[derive(Debug, Error)]
pub enum HubRegistrationError {
    #[error("{name} is no name on the hub: organisation/name")]
    NoName { name: String },
    /// It is not there, or nothing of it can be run.
    #[error("{message}")]
    NotThere { message: String },
    /// It could not be looked up; later it may.
    #[error("{message}")]
    NotNow { message: String },
    #[error(
        "users {what} {most} models of the hub within {within}, and no more may be; ask again in {retry}, or ask an administrator to load it"
    )]
    TooMany {
        what: &'static str,
        most: u32,
        within: Span,
        retry: Span,
    },
    #[error(transparent)]
    Change(#[from] ChangeError),
}

/// What looking up takes.
#[derive(Debug)]
pub(super) struct Newcomers {
    sources: Arc<Sources>,
    config: Arc<Config>,
    missed: Mutex<VecDeque<(String, Time, String)>>,
    looks: Rate,
    registered: Rate,
}

/// When something was last done, of what may be done so many times within a time.
#[derive(Debug)]
struct Rate {
    what: &'static str,
    most: u32,
    within: Span,
    done: Mutex<VecDeque<Time>>,
}

impl Rate {
    fn new(what: &'static str, most: u32, within: Span) -> Rate {
        Rate {
            what,
            most,
            within,
            done: Mutex::default(),
        }
    }

    /// Once more, if that may be.
    fn take(&self, now: Time) -> Result<(), HubRegistrationError> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.retain(|at| *at + self.within > now);
        match done.front() {
            Some(first) if done.len() >= self.most as usize => Err(HubRegistrationError::TooMany {
                what: self.what,
                most: self.most,
                within: self.within,
                retry: (*first + self.within).since(now),
            }),
            _ => {
                done.push_back(now);
                Ok(())
            }
        }
    }

    /// What was taken at that moment came to nothing.
    fn give_back(&self, taken: Time) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nth) = done.iter().position(|at| *at == taken) {
            done.remove(nth);
        }
    }
}

impl Control {
    pub(super) fn newcomers(&self) -> Arc<Newcomers> {
        Arc::new(Newcomers {
            sources: Arc::clone(&self.sources),
            config: Arc::clone(&self.config),
            missed: Mutex::default(),
            looks: Rate::new("asked for", LOOKS, LOOKS_WITHIN),
            registered: Rate::new("brought in", self.config.catalog.unknown_per_hour, HOUR),
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
    pub async fn newcomer(
        &self,
        name: &str,
        by: NamedBy,
    ) -> Result<Arc<Route>, HubRegistrationError> {
        let now = self.clock.now();
        let settings = &self.newcomers.config.catalog;
        if name.split('/').count() != 2 || name.len() > NAME_BYTES_MAX {
            let name = name.to_owned();
            return Err(HubRegistrationError::NoName { name });
        }
        if let Some(message) = self.newcomers.missed(name, now) {
            return Err(HubRegistrationError::NotThere { message });
        }
        let routes = self.routes.load_full();
        if let Some(route) = routes.get(name) {
            return Ok(route);
        }
        let known = &routes.catalog;
        let terms = |bytes: u64| match by {
            NamedBy::Administrator => Terms::NewName,
            NamedBy::User => Terms::OneMoreOfUsers {
                limit: settings.unknown_limit,
                bytes: Bytes(bytes),
                room: settings.unknown_size.0,
            },
        };
        // The hub need not be asked for what would not be registered anyway.
        terms(0).allow(known, name)?;
        let engine = known.reference().get(name).and_then(|it| it.engine.clone());
        let mut document = json!({
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
        .map_err(|_| HubRegistrationError::NoName {
            name: name.to_owned(),
        })?;
        let Some(fetch) = &entry.fetch else {
            let message = format!(
                "{} fetches by itself, so that nobody knows whether there is a {name}; set catalog.unknown_engine to one that the pool fetches for",
                entry.recipe.engine()
            );
            return Err(HubRegistrationError::NotThere { message });
        };
        if by == NamedBy::User {
            self.newcomers.looks.take(now)?;
        }
        let bytes = match self.newcomers.sources.look(fetch).await {
            Ok(bytes) => bytes,
            Err(fault) => {
                let message = fault.to_string();
                if fault.remedy() == Remedy::Time {
                    return Err(HubRegistrationError::NotNow { message });
                }
                self.newcomers.miss(name, now, &message);
                return Err(HubRegistrationError::NotThere { message });
            }
        };
        document["pool_config"]["labels"][BYTES_LABEL] = json!(bytes.to_string());
        if by == NamedBy::User {
            self.newcomers.registered.take(now)?;
        }
        match self.register_under(document, terms(bytes)).await {
            Ok(_) => tracing::info!(
                model = name,
                by = by.word(),
                "a model of the hub was registered"
            ),
            Err(error) => {
                if by == NamedBy::User {
                    self.newcomers.registered.give_back(now);
                }
                // Somebody else was quicker; what they have registered is what is asked for.
                if !matches!(error, ChangeError::Taken { .. }) {
                    return Err(error.into());
                }
            }
        }
        self.route(name)
            .ok_or(HubRegistrationError::Change(ChangeError::Gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_within_a_time_and_the_refusal_says_when_there_is_room_again() {
        let rate = Rate::new("brought in", 3, HOUR);
        for minute in 0..3 {
            rate.take(Time(minute * 60_000)).expect("room");
        }
        let full = rate.take(Time(180_000)).expect_err("full").to_string();
        assert!(
            full.contains("3 models") && full.contains("57 min"),
            "{full}"
        );
        rate.give_back(Time(60_000));
        rate.take(Time(180_000))
            .expect("what came to nothing is free");
        assert!(rate.take(Time(3_599_999)).is_err());
        rate.take(Time(3_600_000))
            .expect("the first is an hour old");
        assert_eq!(rate.done.lock().unwrap().len(), 3, "no more are remembered");
    }
}
