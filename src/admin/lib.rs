//! The admin API, the dashboard, browser sessions and votes. Every admin route requires an admin key, parses its request strictly,
//! then submits an order or reads the snapshot, and is recorded in the audit log. The pool decides loads and evictions.

mod audit;
pub mod audit_layer;
mod batches;
mod browser_sign_on;
mod cordons;
pub mod dashboard;
mod devices;
mod event_streams;
mod events;
mod groups;
mod history_filters;
mod key_requests;
mod keys;
mod live;
mod live_view;
pub mod load;
mod load_requests;
mod logs;
mod me;
pub mod models;
mod nodes;
pub mod order_origin;
mod order_wait;
mod out_of_service;
pub mod planned;
mod queue;
mod report;
mod session;
pub mod upkeep;
mod usage;
mod virtual_models;
mod votes;
mod what_if;
mod why;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use gateway::state::App;

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
        .routes(routes!(
            virtual_models::list,
            virtual_models::set,
            virtual_models::remove
        ))
        .routes(routes!(devices::list))
        .routes(routes!(cordons::cordon))
        .routes(routes!(cordons::uncordon))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::create_token, nodes::revoke_token))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::undrain))
        .routes(routes!(groups::list))
        .routes(routes!(groups::set, groups::remove))
        .routes(routes!(queue::show))
        .routes(routes!(batches::list, batches::change))
        .routes(routes!(batches::cancel))
        .routes(routes!(live::follow))
        .routes(routes!(events::list))
        .routes(routes!(why::show))
        .routes(routes!(report::show))
        .routes(routes!(usage::show))
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

/// Browser sessions, the caller's own key, and votes, relative to the base path.
pub fn service_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(session::show, session::open, session::end))
        .routes(routes!(browser_sign_on::ways))
        .routes(routes!(browser_sign_on::begin))
        .routes(routes!(browser_sign_on::end))
        .routes(routes!(me::show))
        .routes(routes!(me::usage))
        .routes(routes!(votes::vote))
        .routes(routes!(votes::leaderboard))
}
