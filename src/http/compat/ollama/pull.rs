//! `/api/pull`, and the routes that would change Ollama's own store. They change nothing, and their errors say what to do instead.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::show::{Found, find};
use api_types::error::{ErrorKind, Failure};
use api_types::schemas::ollama::OllamaPullRequest;
use dialect::RequestFields;
use dialect::ollama::{STREAM_TYPE, name_of, tagged};
use gateway::auth::User;
use gateway::inference::request::receiving;
use gateway::openapi::OllamaErrors;
use gateway::state::App;

const REGISTER: &str = "an administrator registers a model with `admin-client register ORG/NAME --engine ENGINE`, or with a file in catalog.models_dir and `admin-client reload`; its weights are fetched when it is loaded for the first time";

/// Check that a model is registered (Ollama)
///
/// Nothing is fetched: the weights of a registered model are fetched when it is loaded for the first time.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/api/pull", tag = "ollama", operation_id = "ollama_pull", security(("user_key" = [])),
    request_body(content = OllamaPullRequest, example = json!({"model": "tiny-chat", "stream": false})),
    responses((status = 200, description = "An object with `status: success`, or lines of JSON"), OllamaErrors)
)]
pub(super) async fn pull(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Result<Response, Failure> {
    let body = receiving::read(&app, request.into_body()).await;
    let body = body.map_err(|(_, failure)| failure)?;
    let bytes = body.len();
    let read = move || {
        let mut body_fields = RequestFields::parse(&body)?;
        let stream = body_fields.flag("stream")?.unwrap_or(true);
        Ok((name_of(&mut body_fields)?, stream))
    };
    let (named, stream) = app.reading.run(bytes, read).await?;
    let found = find(&app, &user, &named).map_err(|mut failure| {
        let message = &mut failure.body.error.message;
        *message = format!("{message}; this API downloads no models: {REGISTER}");
        failure
    })?;
    let success = json!({"status": "success"});
    if !stream {
        return Ok(Json(success).into_response());
    }
    let status = json!({"status": status(&app, &found)});
    let lines = [status, success].map(|line| format!("{line}\n")).concat();
    let mut response = lines.into_response();
    let kind = HeaderValue::from_static(STREAM_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

fn status(app: &App, found: &Found) -> String {
    let snapshot = app.handle.snapshot();
    let is_absent = snapshot
        .model(&found.entry.name)
        .is_some_and(|model| model.absent && model.damage.is_none());
    let weights = match (is_absent, found.entry.recipe.is_remote()) {
        (true, _) => "its weights are fetched when it is loaded for the first time",
        (false, true) => "another service runs it",
        (false, false) => "its weights are on this machine",
    };
    format!("{} is registered here; {weights}", tagged(&found.name))
}

fn instead(message: String) -> Failure {
    Failure::new(ErrorKind::NotImplemented, "not_implemented", message)
}

/// Not available: push a model (Ollama)
///
/// Models are not uploaded from here. The 501 says what to do instead.
///
/// Every key may call this.
#[utoipa::path(post, path = "/api/push", tag = "ollama", operation_id = "ollama_push", security(("user_key" = [])),
    request_body(content = Object, description = "Is not read", example = json!({"name": "tiny-chat"})), responses(OllamaErrors))]
pub(super) async fn push(_: User) -> Failure {
    instead("models cannot be pushed from here: copy the model's folder, or upload it to the hub with its own tools".to_owned())
}

/// Not available: create a model (Ollama)
///
/// Models are described by files. The 501 says what to do instead.
///
/// Every key may call this.
#[utoipa::path(post, path = "/api/create", tag = "ollama", operation_id = "ollama_create", security(("user_key" = [])),
    request_body(content = Object, description = "Is not read", example = json!({"name": "mario", "from": "tiny-chat"})), responses(OllamaErrors))]
pub(super) async fn create(_: User) -> Failure {
    instead(format!(
        "Modelfiles are not supported: {REGISTER}; put parameters and stops into engine_config.generation, and a system prompt into the request"
    ))
}

/// The parts of a model that would be created.
pub(super) async fn blobs(_: User) -> Failure {
    instead(format!("this service accepts no uploads: {REGISTER}"))
}

/// Not available: copy a model (Ollama)
///
/// Additional names are set in the model's file. The 501 says what to do instead.
///
/// Every key may call this.
#[utoipa::path(post, path = "/api/copy", tag = "ollama", operation_id = "ollama_copy", security(("user_key" = [])),
    request_body(content = Object, description = "Is not read", example = json!({"source": "tiny-chat", "destination": "mine"})), responses(OllamaErrors))]
pub(super) async fn copy(_: User) -> Failure {
    instead("models cannot be copied here: an administrator can add a name to a model with pool_config.aliases in its file and `admin-client reload`".to_owned())
}

/// Not available: delete a model (Ollama)
///
/// An administrator removes models. The 501 says what to do instead.
///
/// Every key may call this.
#[utoipa::path(delete, path = "/api/delete", tag = "ollama", operation_id = "ollama_delete", security(("user_key" = [])),
    request_body(content = Object, description = "Is not read", example = json!({"name": "tiny-chat"})), responses(OllamaErrors))]
pub(super) async fn delete(_: User) -> Result<Json<Value>, Failure> {
    Err(instead("this API deletes no models: an administrator can remove a registered model with `admin-client remove NAME`, or remove a model's file and use `admin-client reload`".to_owned()))
}
