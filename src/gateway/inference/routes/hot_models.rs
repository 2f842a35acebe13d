//! `GET /hot-models`, as in the service that the pool replaces: the caller's models by their state. Never loads a model or keeps it
//! loaded.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::User;
use crate::openapi::ListingErrors;
use crate::state::App;
use api_types::dto::HotModels;

/// Relative to the base path.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(hot_models))
}

/// Show which models are loaded
///
/// The models that the key may use, by their state: ready, loading, asleep in host memory, and loaded on request. Nothing is loaded
/// for this.
///
/// Every key may call this.
#[utoipa::path(
    get, path = "/hot-models", tag = "models", operation_id = "list_hot_models", security(("user_key" = [])),
    responses((status = 200, description = "The models by their state", body = HotModels, example = json!({
        "hot_models": [{"model_name": "tiny-chat", "status": "ready", "num_replicas": 1, "priority": 1,
            "gpus_per_replica": 1}],
        "loading_models": [{"model_name": "tiny-code", "status": "loading", "num_replicas": 1, "priority": 0,
            "gpus_per_replica": 1}],
        "asleep_models": [],
        "cold_models": ["tiny-embed"]
    })),
    ListingErrors)
)]
async fn hot_models(State(app): State<App>, user: User) -> Json<HotModels> {
    let snapshot = app.handle.snapshot();
    let sight = &user.sight;
    Json(HotModels::from_snapshot(
        &snapshot,
        |name, entry| match entry {
            Some(entry) => sight.may_use_base(entry),
            None => sight.has(name),
        },
    ))
}
