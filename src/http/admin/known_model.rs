//! Finds the model that an administrator names.

use std::sync::Arc;

use crate::error::Failure;
use crate::state::App;
use controller::Route;

/// The model of a name or an alias; 409 if its file is broken, or 404 with the closest names.
pub fn known(app: &App, name: &str) -> Result<Arc<Route>, Failure> {
    app.handle.route(name).ok_or_else(|| unknown(app, name))
}

/// Why there is no model of this name, for an administrator.
pub fn unknown(app: &App, name: &str) -> Failure {
    match app.handle.broken_model(name) {
        Some(broken) => Failure::broken_file(&broken),
        None => Failure::unknown_model(name, &app.handle.closest(name)),
    }
}
