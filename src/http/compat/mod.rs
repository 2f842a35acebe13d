//! Routes for clients of older systems, mapped onto current routes and orders; docs/reference/compatibility.md has the table. Only
//! the routes enabled by `compat` in the configuration exist.

mod aviary;
mod keyed;
mod ncsa;
mod old_models;
pub(super) mod ollama;
pub(super) mod rayllm;
mod run;
mod strategy;

use axum::middleware;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use admin::audit_layer;
use gateway::state::App;

/// Adds the routes below the base path.
pub(super) fn below_base(router: OpenApiRouter<App>, app: &App) -> OpenApiRouter<App> {
    let config = app.config();
    let compat = &config.compat;
    let mut router = with_shared(router, app);
    if compat.aviary && !compat.ncsa {
        router = router.merge(aviary::listing());
    }
    if compat.run {
        router = router.routes(routes!(run::pending));
    }
    if compat.ncsa {
        let reset = middleware::from_fn_with_state(app.clone(), ncsa::reset);
        let audited = middleware::from_fn_with_state(app.clone(), audit_layer::record);
        router = router
            .merge(ncsa::routes().route_layer(audited))
            .merge(old_models::routes())
            .layer(reset);
    }
    router
}

/// Adds the routes at the root.
pub(super) fn at_root(router: OpenApiRouter<App>, app: &App) -> OpenApiRouter<App> {
    let router = with_shared(router, app);
    if app.config().compat.aviary {
        router.merge(aviary::listing())
    } else {
        router
    }
}

/// Adds the routes that exist both with and without the base path.
fn with_shared(mut router: OpenApiRouter<App>, app: &App) -> OpenApiRouter<App> {
    if app.config().compat.aviary {
        router = router.merge(aviary::routes());
    }
    if app.config().compat.run {
        router = router.routes(routes!(run::run));
    }
    if app.config().compat.ollama {
        router = router.merge(ollama::routes(app));
    }
    if app.config().compat.rayllm {
        router = router.merge(rayllm::routes(app));
    }
    router
}
