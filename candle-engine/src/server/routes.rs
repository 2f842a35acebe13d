//! The routes of an engine.

use super::{Engine, ServedModel};
use crate::adapters::Adapters;
use crate::api_error::ApiError;
use crate::batch::Batch;
use crate::completion;
use crate::decoder_service::DecoderService;
use crate::encoder;
use crate::memory::{MemoryReport, resident_bytes};
use crate::prepared_request::PreparedRequest;
use crate::sleep::{Sleeper, counted};
use crate::speech::{self, SpeechService, SpeechTask};
use crate::token_routes;
use crate::tokenize_response::TokenizeResponse;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;

/// Far more than any context; bounds the memory of request bodies.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(super) fn router(engine: Arc<Engine>) -> Router {
    let encoding = encoder::PATHS.into_iter();
    let encoding = encoding.fold(Router::new(), |router, (path, route)| {
        router.route(path, post(move |state, body| encode(state, route, body)))
    });
    let routes = speech::PATHS
        .into_iter()
        .fold(encoding, |router, (path, task)| {
            let speak = post(move |state, request| transcribe(state, task, request));
            router.route(
                path,
                speak.layer(DefaultBodyLimit::max(speech::FORM_BYTES_MAX)),
            )
        });
    routes
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(completions))
        .route("/tokenize", post(tokenize))
        .route("/v1/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/v1/detokenize", post(detokenize))
        .route(
            "/v1/load_lora_adapter",
            post(|state, body| change_adapters(state, Adapters::load_from_request, body)),
        )
        .route(
            "/v1/unload_lora_adapter",
            post(|state, body| change_adapters(state, Adapters::unload_from_request, body)),
        )
        .route_layer(from_fn_with_state(Arc::clone(&engine), refuse_while_asleep))
        .route("/health", get(health))
        .route("/memory", get(memory))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/sleep", post(sleep))
        .route("/wake_up", post(wake_up))
        .route("/is_sleeping", get(is_sleeping))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(engine)
}

async fn health(State(engine): State<Arc<Engine>>) -> Response {
    if engine.ready.get().is_some() {
        let status = if engine.sleep_gate.is_asleep() {
            "asleep"
        } else {
            "ready"
        };
        return Json(json!({"status": status})).into_response();
    }
    let (stage, percent) = engine.progress.read();
    (
        StatusCode::SERVICE_UNAVAILABLE,
        Json(json!({"status": "loading", "stage": stage, "percent": percent})),
    )
        .into_response()
}

/// Refuses requests that need computation while the engine sleeps.
async fn refuse_while_asleep(
    State(engine): State<Arc<Engine>>,
    request: Request,
    next: Next,
) -> Response {
    match engine.sleep_gate.enter() {
        Ok(awake_request) => counted(awake_request, next.run(request).await),
        Err(error) => error.into_response(),
    }
}

/// Responds once the engine sleeps, after running requests have finished.
async fn sleep(State(engine): State<Arc<Engine>>) -> Result<(), ApiError> {
    engine.sleep_gate.sleep(sleepers(&engine)?).await
}

/// Responds once requests are accepted again.
async fn wake_up(State(engine): State<Arc<Engine>>) -> Result<(), ApiError> {
    engine.sleep_gate.wake(sleepers(&engine)?).await
}

fn sleepers(engine: &Engine) -> Result<Vec<Arc<dyn Sleeper>>, ApiError> {
    Ok(match engine.ready.get().ok_or_else(still_loading)? {
        ServedModel::Decoder(ready) => ready.sleepers.clone(),
        ServedModel::Encoder(service) => service.sleepers(),
        ServedModel::Speech(service) => service.sleepers(),
    })
}

async fn is_sleeping(State(engine): State<Arc<Engine>>) -> Json<Value> {
    Json(json!({"is_sleeping": engine.sleep_gate.is_asleep()}))
}

async fn models(State(engine): State<Arc<Engine>>) -> Response {
    let context = engine.ready.get().map(|served| match served {
        ServedModel::Decoder(ready) => ready.model.generator.context_tokens,
        ServedModel::Encoder(service) => service.model.texts.limit,
        ServedModel::Speech(service) => service.model.context_tokens,
    });
    let model = json!({
        "id": engine.model_name, "object": "model", "created": engine.started_unix_seconds, "owned_by": "candle-engine", "max_model_len": context,
    });
    let mut data = vec![model];
    if let Some(ServedModel::Decoder(ready)) = engine.ready.get() {
        data.extend(ready.adapters.names().into_iter().map(|name| {
            json!({
                "id": name, "object": "model", "created": engine.started_unix_seconds, "owned_by": "candle-engine",
                "max_model_len": context, "parent": engine.model_name,
            })
        }));
    }
    Json(json!({"object": "list", "data": data})).into_response()
}

async fn memory(State(engine): State<Arc<Engine>>) -> Response {
    let served = engine.ready.get();
    let generator = served.and_then(ServedModel::generator);
    let (weights_bytes, mapped_bytes) = served.map_or((0, 0), |served| match served {
        ServedModel::Decoder(ready) => {
            let weights = &ready.model.generator.weights;
            (weights.bytes, weights.mapped_bytes)
        }
        ServedModel::Encoder(service) => service.weights_bytes(),
        ServedModel::Speech(service) => (service.model.weights_bytes, service.model.mapped_bytes),
    });
    // While the engine sleeps, the kernel may evict mapped pages.
    let weights_mapped_bytes = u64::from(!engine.sleep_gate.is_asleep()) * mapped_bytes;
    Json(MemoryReport {
        weights_bytes,
        weights_mapped_bytes,
        kv_cache_bytes_max: generator.map_or(0, |generator| generator.kv_cache_bytes_max()),
        kv_cache_bytes_used: generator.map_or(0, |generator| generator.kv_cache_bytes_used()),
        resident_bytes: resident_bytes(),
    })
    .into_response()
}

async fn metrics(State(engine): State<Arc<Engine>>) -> Response {
    let generator = engine.ready.get().and_then(ServedModel::generator);
    let text =
        generator.map(|generator| generator.gauges.text(generator.pages, generator.page_bytes));
    let mut text = text.unwrap_or_default() + &engine.readers.text();
    if let Some(ServedModel::Decoder(ready)) = engine.ready.get() {
        text += &ready.model.grammars.text();
    }
    let form = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (form, text).into_response()
}

async fn chat_completions(
    State(engine): State<Arc<Engine>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    respond(engine, body, completion::chat).await
}

async fn completions(
    State(engine): State<Arc<Engine>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    respond(engine, body, completion::complete).await
}

/// Changes the adapters. Runs to completion even if the client disconnects, which keeps table and network consistent.
async fn change_adapters(
    State(engine): State<Arc<Engine>>,
    change: fn(&Adapters, &Batch, &[u8]) -> Result<String, ApiError>,
    body: Result<Bytes, BytesRejection>,
) -> Result<String, ApiError> {
    let body = body.map_err(wrong_body)?;
    let changing = move || match engine.ready.get().ok_or_else(still_loading)? {
        ServedModel::Decoder(ready) => change(&ready.adapters, &ready.batch, &body),
        ServedModel::Encoder(_) | ServedModel::Speech(_) => {
            Err(ApiError::invalid("this model does not support adapters"))
        }
    };
    let changed = tokio::task::spawn_blocking(changing).await;
    changed.unwrap_or_else(|_| Err(ApiError::internal("the adapters could not be changed")))
}

async fn tokenize(
    State(engine): State<Arc<Engine>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<TokenizeResponse, ApiError> {
    let encoder = encoder::Service::tokenize;
    work_on(engine, body, token_routes::tokenize, encoder).await
}

async fn detokenize(
    State(engine): State<Arc<Engine>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, ApiError> {
    let encoder = encoder::Service::detokenize;
    work_on(engine, body, token_routes::detokenize, encoder)
        .await
        .map(Json)
}

async fn respond(
    engine: Arc<Engine>,
    body: Result<Bytes, BytesRejection>,
    prepare: fn(&DecoderService, &[u8]) -> Result<PreparedRequest, ApiError>,
) -> Response {
    let encoder = |service: &encoder::Service, _: &[u8]| Err(service.is_for_something_else("text"));
    let prepared = match work_on(Arc::clone(&engine), body, prepare, encoder).await {
        Ok(prepared) => prepared,
        Err(error) => return error.into_response(),
    };
    let Some(ServedModel::Decoder(ready)) = engine.ready.get() else {
        return still_loading().into_response();
    };
    match prepared.start(ready).await {
        Ok(response) => response.into_http().await,
        Err(error) => error.into_response(),
    }
}

/// Processes a body on a blocking thread: long texts take milliseconds or more.
async fn work_on<T: Send + 'static>(
    engine: Arc<Engine>,
    body: Result<Bytes, BytesRejection>,
    work: fn(&DecoderService, &[u8]) -> Result<T, ApiError>,
    with_encoder: fn(&encoder::Service, &[u8]) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let body = body.map_err(wrong_body)?;
    let own = Arc::clone(&engine);
    let work = move || match own.ready.get().ok_or_else(still_loading)? {
        ServedModel::Decoder(ready) => work(ready, &body),
        ServedModel::Encoder(service) => with_encoder(service, &body),
        ServedModel::Speech(service) => Err(service.is_for_something_else("text")),
    };
    engine.readers.run(work).await
}

/// Embeddings, reranking and scores.
async fn encode(
    State(engine): State<Arc<Engine>>,
    route: encoder::Route,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = body.map_err(wrong_body)?;
    match engine.ready.get().ok_or_else(still_loading)? {
        ServedModel::Encoder(service) => Arc::clone(service).respond(route, body).await,
        ServedModel::Speech(service) => Err(service.is_for_something_else(route.noun())),
        ServedModel::Decoder(ready) => Err(ApiError {
            code: Some("unsupported_operation"),
            ..ApiError::field(
                "model",
                format!(
                    "the model `{}` generates text and does not compute {}; use /v1/chat/completions or /v1/completions, or serve it with the task embed or rerank if it supports that",
                    ready.model_name,
                    route.noun()
                ),
            )
        }),
    }
}

/// Transcriptions and translations of speech.
async fn transcribe(
    State(engine): State<Arc<Engine>>,
    task: SpeechTask,
    request: Request,
) -> Result<Response, ApiError> {
    let service: Arc<SpeechService> = match engine.ready.get().ok_or_else(still_loading)? {
        ServedModel::Speech(service) => Arc::clone(service),
        ServedModel::Encoder(service) => return Err(service.is_for_something_else("speech")),
        ServedModel::Decoder(ready) => {
            return Err(ApiError {
                code: Some("unsupported_operation"),
                ..ApiError::field(
                    "model",
                    format!(
                        "the model `{}` generates text and does not transcribe speech; use /v1/chat/completions or /v1/completions, or serve a Whisper model",
                        ready.model_name
                    ),
                )
            });
        }
    };
    service.respond(task, request).await
}

fn wrong_body(rejection: BytesRejection) -> ApiError {
    ApiError::with_status(rejection.status(), "invalid_body", rejection.body_text())
}

fn still_loading() -> ApiError {
    ApiError::with_status(
        StatusCode::SERVICE_UNAVAILABLE,
        "model_loading",
        "the model is still loading; try again in a moment",
    )
}

async fn unknown_route(method: Method, uri: Uri) -> ApiError {
    ApiError::with_status(
        StatusCode::NOT_FOUND,
        "unknown_url",
        format!("unknown route: {method} {}", uri.path()),
    )
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::with_status(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not take {method}", uri.path()),
    )
}
