//! Registers models of the hub that have no file, when a request or an administrator names one. `catalog.on_unknown` sets who may
//! cause that.

use std::sync::Arc;

use serde_json::json;

use crate::gates::Route;
use crate::handle::Handle;
use crate::lookups::{HUB_LOOKUPS_MAX, HubRegistrationError, LookupCaller};
use crate::messages::{BYTES_LABEL, ChangeError, LABEL, Registrar, Terms};
use catalog::{Entry, Source};
use pool::{Bytes, Remedy};
use source::{NO_TOKEN, SourceError};

/// Names on the hub are shorter.
const NAME_BYTES_MAX: usize = 200;

/// The message to a user about a repository that does not exist or is not public.
fn for_user(error: &SourceError, may_be_private: bool) -> String {
    match error {
        SourceError::NoRepository { id, endpoint, .. } if !may_be_private => format!(
            "there is no {id} at {endpoint} that is public; an administrator may load a private one, or allow them with catalog.unknown_private"
        ),
        SourceError::Gated { id, endpoint, .. } if !may_be_private => format!(
            "{id} at {endpoint} is gated; an administrator may load it, or allow gated ones with catalog.unknown_private"
        ),
        error => error.public(),
    }
}

impl Handle {
    /// Registers the hub's model of this name with the engine that the reference or the configuration names, and returns its route.
    /// The model must exist on the hub in a form that its engine reads.
    pub async fn register_from_hub(
        &self,
        name: &str,
        by: Registrar,
        caller: &LookupCaller,
    ) -> Result<Arc<Route>, HubRegistrationError> {
        let now = self.clock.now();
        let config = self.hub_lookups.config.get();
        let settings = &config.catalog;
        if name.split('/').count() != 2 || name.len() > NAME_BYTES_MAX {
            let name = name.to_owned();
            return Err(HubRegistrationError::NoName { name });
        }
        if let Some(message) = self.hub_lookups.missed(name, now) {
            return Err(HubRegistrationError::NotThere { message });
        }
        let routes = self.routes.load_full();
        if let Some(route) = routes.get(name) {
            return Ok(route);
        }
        let known = &routes.catalog;
        let terms = |bytes: u64| match by {
            Registrar::Administrator => Terms::NewName,
            Registrar::User => Terms::OneMoreOfUsers {
                limit: settings.unknown_limit,
                bytes: Bytes(bytes),
                room: settings.unknown_size.0,
            },
        };
        // Avoids a lookup on the hub for a model that would not be registered anyway.
        terms(0).allow(known, name)?;
        let engine = known
            .reference()
            .get(name)
            .and_then(|reference| reference.engine.clone());
        let mut document = json!({
            "engine_config": {
                "model_id": name,
                "hf_model_id": name,
                "type": engine.unwrap_or_else(|| settings.unknown_engine.clone()),
            },
            "pool_config": {"labels": {LABEL: by.word()}},
        });
        if by == Registrar::User && !settings.unknown_private {
            document["engine_config"]["runtime_env"] = json!({"env_vars": {NO_TOKEN: "1"}});
        }
        let (entry, _) =
            Entry::from_document(&document, Source::Registered, &config, known.reference())
                .map_err(|error| {
                    if name.contains(':') {
                        // The name may be of a quantization that this engine does not support.
                        HubRegistrationError::NotThere {
                            message: error.to_string(),
                        }
                    } else {
                        HubRegistrationError::NoName {
                            name: name.to_owned(),
                        }
                    }
                })?;
        let Some(fetch) = &entry.fetch else {
            let message = format!(
                "{} downloads models on its own, so the pool cannot check that {name} exists; set catalog.unknown_engine to an engine that the pool downloads for",
                entry.recipe.engine()
            );
            return Err(HubRegistrationError::NotThere { message });
        };
        if by == Registrar::User {
            self.hub_lookups.looks.take(caller, now, HUB_LOOKUPS_MAX)?;
        }
        let bytes = match self.hub_lookups.sources.describe(fetch).await {
            Ok(bytes) => bytes,
            Err(fault) => {
                let message = match by {
                    Registrar::Administrator => fault.to_string(),
                    Registrar::User => {
                        tracing::info!(model = name, %fault, "a user's model was not found on the hub");
                        for_user(&fault, settings.unknown_private)
                    }
                };
                if fault.remedy() == Remedy::Time {
                    return Err(HubRegistrationError::NotNow { message });
                }
                self.hub_lookups.miss(name, now, &message);
                return Err(HubRegistrationError::NotThere { message });
            }
        };
        document["pool_config"]["labels"][BYTES_LABEL] = json!(bytes.to_string());
        if by == Registrar::User {
            let most = settings.unknown_per_hour;
            self.hub_lookups.registered.take(caller, now, most)?;
        }
        match self.register_under(document, terms(bytes)).await {
            Ok(_) => tracing::info!(
                model = name,
                by = by.word(),
                "a model of the hub was registered"
            ),
            Err(error) => {
                if by == Registrar::User {
                    self.hub_lookups.registered.give_back(caller, now);
                }
                // A concurrent request has registered the model; use its registration.
                if !matches!(error, ChangeError::Taken { .. }) {
                    return Err(error.into());
                }
            }
        }
        self.route(name)
            .ok_or(HubRegistrationError::Change(ChangeError::Gone))
    }
}
