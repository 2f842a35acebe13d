//! `GET /hot-models`, as the old service had it: what is loaded of the models that are for whoever asks. It
//! loads nothing and keeps nothing.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::User;
use crate::dto::HotModels;
use crate::error::ErrorBody;
use crate::state::App;

/// Relative to the base path.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(hot_models))
}

/// Show what is loaded
///
/// Which models answer at once, which are on their way, and which are loaded when somebody asks. It needs a key
/// where models do, and shows the models that the key is for.
#[utoipa::path(
    get, path = "/hot-models", tag = "pool", operation_id = "hot_models",
    responses((status = 200, description = "The models by what they are now", body = HotModels, example = json!({
        "hot_models": [{"model_name": "tiny-chat", "status": "ready", "num_replicas": 1, "priority": 1,
            "gpus_per_replica": 1}],
        "loading_models": [{"model_name": "tiny-code", "status": "loading", "num_replicas": 1, "priority": 0,
            "gpus_per_replica": 1}],
        "cold_models": ["tiny-embed"]
    })),
    (status = 401, description = "An API key is needed", body = ErrorBody, example = json!({"error": {
        "message": "this API key is unknown, expired or revoked", "type": "authentication_error", "param": null,
        "code": "invalid_api_key"}})))
)]
async fn hot_models(State(app): State<App>, user: User) -> Json<HotModels> {
    let snapshot = app.handle.snapshot();
    let sight = &user.sight;
    Json(HotModels::of(&snapshot, |name, entry| match entry {
        Some(entry) => sight.may_use_base(entry),
        None => sight.has(name),
    }))
}
