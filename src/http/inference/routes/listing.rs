//! Which models there are, as OpenAI's clients ask; and what is said of routes that are not served. Listing
//! loads nothing.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::auth::User;
use crate::compat;
use crate::error::{ErrorBody, Failure};
use crate::inference::admission;
use crate::state::App;

/// Which models there are. Listing them loads nothing.
#[utoipa::path(get, path = "/v1/models", tag = "inference",
    responses((status = 200, description = "OpenAI's list of models", example = json!({
        "object": "list", "data": [{"id": "tiny-guide", "object": "model", "created": 1764000000, "owned_by": "model-pool"}]
    })), (status = 401, description = "An API key is needed", body = ErrorBody)))]
pub(crate) async fn models(State(app): State<App>, user: User) -> Response {
    let data: Vec<_> = app
        .handle
        .entries()
        .iter()
        .flat_map(|entry| {
            let base = user.sight.may_use_base(entry);
            let base = base.then(|| model_object(&app, &entry.name));
            let adapters = entry.adapters.iter().filter(|name| user.sight.has(name));
            let adapters = adapters.map(|name| adapter_object(&app, name, &entry.name));
            base.into_iter().chain(adapters)
        })
        .collect();
    Json(json!({ "object": "list", "data": data })).into_response()
}

/// One model; ids may have slashes.
#[utoipa::path(get, path = "/v1/models/{model}", tag = "inference",
    params(("model" = String, Path, description = "The model's id or an alias", example = "tiny-guide")),
    responses((status = 200, description = "OpenAI's model object"),
        (status = 401, description = "An API key is needed", body = ErrorBody), (status = 404, description = "No such model", body = ErrorBody)))]
pub(crate) async fn model(
    State(app): State<App>,
    user: User,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let own = app.handle.route(&name).map(|route| (name.clone(), route));
    let (known, route) = own
        .or_else(|| compat::rayllm::route(&app, &name))
        .filter(|(known, route)| user.sight.may_use(&route.entry, known))
        .ok_or_else(|| Failure::unknown_model(&name, &admission::closest(&app, &user, &name)))?;
    let entry = &route.entry;
    let object = match entry.adapter(&known) {
        Some(adapter) => adapter_object(&app, adapter, &entry.name),
        None => model_object(&app, &entry.name),
    };
    Ok(Json(object).into_response())
}

/// The catalogue does not know when weights were made; the start of the service is what it can say.
fn model_object(app: &App, name: &str) -> serde_json::Value {
    let object = json!({ "id": name, "object": "model", "created": app.started_unix_seconds, "owned_by": "model-pool" });
    compat::rayllm::described(app, name, object)
}

/// As vLLM tells it: the model whose adapter it is.
fn adapter_object(app: &App, name: &str, base: &str) -> serde_json::Value {
    let mut object = model_object(app, name);
    object["parent"] = json!(base);
    object
}

/// Parts of OpenAI's API, by the first word behind `/v1/`; what begins with another exists nowhere.
const KNOWN_ELSEWHERE: &[&str] = &[
    "assistants",
    "audio",
    "batches",
    "containers",
    "conversations",
    "evals",
    "files",
    "fine_tuning",
    "images",
    "messages",
    "moderations",
    "organization",
    "realtime",
    "responses",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
];

/// Said in words, not by a bare 404.
pub(crate) async fn not_served(State(app): State<App>, request: Request<Body>) -> Failure {
    let path = request.uri().path();
    let behind = path.split_once("/v1/").map_or("", |(_, rest)| rest);
    let first = behind.split('/').next().unwrap_or_default();
    if !KNOWN_ELSEWHERE.contains(&first) {
        return Failure::no_route(path, app.config.server.base_path.as_str());
    }
    let message = format!(
        "{} {} is not served by this version; it serves /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/embeddings, /v1/rerank, /v1/score, /v1/audio/transcriptions, /v1/audio/translations, /v1/audio/speech, /v1/tokenize, /v1/detokenize and /v1/models",
        request.method(),
        request.uri().path()
    );
    Failure::new(
        StatusCode::NOT_IMPLEMENTED,
        "invalid_request_error",
        "not_implemented",
        message,
    )
}
