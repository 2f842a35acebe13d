//! Handles model names that are not in the catalogue: registers the model from the hub if the configuration allows it, or refuses
//! the name with similar ones.

use std::sync::Arc;

use crate::auth::User;
use crate::inference::admission;
use crate::known_model;
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use config::OnUnknown;
use controller::{HubRegistrationError, LookupCaller, Registrar, Route};

pub async fn of_user(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failure> {
    match app.config().catalog.on_unknown {
        // A model with a broken file must not be registered again.
        OnUnknown::Anyone if user.sight.has(name) && app.handle.broken_model(name).is_none() => {
            let closest = || admission::closest(app, user, name);
            let caller = LookupCaller(user.account.id());
            bring_in(app, name, (Registrar::User, caller), closest).await
        }
        _ => Err(admission::unknown(app, user, name)),
    }
}

/// Resolves a name of the hub for an administrator.
pub async fn of_administrator(app: &App, name: &str) -> Result<Arc<Route>, Failure> {
    match app.config().catalog.on_unknown {
        _ if app.handle.broken_model(name).is_some() => Err(known_model::unknown(app, name)),
        OnUnknown::Refuse => Err(known_model::unknown(app, name)),
        OnUnknown::Admin | OnUnknown::Anyone => {
            let closest = || app.handle.closest(name);
            let by = (Registrar::Administrator, LookupCaller::administrator());
            bring_in(app, name, by, closest).await
        }
    }
}

/// Refuses registration if the catalogue consists of files only.
pub fn may_register(app: &App) -> Result<(), Failure> {
    match app.config().catalog.on_unknown {
        OnUnknown::Admin | OnUnknown::Anyone => Ok(()),
        OnUnknown::Refuse => Err(Failure::forbidden(
            "registration_off",
            "models are loaded from files only (catalog.on_unknown: refuse); add a model file and reload",
        )),
    }
}

/// `closest`: similar names that the caller may know.
async fn bring_in(
    app: &App,
    name: &str,
    (by, caller): (Registrar, LookupCaller),
    closest: impl Fn() -> Vec<String>,
) -> Result<Arc<Route>, Failure> {
    let unknown = || Failure::unknown_model(name, &closest());
    let error = match app.handle.register_from_hub(name, by, &caller).await {
        Ok(route) => return Ok(route),
        Err(error) => error,
    };
    // Names that cannot be on the hub were not looked up there.
    if !matches!(error, HubRegistrationError::NoName { .. }) {
        tracing::info!(model = name, %error, "a model of the hub was not registered");
    }
    Err(match error {
        HubRegistrationError::NoName { .. } => unknown(),
        HubRegistrationError::TooMany { retry, .. } => Failure::new(
            ErrorKind::Unavailable,
            "model_not_registered",
            error.to_string(),
        )
        .again_in(retry),
        HubRegistrationError::NotThere { message } => {
            let mut failure = unknown();
            failure.body.error.message = format!("{}; {message}", failure.body.error.message);
            failure
        }
        HubRegistrationError::NotNow { .. } => Failure::new(
            ErrorKind::Unavailable,
            "model_not_registered",
            error.to_string(),
        ),
        HubRegistrationError::Change(error) => error.into(),
    })
}
