//! RayLLM's routes in addition to OpenAI's: names with `--` for `/`, removal of a model, the health check, and a model's metadata.

use axum::extract::State;
use axum::routing::delete;
use axum::{Json, middleware};
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use admin::audit_layer;
use admin::models;
use api_types::error::{ErrorKind, Failure};
use api_types::schemas::older_systems::RemovedModel;
use gateway::auth::Admin;
use gateway::fields::Params;
use gateway::openapi::AdminErrors;
use gateway::path_params::Path;
use gateway::rayllm_names::{route, with_slash};
use gateway::state::App;

pub(super) fn routes(app: &App) -> OpenApiRouter<App> {
    let audited = middleware::from_fn_with_state(app.clone(), audit_layer::record);
    let mut router = OpenApiRouter::new()
        .routes(routes!(health_check))
        .route("/v1/models/{*model}", delete(remove).route_layer(audited));
    router.get_openapi_mut().merge(Removal::openapi());
    router
}

/// The wildcard route, which the router cannot describe on its own.
#[derive(OpenApi)]
#[openapi(paths(remove))]
struct Removal;

/// Check liveness (RayLLM)
///
/// Everybody may call this.
#[utoipa::path(get, path = "/v1/health_check", tag = "older systems", operation_id = "old_health_check",
    responses((status = 200, description = "The service answers", body = bool, content_type = "application/json", example = json!(true))))]
async fn health_check() -> Json<bool> {
    Json(true)
}

/// Remove a registered model (RayLLM)
///
/// Its replicas drain and stop. A model that comes from a file gets a 403.
///
/// Administrators only.
#[utoipa::path(delete, path = "/v1/models/{model}", tag = "older systems", operation_id = "old_remove_model",
    security(("admin_key" = [])),
    params(("model" = String, Path, description = "The model's name. Two dashes stand for a slash.", example = "org--my-model")),
    responses((status = 200, description = "The model is removed", body = RemovedModel,
        example = json!({"id": "org/my-model", "object": "model", "deleted": true})), AdminErrors))]
async fn remove(
    State(app): State<App>,
    admin: Admin,
    Path(name): Path<String>,
) -> Result<Json<Value>, Failure> {
    let name = match route(&app, &name) {
        Some(_) if app.handle.route(&name).is_none() => with_slash(&name),
        _ => name,
    };
    let query = models::OneQuery {
        model: name.clone(),
    };
    match models::remove(State(app), admin, Params(query)).await {
        Ok(_) => Ok(Json(
            json!({"id": name, "object": "model", "deleted": true}),
        )),
        Err(mut failure) => {
            if failure.body.error.code == Some("from_file") {
                failure.kind = ErrorKind::Forbidden;
                failure.body.error.kind = "permission_error";
            }
            Err(failure)
        }
    }
}
