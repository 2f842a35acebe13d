//! Finds the model that an administrator names.

use std::sync::Arc;

use crate::error::Failure;
use crate::state::App;
use controller::Route;

/// The model of a name or an alias, or 404 with the closest names.
pub fn known(app: &App, name: &str) -> Result<Arc<Route>, Failure> {
    app.handle
        .route(name)
        .ok_or_else(|| Failure::unknown_model(name, &app.handle.closest(name)))
}
