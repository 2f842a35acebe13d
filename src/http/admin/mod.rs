//! The admin API. Every route requires an admin key, parses its request strictly, then submits an order or reads the snapshot, and
//! is recorded in the audit log. Loads and evictions are decided by the pool.

mod audit;
mod cordons;
mod devices;
mod event_streams;
mod events;
pub(super) mod fields;
mod history_filters;
mod keys;
mod live;
mod live_view;
pub(super) mod load;
mod logs;
pub(super) mod models;
mod nodes;
mod out_of_service;
mod queue;
mod report;
pub(super) mod upkeep;
mod what_if;
mod why;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::App;

/// All admin routes, relative to the base path.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(load::load))
        .routes(routes!(load::unload))
        .routes(routes!(load::plan))
        .routes(routes!(what_if::preview))
        .routes(routes!(
            models::list,
            models::register,
            models::change,
            models::remove
        ))
        .routes(routes!(models::file))
        .routes(routes!(devices::list))
        .routes(routes!(cordons::cordon))
        .routes(routes!(cordons::uncordon))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::create_token, nodes::revoke_token))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::undrain))
        .routes(routes!(queue::show))
        .routes(routes!(live::follow))
        .routes(routes!(events::list))
        .routes(routes!(why::show))
        .routes(routes!(report::show))
        .routes(routes!(logs::show))
        .routes(routes!(upkeep::cleanup))
        .routes(routes!(upkeep::reset))
        .routes(routes!(upkeep::config))
        .routes(routes!(upkeep::config_origins))
        .routes(routes!(upkeep::reload))
        .routes(routes!(
            keys::list,
            keys::create,
            keys::change,
            keys::revoke
        ))
        .routes(routes!(audit::list))
}
