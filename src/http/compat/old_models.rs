//! LLM Serving's list of models, and its test of a model. Neither loads a model.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use api_types::error::{ErrorKind, Failure};
use api_types::schemas::older_systems::{OldModels, TestModelRequest};
use catalog::{Entry, ExtraRoute};
use gateway::auth::User;
use gateway::fields::{self, Fields, OrderFields, Strict};
use gateway::inference::routes::completions;
use gateway::inference::understood;
use gateway::openapi::{InferenceErrors, ListingErrors};
use gateway::state::App;
use pool::{ModelState, ModelView, ReplicaState};

/// Largest number of files examined in a model's folder.
const FILES_MAX: usize = 10_000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(models))
        .routes(routes!(test))
}

/// List loaded models and models on disk (LLM Serving)
///
/// Nothing is loaded for this.
///
/// Every key may call this.
#[utoipa::path(get, path = "/models", tag = "older systems", operation_id = "old_models", security(("user_key" = [])),
    responses((status = 200, description = "The models", body = OldModels, example = json!({
        "hot_models": [{"model_name": "tiny-chat", "model_type": "vllm_openai", "status": "Running", "num_replicas": 1, "priority": 1,
            "gpus_per_replica": 1, "route_prefix": "/llm", "created_time": "2026-01-31 08:15"}],
        "cached_models": [{"model-name": "tiny-chat", "model-size": "13.5G", "last-modified-time": "2026-01-30 17:02"}]
    })), ListingErrors))]
async fn models(State(app): State<App>, user: User) -> Result<Json<Value>, Failure> {
    let snapshot = app.handle.snapshot();
    let hot = snapshot.pool.models.iter().filter_map(|model| {
        let entry = &snapshot.models.get(&model.model)?.entry;
        let is_shown = user.sight.may_use_base(entry);
        let shown = hot(&app, model, entry)?;
        is_shown.then_some(shown)
    });
    let hot: Vec<Value> = hot.collect();
    let mut entries = app.handle.entries();
    entries.retain(|entry| user.sight.may_use_base(entry));
    // Reads metadata of files, which may block for as long as the disk takes.
    let cached = tokio::task::spawn_blocking(move || {
        let cached = entries.iter().filter_map(|entry| cached(entry));
        cached.collect::<Vec<Value>>()
    });
    let cached = cached.await;
    let cached = cached
        .map_err(|error| Failure::internal(format!("the disk could not be read: {error}")))?;
    Ok(Json(json!({"hot_models": hot, "cached_models": cached})))
}

/// The entry for a model with replicas, in the old service's form; `None` without replicas.
fn hot(app: &App, model: &ModelView, entry: &Entry) -> Option<Value> {
    let status = match model.state {
        ModelState::Ready => "Running",
        ModelState::Loading => "Deploying",
        _ => return None,
    };
    let states = [
        ReplicaState::Ready,
        ReplicaState::Planned,
        ReplicaState::Launching,
    ];
    let replicas = model
        .replicas
        .iter()
        .filter(|replica| states.contains(&replica.state));
    let since = model
        .replicas
        .iter()
        .filter_map(|replica| replica.ready_at)
        .min();
    let since = since.and_then(|at| DateTime::from_timestamp_millis(i64::try_from(at.0).ok()?));
    Some(json!({
        "model_name": model.name,
        "model_type": kind(entry),
        "status": status,
        "num_replicas": replicas.count(),
        "priority": model.priority.0,
        "gpus_per_replica": if entry.recipe.is_remote() { 0 } else { model.devices_per_replica },
        "route_prefix": app.base(),
        "created_time": since.map(minutes),
    }))
}

fn kind(entry: &Entry) -> &'static str {
    if entry.recipe.generates() || !entry.recipe.has(ExtraRoute::Embeddings) {
        "vllm_openai"
    } else {
        "embedding"
    }
}

fn minutes(moment: DateTime<Utc>) -> String {
    moment.format("%Y-%m-%d %H:%M").to_string()
}

/// The entry for a model whose weights are on this machine. Blocks.
fn cached(entry: &Entry) -> Option<Value> {
    if entry.fetch.as_ref().is_some_and(|fetch| !fetch.is_here()) {
        return None;
    }
    let (bytes, modified) = size_of(&entry.weights_path()?)?;
    Some(json!({
        "model-name": entry.name,
        "model-size": size(bytes),
        "last-modified-time": modified.map(|at| minutes(at.into())),
    }))
}

/// The total size of a file or folder, and the time of the latest change.
fn size_of(path: &Path) -> Option<(u64, Option<SystemTime>)> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_file() {
        return Some((metadata.len(), metadata.modified().ok()));
    }
    let files = std::fs::read_dir(path).ok()?.take(FILES_MAX);
    let files: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    // In a cache, the files are links to the data.
    let files = files.iter().filter_map(|file| std::fs::metadata(file).ok());
    let mut sums = (0, None);
    for file in files.filter(std::fs::Metadata::is_file) {
        sums.0 += file.len();
        sums.1 = sums.1.max(file.modified().ok());
    }
    (sums.0 > 0).then_some(sums)
}

/// Formats a size as the hub's tools do: `13.5G`.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["", "K", "M", "G", "T"] {
        if value < 1000.0 || unit == "T" {
            return match unit {
                "" => format!("{value:.1}"),
                unit => format!("{value:.1}{unit}"),
            };
        }
        value /= 1000.0;
    }
    String::new()
}

struct Test {
    model: String,
}

impl Strict for Test {
    fn read(fields: &mut Fields) -> Result<Test, Failure> {
        let model = fields.needed_text("model", "\"org/model\"; GET /v1/models lists them")?;
        for name in ["num_replicas", "gpus_per_replica", "priority"] {
            fields.integer(name, 0..=1_000_000)?;
        }
        Ok(Test { model })
    }
}

/// Test a loaded model (LLM Serving)
///
/// Has the model generate a token. A model that is not loaded gets a 503 that states its state: a test loads nothing.
///
/// Every key that may use the model may call this.
#[utoipa::path(post, path = "/test", tag = "older systems", operation_id = "old_test", security(("user_key" = [])),
    request_body(content = TestModelRequest, example = json!({"model": "tiny-chat"})),
    responses((status = 200, description = "The model answers", body = String, content_type = "application/json",
        example = json!("Model tiny-chat answers.")), InferenceErrors))]
async fn test(
    State(app): State<App>,
    user: User,
    headers: HeaderMap,
    fields::Body(test): fields::Body<Test>,
) -> Result<Response, Failure> {
    let name = test.model;
    let route = understood::known(&app, &user, &name)?;
    let own = &route.entry.name;
    let snapshot = app.handle.snapshot();
    let state = snapshot.model(own).map(|model| model.state);
    if state != Some(ModelState::Ready) {
        let state = state.map_or("cold", ModelState::name);
        return Err(Failure::new(
            ErrorKind::Unavailable,
            "not_loaded",
            format!("{name} is {state}, and a test loads nothing; send a request to load it"),
        ));
    }
    let works = || Json(format!("Model {name} answers.")).into_response();
    // Other models are ready exactly if the health check of their engine succeeds.
    if !route.entry.recipe.generates() {
        return Ok(works());
    }
    let body = json!({"model": name, "prompt": "a", "max_tokens": 1});
    let mut request = Request::new(Body::from(body.to_string()));
    *request.headers_mut() = headers;
    request.headers_mut().remove(header::CONTENT_LENGTH);
    let kind = HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::CONTENT_TYPE, kind);
    let response = completions::completions(State(app), user, request).await;
    Ok(if response.status().is_success() {
        works()
    } else {
        response
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_like_by_the_hubs_tools() {
        for (bytes, expected) in [(12, "12.0"), (13_476_000_000, "13.5G"), (1_500, "1.5K")] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn the_size_of_a_folder_is_the_sum_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(size_of(folder.path()), None);
        std::fs::write(folder.path().join("a"), [0; 5]).unwrap();
        std::fs::write(folder.path().join("b"), [0; 7]).unwrap();
        let (bytes, modified) = size_of(folder.path()).unwrap();
        assert_eq!((bytes, modified.is_some()), (12, true));
    }
}
