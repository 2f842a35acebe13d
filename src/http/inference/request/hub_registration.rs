//! Handles names that the catalogue does not have: refuses them with the closest ones, or registers the hub's model
//! where the configuration lets the caller do so.

use std::sync::Arc;

use axum::http::StatusCode;

use crate::admin::known_model;
use crate::auth::User;
use crate::error::Failure;
use crate::inference::admission;
use crate::state::App;
use config::OnUnknown;
use controller::{HubRegistrationError, LookupCaller, NamedBy, Route};

pub(crate) async fn of_user(app: &App, user: &User, name: &str) -> Result<Arc<Route>, Failure> {
    match app.config().catalog.on_unknown {
        // A model whose file is broken is described already.
        OnUnknown::Anyone if user.sight.has(name) && app.handle.broken_model(name).is_none() => {
            let closest = || admission::closest(app, user, name);
            let caller = LookupCaller(user.account.id());
            bring_in(app, name, (NamedBy::User, caller), closest).await
        }
        _ => Err(admission::unknown(app, user, name)),
    }
}

/// An administrator loads a model by its name on the hub.
pub(crate) async fn of_administrator(app: &App, name: &str) -> Result<Arc<Route>, Failure> {
    match app.config().catalog.on_unknown {
        _ if app.handle.broken_model(name).is_some() => Err(known_model::unknown(app, name)),
        OnUnknown::Refuse => Err(known_model::unknown(app, name)),
        OnUnknown::Admin | OnUnknown::Anyone => {
            let closest = || app.handle.closest(name);
            let by = (NamedBy::Administrator, LookupCaller::administrator());
            bring_in(app, name, by, closest).await
        }
    }
}

/// With a catalogue of files alone, nothing is registered.
pub(crate) fn may_register(app: &App) -> Result<(), Failure> {
    match app.config().catalog.on_unknown {
        OnUnknown::Admin | OnUnknown::Anyone => Ok(()),
        OnUnknown::Refuse => Err(Failure::forbidden(
            "registration_off",
            "models come from files alone here (catalog.on_unknown is refuse); write a file and reload",
        )),
    }
}

/// `closest`: names that the caller may know.
async fn bring_in(
    app: &App,
    name: &str,
    (by, caller): (NamedBy, LookupCaller),
    closest: impl Fn() -> Vec<String>,
) -> Result<Arc<Route>, Failure> {
    let unknown = || Failure::unknown_model(name, &closest());
    let error = match app.handle.register_from_hub(name, by, &caller).await {
        Ok(route) => return Ok(route),
        Err(error) => error,
    };
    // What is no name on the hub was not looked for there.
    if !matches!(error, HubRegistrationError::NoName { .. }) {
        tracing::info!(model = name, %error, "a model of the hub was not registered");
    }
    Err(match error {
        HubRegistrationError::NoName { .. } => unknown(),
        HubRegistrationError::TooMany { retry, .. } => Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
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
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            "model_not_registered",
            error.to_string(),
        ),
        HubRegistrationError::Change(error) => error.into(),
    })
}
