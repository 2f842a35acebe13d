//! RayLLM's routes in addition to OpenAI's: names with `--` for `/`, removal of a model, the health check, and a model's metadata.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::delete;
use axum::{Json, middleware};
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::admin::fields::Params;
use crate::admin::models;
use crate::auth::Admin;
use crate::auth::audit;
use crate::error::Failure;
use crate::openapi::AdminErrors;
use crate::openapi::schemas::older_systems::RemovedModel;
use crate::path_params::Path;
use crate::state::App;
use controller::Route;

pub(super) fn routes(app: &App) -> OpenApiRouter<App> {
    let audited = middleware::from_fn_with_state(app.clone(), audit::record);
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

/// Resolves an unknown name with `--` for `/`. Returns the model's name and route.
pub(crate) fn route(app: &App, name: &str) -> Option<(String, Arc<Route>)> {
    let named = app.config().compat.rayllm.then(|| with_slash(name))?;
    let route = app.handle.route(&named)?;
    Some((named, route))
}

/// Names have at most one slash, and the part after it may contain `--`.
pub(super) fn with_slash(name: &str) -> String {
    name.replacen("--", "/", 1)
}

/// Adds the fields that Aviary's and RayLLM's clients read to OpenAI's object.
pub(crate) fn described(app: &App, name: &str, mut object: Value) -> Value {
    let compat = &app.config().compat;
    if compat.aviary || compat.rayllm {
        // Aviary's client also requires this field.
        object["permission"] = json!([]);
    }
    if !compat.rayllm {
        return object;
    }
    let document = app
        .handle
        .route(name)
        .map(|route| route.entry.to_document());
    let engine = document.map(|mut document| document["engine_config"].take());
    object["rayllm_metadata"] = metadata(name, &engine.unwrap_or_default());
    object
}

/// The keys of `engine_config` that RayLLM showed.
fn metadata(name: &str, engine: &Value) -> Value {
    let is_embedding = engine["type"] == "EmbeddingEngine";
    let kind = if is_embedding {
        "embedding"
    } else {
        "text-generation"
    };
    let mut parts = Map::new();
    parts.insert("model_type".to_owned(), json!(kind));
    for key in ["model_url", "model_description", "max_total_tokens"] {
        parts.insert(key.to_owned(), engine[key].clone());
    }
    json!({"model_id": name, "engine_config": parts})
}

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
                failure.status = StatusCode::FORBIDDEN;
                failure.body.error.kind = "permission_error";
            }
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_dashes_are_the_slash_once() {
        assert_eq!(with_slash("org--name"), "org/name");
        assert_eq!(with_slash("org--my--name"), "org/my--name");
        assert_eq!(with_slash("name"), "name");
    }

    #[test]
    fn only_what_rayllm_told_of_a_model_is_told() {
        let engine =
            json!({"type": "EmbeddingEngine", "max_total_tokens": 512, "env": {"TOKEN": "x"}});
        let parts = metadata("a/b", &engine);
        assert_eq!(parts["model_id"], "a/b");
        assert_eq!(
            parts["engine_config"],
            json!({"model_type": "embedding", "model_url": null, "model_description": null, "max_total_tokens": 512})
        );
    }
}
