//! Finds the model that an administrator names.

use std::sync::Arc;

use crate::state::App;
use crate::virtual_models::preview::needs_model;
use api_types::error::Failure;
use controller::Route;

/// Finds a model by name or alias. Returns a 409 if its file is broken, or a 404 with similar names.
pub fn known(app: &App, name: &str) -> Result<Arc<Route>, Failure> {
    app.handle.route(name).ok_or_else(|| unknown(app, name))
}

/// The error for an administrator about a name without a usable model.
pub fn unknown(app: &App, name: &str) -> Failure {
    match app.handle.broken_model(name) {
        Some(broken) => Failure::broken_file(&broken),
        None => match app.virtual_models.named(&app.config(), name) {
            Some(model) => needs_model(&model),
            None => Failure::unknown_model(name, &app.handle.closest(name)),
        },
    }
}
