//! The listener, the routes and the life cycle of an engine: listen, load, serve, stop.
//! One file because the routes are short and share the state of the engine's life cycle.

use crate::adapters::Adapters;
use crate::api_error::ApiError;
use crate::batch::{Batch, BatchSleeper, Generator};
use crate::completion;
use crate::decoder_service::DecoderService;
use crate::encoder;
use crate::error::EngineError;
use crate::loading::{self};
use crate::memory::{MemoryReport, resident_bytes};
use crate::options::{EngineOptions, Listen};
use crate::prepared_request::PreparedRequest;
use crate::progress::Progress;
use crate::readers::Readers;
use crate::sleep::{SleepGate, Sleeper, counted};
use crate::token_routes;
use crate::tokenize_response::TokenizeResponse;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};
use tokio::sync::oneshot;

/// Far more than any context; bounds the memory of request bodies.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The state of the routes.
struct Engine {
    model_name: String,
    started_unix_seconds: u64,
    progress: Progress,
    sleep_gate: Arc<SleepGate>,
    ready: OnceLock<ServedModel>,
    readers: Readers,
}

/// The loaded model.
enum ServedModel {
    Decoder(DecoderService),
    Encoder(Arc<encoder::Service>),
}

impl ServedModel {
    /// The decoder that computes, if there is one.
    fn generator(&self) -> Option<&Generator> {
        match self {
            Self::Decoder(ready) => Some(&ready.model.generator),
            Self::Encoder(service) => service.generator(),
        }
    }
}

/// Maximum number of connections waiting to be accepted in a burst; the operating system caps it.
const BACKLOG: u32 = 4096;

fn listener_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves one model until `shutdown` completes, then accepts no new requests and returns when the running ones are finished; the
/// caller limits how long that may take. Listens before it loads; `GET /health` reports the progress.
///
/// # Errors
/// If the options are invalid, the address is not available, or the model cannot be loaded. The error's `Display` prints
/// one line, suitable as the process's final message.
pub async fn serve(
    options: EngineOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), EngineError> {
    options.validate()?;
    let engine = Arc::new(Engine {
        model_name: options.model_name.clone(),
        started_unix_seconds: crate::calendar::unix_seconds(),
        progress: Progress::default(),
        sleep_gate: Arc::default(),
        ready: OnceLock::new(),
        readers: Readers::new(options.tokenizer_workers),
    });
    let router = router(Arc::clone(&engine));
    match &options.listen {
        Listen::Tcp(address) => {
            let listening = |source| EngineError::Listen {
                address: address.to_string(),
                source,
            };
            let listener = listener_at(*address).map_err(listening)?;
            tracing::info!(address = %listener.local_addr().map_err(listening)?, "listening");
            // Disables Nagle's algorithm: small chunks of a stream must not wait for each other.
            let listener = listener.tap_io(|stream| {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY cannot be set");
                }
            });
            let server = axum::serve(listener, router).with_graceful_shutdown(shutdown);
            run(engine, options, server.into_future()).await
        }
        Listen::Unix(path) => {
            let path = path.clone();
            let listener = bind_unix(&path)
                .await
                .map_err(|source| EngineError::Listen {
                    address: path.display().to_string(),
                    source,
                })?;
            tracing::info!(socket = %path.display(), "listening");
            let server = axum::serve(listener, router).with_graceful_shutdown(shutdown);
            let result = run(engine, options, server.into_future()).await;
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::debug!(%error, "the socket file had already been removed");
            }
            result
        }
    }
}

/// Serves while the model loads; a failed load ends both.
async fn run(
    engine: Arc<Engine>,
    options: EngineOptions,
    server: impl Future<Output = std::io::Result<()>>,
) -> Result<(), EngineError> {
    let (tell, reply) = oneshot::channel();
    let loader = Arc::clone(&engine);
    // A separate thread, because the runtime would wait for a blocking task before the process can exit.
    std::thread::Builder::new()
        .name("load".to_owned())
        .spawn(move || {
            let _ = tell.send(load(&loader, &options));
        })
        .map_err(|error| EngineError::load(format!("cannot start a thread ({error})")))?;
    let failed_load = async {
        match reply.await {
            Ok(Ok(())) => std::future::pending().await,
            Ok(Err(error)) => error,
            Err(_) => EngineError::load("the loading thread panicked"),
        }
    };
    let result = tokio::select! {
        served = server => served.map_err(EngineError::Serve),
        error = failed_load => Err(error),
    };
    engine.progress.cancel();
    result
}

fn load(engine: &Engine, options: &EngineOptions) -> Result<(), EngineError> {
    if let Some(threads) = options.threads
        && let Err(error) = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()
    {
        tracing::warn!(%error, "the number of threads was set before and is not changed");
    }
    if let Some(config) = encoder::config_of(options)? {
        let (model, encoder) = encoder::load(options, &config, &engine.progress)?;
        let service = encoder::Service::start(options.model_name.clone(), model, encoder)?;
        ready_to_encode(engine, service);
        return Ok(());
    }
    let mut files = loading::open(options, &engine.progress)?;
    let purpose = encoder::Purpose::new(&files, options.task)?;
    let model = Arc::new(loading::load(&mut files, options, &engine.progress)?);
    if let Some(service) = encoder::of_decoder(options, purpose, &files, &model)? {
        ready_to_encode(engine, service);
        return Ok(());
    }
    let batch = Arc::new(Batch::start(&model)?);
    let adapters = Adapters::new(&options.adapters);
    adapters.start(&options.adapters, &batch)?;
    let rest = BatchSleeper {
        batch: Arc::clone(&batch),
        files: model.files.clone(),
    };
    let ready = DecoderService {
        model_name: options.model_name.clone(),
        model,
        batch,
        adapters,
        sleepers: vec![Arc::new(rest)],
    };
    tracing::info!(model = %ready.model_name, weights_bytes = ready.model.generator.weights.bytes, "ready");
    let _ = engine.ready.set(ServedModel::Decoder(ready));
    Ok(())
}

fn ready_to_encode(engine: &Engine, service: encoder::Service) {
    let (weights_bytes, _) = service.weights_bytes();
    tracing::info!(model = %service.model_name, weights_bytes, "ready");
    let _ = engine.ready.set(ServedModel::Encoder(Arc::new(service)));
}

/// Binds the socket. Replaces the file of a dead engine, but not a live one.
async fn bind_unix(path: &Path) -> std::io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => match UnixStream::connect(path).await
        {
            Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            _ => Err(error),
        },
        result => result,
    }
}

fn router(engine: Arc<Engine>) -> Router {
    let encoding = encoder::PATHS.into_iter();
    let encoding = encoding.fold(Router::new(), |router, (path, route)| {
        router.route(path, post(move |state, body| encode(state, route, body)))
    });
    encoding
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
    })
}

async fn is_sleeping(State(engine): State<Arc<Engine>>) -> Json<Value> {
    Json(json!({"is_sleeping": engine.sleep_gate.is_asleep()}))
}

async fn models(State(engine): State<Arc<Engine>>) -> Response {
    let context = engine.ready.get().map(|served| match served {
        ServedModel::Decoder(ready) => ready.model.generator.context_tokens,
        ServedModel::Encoder(service) => service.model.texts.limit,
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
        ServedModel::Encoder(_) => Err(ApiError::invalid("this model does not support adapters")),
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
