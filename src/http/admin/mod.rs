//! The admin API: every route needs an admin key, reads its request strictly, hands an order over or
//! reads the snapshot, and writes down who did what. Nothing here decides what is loaded or evicted.

mod audit;
mod cordons;
mod devices;
mod events;
pub(super) mod fields;
mod keys;
pub(super) mod load;
mod logs;
pub(super) mod models;
mod queue;
pub(super) mod upkeep;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::Failure;
use super::state::App;
use controller::Route;

/// All admin routes, relative to the base path.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(load::load))
        .routes(routes!(load::unload))
        .routes(routes!(load::plan))
        .routes(routes!(
            models::list,
            models::register,
            models::change,
            models::remove
        ))
        .routes(routes!(devices::list))
        .routes(routes!(cordons::cordon))
        .routes(routes!(cordons::uncordon))
        .routes(routes!(queue::show))
        .routes(routes!(events::list))
        .routes(routes!(logs::show))
        .routes(routes!(upkeep::cleanup))
        .routes(routes!(upkeep::reset))
        .routes(routes!(upkeep::config))
        .routes(routes!(upkeep::reload))
        .routes(routes!(
            keys::list,
            keys::create,
            keys::change,
            keys::revoke
        ))
        .routes(routes!(audit::list))
}

/// The model of a name or an alias, or 404 with the closest names.
pub(super) fn known(app: &App, name: &str) -> Result<Arc<Route>, Failure> {
    app.handle
        .route(name)
        .ok_or_else(|| Failure::unknown_model(name, &app.handle.closest(name)))
}

/// How often a stream without news sends a comment, and looks whether it should end.
const PULSE: std::time::Duration = std::time::Duration::from_secs(1);

/// The pool is shutting down and empty: nothing will ever be told again.
fn is_over(app: &App) -> bool {
    let snapshot = app.handle.snapshot();
    snapshot.pool.closing
        && snapshot
            .pool
            .models
            .iter()
            .all(|model| model.replicas.is_empty())
}
