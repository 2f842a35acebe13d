//! `GET /v1/models` and `/v1/models/{id}`, and the errors of routes that are not served. Listing never loads a model.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::auth::User;
use crate::inference::adapters;
use crate::inference::admission;
use crate::inference::routes::model_objects::{self, ModelObject};
use crate::inference::understood::real_name;
use crate::openapi::{ListingErrors, ModelErrors};
use crate::path_params::Path;
use crate::rayllm_names;
use crate::state::App;
use api_types::error::{ErrorKind, Failure};
use api_types::schemas::models::{ModelListing, OneModelListing};
use dialect::anthropic;
use reading::nearest;

/// List the models
///
/// The models that the key may use, loaded or not, and their aliases. Nothing is loaded for this. With the header
/// `anthropic-version`, the list is paginated and in Anthropic's form.
///
/// Every key may call this.
#[utoipa::path(get, path = "/v1/models", tag = "models", operation_id = "list_models",
    security(("user_key" = [])),
    params(
        ("anthropic-version" = Option<String>, Header, description = "Any version: return the models in Anthropic's form."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "In Anthropic's form: the largest number of models on a page. The default is 20."),
        ("after_id" = Option<String>, Query, description = "In Anthropic's form: the page that follows this model."),
        ("before_id" = Option<String>, Query, description = "In Anthropic's form: the page that ends before this model."),
    ),
    responses((status = 200, description = "The models", body = ModelListing, example = json!({
        "object": "list", "data": [{"id": "tiny-guide", "object": "model", "created": 1764000000, "owned_by": "model-pool", "kind": "chat", "aliases": [],
            "max_model_len": 512, "context_length": 512, "meta": {"n_ctx": 512, "n_ctx_train": 512}}]
    })), ListingErrors))]
pub async fn models(
    State(app): State<App>,
    user: User,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let data = model_objects::all(&app, &user).await;
    if anthropic::speaks(&headers) {
        let listed = data
            .iter()
            .map(|model| (model.name.as_str(), model.context));
        let listed: Vec<_> = listed.collect();
        let page = anthropic::page(&uri, &listed, app.started_unix_seconds)?;
        return Ok(Json(page).into_response());
    }
    let data: Vec<Value> = data.iter().map(|model| model.openai(&app)).collect();
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
        "id": "tiny-guide", "object": "model", "created": 1764000000, "owned_by": "model-pool", "kind": "chat", "aliases": [],
        "max_model_len": 512, "context_length": 512, "meta": {"n_ctx": 512, "n_ctx_train": 512}
    })), ModelErrors))]
pub async fn model(
    State(app): State<App>,
    user: User,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let name = real_name(&app, &name).map_or_else(|| name.clone(), str::to_owned);
    let own = app.handle.route(&name).map(|route| (name.clone(), route));
    if own.is_none()
        && let Some(model) = model_objects::of_virtual_model(&app, &user, &name).await
    {
        return Ok(described(&app, &headers, &model));
    }
    let (known, route) = own
        .or_else(|| rayllm_names::route(&app, &name))
        .filter(|(known, route)| user.sight.may_use(&route.entry, known))
        .ok_or_else(|| admission::unknown(&app, &user, &name))?;
    let entry = &route.entry;
    adapters::find(&app, &user, entry, &known).await?;
    let model = model_objects::one(&app, &user, entry, &known).await;
    Ok(described(&app, &headers, &model))
}

/// The model in the form that the client reads.
fn described(app: &App, headers: &HeaderMap, model: &ModelObject) -> Response {
    if anthropic::speaks(headers) {
        let model = anthropic::model_info(&model.name, model.context, app.started_unix_seconds);
        return Json(model).into_response();
    }
    Json(model.openai(app)).into_response()
}

/// Parts of OpenAI's API that are not served, by the first path segment after `/v1/`.
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

/// The paths served below `/v1`.
const SERVED: [&str; 20] = [
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
    "audio/voices",
    "images/generations",
    "images/edits",
    "images/variations",
    "infill",
    "completion",
    "props",
    "tokenize",
    "detokenize",
    "models",
];

/// The path below `/v1` for a client whose base URL lacks it.
pub fn without_v1(path: &str, base: &str) -> Option<String> {
    let (before, below) = match path.strip_prefix(base) {
        Some(below) => (base, below),
        None => ("", path),
    };
    let below = below.trim_matches('/');
    let is_served = SERVED.contains(&below);
    is_served.then(|| format!("{before}/v1/{below}"))
}

/// 404 with an error message in the body.
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
        "{} {} is not supported by this version; supported: /v1/{}",
        request.method(),
        request.uri().path(),
        SERVED.join(", /v1/")
    );
    Failure::new(ErrorKind::NotImplemented, "not_implemented", message)
}
