//! `GET /v1/models` and `/v1/models/{id}`, and the errors of routes that are not served. Listing loads nothing.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::auth::User;
use crate::compat;
use crate::dialect::anthropic;
use crate::error::Failure;
use crate::inference::adapters;
use crate::inference::admission;
use crate::openapi::schemas::models::{ModelListing, OneModelListing};
use crate::openapi::{ListingErrors, ModelErrors};
use crate::path_params::Path;
use crate::state::App;
use reading::nearest;

/// List the models
///
/// The models that the key may use, loaded or not. Nothing is loaded for this. A request with the header
/// `anthropic-version` gets them in Anthropic's form, page by page.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/models", tag = "models", operation_id = "list_models",
    security(("user_key" = [])),
    params(
        ("anthropic-version" = Option<String>, Header, description = "Any version: return the models in Anthropic's form."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "In Anthropic's form: the most models of a page. The default is 20."),
        ("after_id" = Option<String>, Query, description = "In Anthropic's form: the page that follows this model."),
        ("before_id" = Option<String>, Query, description = "In Anthropic's form: the page that ends before this model."),
    ),
    responses((status = 200, description = "The models", body = ModelListing, example = json!({
        "object": "list", "data": [{"id": "tiny-guide", "object": "model", "created": 1764000000, "owned_by": "model-pool"}]
    })), ListingErrors))]
pub(crate) async fn models(
    State(app): State<App>,
    user: User,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let data: Vec<_> = app
        .handle
        .entries()
        .iter()
        .flat_map(|entry| {
            let base = user.sight.may_use_base(entry);
            let base = base.then(|| model_object(&app, &entry.name));
            let mut adapters = entry.adapters.clone();
            if entry.dynamic_adapters.is_some()
                && let Some(route) = app.handle.route(&entry.name)
            {
                adapters.extend(app.handle.known_adapters(&route));
            }
            let adapters = adapters.into_iter().filter(|name| user.sight.has(name));
            let adapters = adapters.map(|name| adapter_object(&app, &name, &entry.name));
            let adapters: Vec<_> = adapters.collect();
            base.into_iter().chain(adapters)
        })
        .collect();
    if anthropic::speaks(&headers) {
        let names = data.iter().filter_map(|it| it["id"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        let page = anthropic::page(&uri, &names, app.started_unix_seconds)?;
        return Ok(Json(page).into_response());
    }
    Ok(Json(json!({ "object": "list", "data": data })).into_response())
}

/// Show one model
///
/// Nothing is loaded for this.
///
/// Every key that may use the model may call this.
#[utoipa::path(get, path = "/v1/models/{model}", tag = "models", operation_id = "get_model",
    security(("user_key" = [])),
    params(
        ("model" = String, Path, description = "The model's name or an alias. A name may have slashes.", example = "tiny-guide"),
        ("anthropic-version" = Option<String>, Header, description = "Any version: return the model in Anthropic's form."),
    ),
    responses((status = 200, description = "The model", body = OneModelListing, example = json!({
        "id": "tiny-guide", "object": "model", "created": 1764000000, "owned_by": "model-pool"
    })), ModelErrors))]
pub(crate) async fn model(
    State(app): State<App>,
    user: User,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let own = app.handle.route(&name).map(|route| (name.clone(), route));
    let (known, route) = own
        .or_else(|| compat::rayllm::route(&app, &name))
        .filter(|(known, route)| user.sight.may_use(&route.entry, known))
        .ok_or_else(|| admission::unknown(&app, &user, &name))?;
    let entry = &route.entry;
    adapters::find(&app, entry, &known).await?;
    if anthropic::speaks(&headers) {
        let name = entry.adapter(&known).unwrap_or(&entry.name);
        let model = anthropic::model_info(name, app.started_unix_seconds);
        return Ok(Json(model).into_response());
    }
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
const OPENAI_ONLY: &[&str] = &[
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

/// What is served below `/v1`.
const SERVED: [&str; 13] = [
    "chat/completions",
    "completions",
    "responses",
    "messages",
    "embeddings",
    "rerank",
    "score",
    "audio/transcriptions",
    "audio/translations",
    "audio/speech",
    "tokenize",
    "detokenize",
    "models",
];

/// The path below `/v1` for a client whose base URL lacks it.
pub(crate) fn without_v1(path: &str, base: &str) -> Option<String> {
    let (before, below) = match path.strip_prefix(base) {
        Some(below) => (base, below),
        None => ("", path),
    };
    let below = below.trim_matches('/');
    let is_served = SERVED.contains(&below);
    is_served.then(|| format!("{before}/v1/{below}"))
}

/// A message in the body, not a bare 404.
pub(crate) async fn not_served(State(app): State<App>, request: Request<Body>) -> Failure {
    let path = request.uri().path();
    let behind = path.split_once("/v1/").map_or("", |(_, rest)| rest);
    let first = behind.split('/').next().unwrap_or_default();
    if !OPENAI_ONLY.contains(&first) {
        let mut failure = Failure::no_route(path, app.base());
        if let Some(near) = nearest(behind, SERVED.into_iter()) {
            let message = &mut failure.body.error.message;
            message.push_str(&format!("; did you mean /v1/{near}?"));
        }
        return failure;
    }
    let message = format!(
        "{} {} is not served by this version; it serves /v1/{}",
        request.method(),
        request.uri().path(),
        SERVED.join(", /v1/")
    );
    Failure::new(
        StatusCode::NOT_IMPLEMENTED,
        "invalid_request_error",
        "not_implemented",
        message,
    )
}
