//! `GET /hot-models`, as the old service had it: no key, no effect.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::HotModels;
use super::state::App;

/// Relative to the base path.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(hot_models))
}

/// Show what is loaded
///
/// Which models answer at once, which are on their way, and which are loaded when somebody asks.
#[utoipa::path(
    get, path = "/hot-models", tag = "pool", operation_id = "hot_models",
    responses((status = 200, description = "The models by what they are now", body = HotModels, example = json!({
        "hot_models": [{"model_name": "tiny-chat", "status": "ready", "num_replicas": 1, "priority": 1,
            "gpus_per_replica": 1}],
        "loading_models": [{"model_name": "tiny-code", "status": "loading", "num_replicas": 1, "priority": 0,
            "gpus_per_replica": 1}],
        "cold_models": ["tiny-embed"]
    })))
)]
async fn hot_models(State(app): State<App>) -> Json<HotModels> {
    Json(HotModels::of(&app.handle.snapshot()))
}
