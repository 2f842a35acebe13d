//! llama.cpp's own routes for code editors and its web page: infilling, its form of completions, and the properties of a model. The
//! properties come from the catalogue, because reading them must not load a model.

use std::pin::pin;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{Method, Request};
use axum::response::Response;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::auth::User;
use crate::inference::admission::RequestContext;
use crate::inference::in_flight::{JSON, engine_error, reach, reach_by};
use crate::inference::request::engine_routes::check_has;
use crate::inference::request::failed::Failed;
use crate::inference::request::outgoing::renamed;
use crate::inference::request::receiving::read;
use crate::inference::request::request_fields::{self, Fate};
use crate::inference::routes::flowing::{TokenScan, flowing};
use crate::inference::routes::model_objects;
use crate::inference::routes::unary_routes::{name_there, named, seated, seated_as};
use crate::inference::understood::{find, known, model};
use crate::openapi::{InferenceErrors, StoredErrors, WaitHeaders};
use crate::state::App;
use api_types::error::Failure;
use api_types::schemas::llama::{InfillRequest, LlamaCompletion, ModelProperties, Voices};
use catalog::{Ask, Entry, ExtraRoute};
use edge::record;

/// Fields without an effect: the engine chooses its slot itself.
const IGNORED: [&str; 1] = ["id_slot"];

/// Infill text between a prefix and a suffix (llama.cpp)
///
/// Needs a model that llama-server, a `CommandEngine` or a `RemoteEngine` runs; others get a 501. If the model is not loaded,
/// the pool loads it and the request waits. The route also exists at `/infill`.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/infill", tag = "completions", operation_id = "infill",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = InfillRequest, example = json!({
        "model": "tiny-guide", "input_prefix": "A priority is ", "input_suffix": " number.", "n_predict": 8
    })),
    responses(
        (status = 200, description = "The text, or with `stream: true` its events", body = LlamaCompletion, example = json!({
            "content": "a", "stop": true, "tokens_predicted": 1, "tokens_evaluated": 12
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn infill(State(app): State<App>, user: User, request: Request<Body>) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(completed(&app, &context, request, ExtraRoute::Infill));
    context.end(&app, work).await
}

/// Create a completion (llama.cpp)
///
/// llama.cpp's own form of a completion. Needs a model that llama-server, a `CommandEngine` or a `RemoteEngine` runs; others
/// get a 501. If the model is not loaded, the pool loads it and the request waits. The route also exists at `/completion`.
///
/// Every key that may use the model may call this.
#[utoipa::path(
    post, path = "/v1/completion", tag = "completions", operation_id = "llama_completion",
    security(("user_key" = [])), params(WaitHeaders),
    request_body(content = InfillRequest, example = json!({
        "model": "tiny-guide", "prompt": "A priority is", "n_predict": 8
    })),
    responses(
        (status = 200, description = "The text, or with `stream: true` its events", body = LlamaCompletion, example = json!({
            "content": " a number.", "stop": true, "tokens_predicted": 3, "tokens_evaluated": 4
        })),
        InferenceErrors,
    )
)]
pub(crate) async fn completion(
    State(app): State<App>,
    user: User,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(completed(&app, &context, request, ExtraRoute::Completion));
    context.end(&app, work).await
}

/// The query, including unknown parameters, which are ignored.
type QueryPairs = Query<Vec<(String, String)>>;

/// Show the properties of a model (llama.cpp)
///
/// The context length, the number of parallel requests, and the input types of the model. Nothing is loaded for this. The route
/// also exists at `/props`.
///
/// Every key that may use the model may call this.
#[utoipa::path(get, path = "/v1/props", tag = "models", operation_id = "get_properties",
    security(("user_key" = [])),
    params(("model" = String, Query, description = "The model's name or an alias.", example = "tiny-guide")),
    responses((status = 200, description = "The properties", body = ModelProperties, example = json!({
        "default_generation_settings": {"n_ctx": 512}, "total_slots": 4, "model_alias": "tiny-guide",
        "modalities": {"vision": false, "audio": false}, "build_info": "model-pool 0.1.0"
    })), StoredErrors))]
pub(crate) async fn props(
    State(app): State<App>,
    user: User,
    Query(query): QueryPairs,
) -> Result<Json<Value>, Failure> {
    let name = needed(query, "/props?model=NAME")?;
    let route = known(&app, &user, &name)?;
    let entry = &route.entry;
    let object = model_objects::one(&app, &user, entry, &name).await;
    Ok(Json(json!({
        "default_generation_settings": {"n_ctx": object.context},
        "total_slots": entry.seats_per_replica,
        "model_alias": name,
        "modalities": {"vision": has(entry, "vision"), "audio": has(entry, "audio")},
        "build_info": concat!("model-pool ", env!("CARGO_PKG_VERSION")),
    })))
}

/// List the voices of a model
///
/// Needs a voice model that a `CommandEngine` or a `RemoteEngine` runs; others get a 501. If the model is not loaded, the pool
/// loads it and the request waits. The engine's response is returned unchanged.
///
/// Every key that may use the model may call this.
#[utoipa::path(get, path = "/v1/audio/voices", tag = "audio", operation_id = "list_voices",
    security(("user_key" = [])),
    params(WaitHeaders, ("model" = String, Query, description = "The name of a voice model or an alias.", example = "tiny-guide")),
    responses((status = 200, description = "The voices", body = Voices, example = json!({"voices": ["default"]})), InferenceErrors))]
pub(crate) async fn voices(
    State(app): State<App>,
    user: User,
    Query(query): QueryPairs,
    request: Request<Body>,
) -> Response {
    let context = RequestContext::new(&app, user, request.headers());
    let work = pin!(listed(&app, &context, query));
    context.end(&app, work).await
}

fn needed(query: Vec<(String, String)>, example: &str) -> Result<String, Failure> {
    let model = query.into_iter().find(|(name, _)| name == "model");
    let model = model.map(|(_, model)| model);
    model.filter(|name| !name.is_empty()).ok_or_else(|| {
        let message = format!("`model` is missing; choose a model from GET /v1/models: {example}");
        Failure::invalid("model".to_owned(), message)
    })
}

fn has(entry: &Entry, capability: &str) -> bool {
    entry.capabilities().any(|word| word == capability)
}

async fn completed(
    app: &App,
    context: &RequestContext,
    request: Request<Body>,
    extra: ExtraRoute,
) -> Result<Response, Failed> {
    let body = read(app, request.into_body()).await?;
    let (scanned, route) = find(app, context, body).await?;
    let name = route.entry.name.clone();
    let fail = |failure: Failure| (Some(name.clone()), failure);
    check_has(&route, extra).map_err(fail)?;
    let (bytes, share) = (scanned.body.len(), record::share());
    let (received, of_model) = (scanned.body, Arc::clone(&route));
    let checked = move || {
        let fate = |name: &str, value: &RawValue| {
            if IGNORED.contains(&name) {
                return Ok(Fate::Ignored);
            }
            request_fields::fate(&of_model.entry, Ask::Infill, name, value)
        };
        renamed(&received, &of_model.entry.name, fate)
    };
    let body = app.reading.run(bytes, checked).await.map_err(fail)?;
    let body = share.charge(body);
    let served = seated_as(app, context, (&route, &scanned.model), bytes);
    let served = served.await.map_err(fail)?;
    let there = name_there(&served, &route, &scanned.model);
    let body = named(app, body, there).await.map_err(fail)?;
    let (served, response) = reach(app, served, extra.engine_path(), (&JSON, body))
        .await
        .map_err(fail)?;
    if !response.status().is_success() {
        served.responded(response.status().as_u16());
        return Ok(engine_error(response, &served).await);
    }
    Ok(flowing(served, response, Some(TokenScan::default())))
}

async fn listed(
    app: &App,
    context: &RequestContext,
    query: Vec<(String, String)>,
) -> Result<Response, Failed> {
    let name = needed(query, "/v1/audio/voices?model=NAME").map_err(|failure| (None, failure))?;
    let route = model(app, context, &name).await?;
    let own = route.entry.name.clone();
    let fail = |failure: Failure| (Some(own.clone()), failure);
    check_has(&route, ExtraRoute::Voices).map_err(fail)?;
    let served = seated(app, context, &route, 0).await.map_err(fail)?;
    let to = (Method::GET, ExtraRoute::Voices.engine_path());
    let (served, response) = reach_by(app, served, to, (&JSON, Bytes::new()))
        .await
        .map_err(fail)?;
    if !response.status().is_success() {
        served.responded(response.status().as_u16());
        return Ok(engine_error(response, &served).await);
    }
    Ok(flowing(served, response, None))
}
