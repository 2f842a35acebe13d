//! vLLM's routes: health, models, completions, metrics, and the sleep routes if enabled. `response.rs` writes the responses,
//! `sglang.rs` has SGLang's routes.
//! One file because it is the table of one server's routes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::flags::{Flags, Form};
use crate::gpu::Gpu;
use crate::metrics::Numbers;
use crate::response::DoubleResponse;
use crate::sleep::SleepState;
use crate::tools::{SpecialOutput, has_tools};
use crate::{log, milliseconds, number, sglang};

pub struct Server {
    pub flags: Flags,
    gpu: Arc<Gpu>,
    numbers: Numbers,
    parked: SleepState,
    /// Adapters that were loaded at run time.
    adapters: Mutex<BTreeSet<String>>,
}

pub type Shared = State<Arc<Server>>;

impl Server {
    pub fn new(flags: Flags, gpu: Arc<Gpu>) -> Arc<Server> {
        Arc::new(Server {
            flags,
            gpu,
            numbers: Numbers::default(),
            parked: SleepState::default(),
            adapters: Mutex::default(),
        })
    }
}

pub fn router(server: Arc<Server>) -> Router {
    if server.flags.form == Form::Sglang {
        return sglang::routes()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(chat))
            .route("/v1/completions", post(text))
            .with_state(server);
    }
    let is_development = number("VLLM_SERVER_DEV_MODE", 0) == 1;
    let mut router = Router::new()
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/ping", get(|| async { StatusCode::OK }))
        .route(
            "/version",
            get(|| async { Json(json!({"version": "0.33.0"})) }),
        )
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(text));
    if server.flags.takes_adapters {
        router = router
            .route("/v1/load_lora_adapter", post(load_adapter))
            .route("/v1/unload_lora_adapter", post(unload_adapter));
    }
    if is_development {
        router = router
            .route("/sleep", post(fall_asleep))
            .route("/wake_up", post(wake_up))
            .route("/is_sleeping", get(is_sleeping))
            .route("/collective_rpc", post(collective_rpc));
    }
    router.with_state(server)
}

impl Server {
    pub fn adapters(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a request's model is a loaded adapter.
    fn is_adapter(&self, model: &str) -> bool {
        let base = self.flags.served.first();
        let name = match self.flags.form {
            Form::Vllm => Some(model),
            Form::Sglang => base
                .and_then(|base| model.strip_prefix(base.as_str()))
                .and_then(|rest| rest.strip_prefix(':')),
        };
        name.is_some_and(|name| self.adapters().contains(name))
    }
}

/// `POST /v1/load_lora_adapter`.
async fn load_adapter(State(server): Shared, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (Some(name), Some(path)) = (request["lora_name"].as_str(), request["lora_path"].as_str())
    else {
        return error(
            StatusCode::BAD_REQUEST,
            "InvalidUserInput",
            "Both 'lora_name' and 'lora_path' must be provided.",
        );
    };
    if let Ok(why) = std::env::var("VLLM_DOUBLE_REFUSE_ADAPTERS") {
        return error(StatusCode::BAD_REQUEST, "BadRequestError", &why);
    }
    if !std::path::Path::new(path)
        .join("adapter_config.json")
        .is_file()
    {
        let message = format!("Loading lora {name} failed: No adapter found for {path}");
        return error(StatusCode::NOT_FOUND, "NotFoundError", &message);
    }
    let mut adapters = server.adapters();
    if !adapters.insert(name.to_owned()) {
        let message = format!(
            "The lora adapter '{name}' has already been loaded. If you want to load the LoRA adapter in place, set 'load_inplace' to True."
        );
        return error(StatusCode::BAD_REQUEST, "InvalidUserInput", &message);
    }
    log::line(&format!(
        "loaded adapter {name} ({} of {})",
        adapters.len(),
        server.flags.max_loras
    ));
    format!("Success: LoRA adapter '{name}' added successfully.").into_response()
}

/// `POST /v1/unload_lora_adapter`.
async fn unload_adapter(State(server): Shared, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = request["lora_name"].as_str().unwrap_or_default();
    if !server.adapters().remove(name) {
        let message = format!("The lora adapter '{name}' cannot be found.");
        return error(StatusCode::NOT_FOUND, "NotFoundError", &message);
    }
    log::line(&format!("unloaded adapter {name}"));
    format!("Success: LoRA adapter '{name}' removed successfully.").into_response()
}

fn error(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": status.as_u16()}});
    (status, Json(body)).into_response()
}

fn failed(message: &str) -> Response {
    eprintln!("{message}");
    error(
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalServerError",
        message,
    )
}

async fn models(State(server): Shared) -> Json<Value> {
    let model = |name: &String| {
        json!({
            "id": name, "object": "model", "created": 1_700_000_000, "owned_by": "vllm",
            "root": server.flags.model, "parent": null, "max_model_len": server.flags.max_model_len,
        })
    };
    let mut all: Vec<Value> = server.flags.served.iter().map(model).collect();
    let adapters = server.adapters();
    all.extend(adapters.iter().map(|name| {
        let mut model = model(name);
        model["parent"] = json!(server.flags.served.first());
        model
    }));
    drop(adapters);
    Json(json!({"object": "list", "data": all}))
}

async fn metrics(State(server): Shared) -> Response {
    let name = server.flags.served.first().cloned().unwrap_or_default();
    let asleep = server.parked.is_asleep();
    let text = server
        .numbers
        .text(&name, server.flags.max_num_seqs, asleep);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn chat(State(server): Shared, headers: HeaderMap, body: Bytes) -> Response {
    complete(server, true, &headers, &body).await
}

async fn text(State(server): Shared, headers: HeaderMap, body: Bytes) -> Response {
    complete(server, false, &headers, &body).await
}

async fn complete(
    server: Arc<Server>,
    is_chat: bool,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    if let Some(key) = &server.flags.api_key {
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        if given != Some(&format!("Bearer {key}")) {
            return error(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
        }
    }
    let request: Value = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(problem) => {
            return error(
                StatusCode::BAD_REQUEST,
                "BadRequestError",
                &problem.to_string(),
            );
        }
    };
    let model = request["model"].as_str().unwrap_or_default();
    if !server.is_adapter(model) && !server.flags.served.iter().any(|name| name == model) {
        let message = format!("The model `{model}` does not exist.");
        return error(StatusCode::NOT_FOUND, "NotFoundError", &message);
    }
    if server.parked.is_asleep() || server.parked.lacks_weights() {
        // vLLM would access memory that has been released.
        return failed("EngineDeadError: a request came while the engine was asleep");
    }
    let most = number("VLLM_DOUBLE_TOKENS", 5);
    let response = match DoubleResponse::to(is_chat, &request, most) {
        Ok(response) => response.with(SpecialOutput::new(&server.flags, is_chat, &request)),
        Err(problem) => return error(StatusCode::BAD_REQUEST, "BadRequestError", &problem),
    };
    if let Some(problem) = before_stream(&server.flags, &request) {
        return error(StatusCode::BAD_REQUEST, "BadRequestError", &problem);
    }
    if let Some(problem) = in_stream(&request) {
        return if response.is_stream {
            stream_with(&problem)
        } else {
            error(StatusCode::BAD_REQUEST, "BadRequestError", &problem)
        };
    }
    if dies() {
        return end();
    }
    let counted = RequestGuard::begin(server, response.prompt_tokens());
    if response.is_stream {
        return stream_of(response, counted);
    }
    counted.0.numbers.plain.fetch_add(1, Ordering::Relaxed);
    for _ in 0..response.tokens {
        counted.token().await;
    }
    let whole = response.whole();
    counted.done();
    Json(whole).into_response()
}

/// Checks that vLLM makes before it starts a stream. A word counts as a token.
fn before_stream(flags: &Flags, request: &Value) -> Option<String> {
    if request["prompt"] == json!("") {
        let problem =
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)";
        return Some(problem.to_owned());
    }
    let texts = request["messages"].as_array().into_iter().flatten();
    let texts = texts
        .map(|message| &message["content"])
        .chain([&request["prompt"]]);
    let words = |text: &Value| {
        text.as_str()
            .map_or(0, |text| text.split_whitespace().count())
    };
    let tokens: usize = texts.map(words).sum();
    if tokens as u64 > flags.max_model_len {
        return Some(format!(
            "This model's maximum context length is {} tokens. However, your prompt contains at least {tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
            flags.max_model_len
        ));
    }
    if !has_tools(request) {
        return None;
    }
    let choice = &request["tool_choice"];
    let has_parser = flags.tool_parser.is_some();
    let needs = match (choice["function"]["name"].as_str(), choice.as_str()) {
        (Some(name), _) if !has_parser => {
            format!("tool_choice=function \"{name}\" requires --tool-call-parser")
        }
        (None, Some("required")) if !has_parser => {
            "tool_choice=\"required\" requires --tool-call-parser".to_owned()
        }
        (None, None | Some("auto")) if !flags.reads_tools => {
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser"
                .to_owned()
        }
        _ => return None,
    };
    Some(format!("{needs} to be set"))
}

/// Checks that vLLM makes in its core, after the stream has started with 200.
fn in_stream(request: &Value) -> Option<String> {
    let most = request["top_logprobs"]
        .as_u64()
        .filter(|count| *count > 20)?;
    Some(format!(
        "Requested sample logprobs of {most}, which is greater than max allowed: 20 (parameter=logprobs, value={most})"
    ))
}

/// A stream that consists of an error.
fn stream_with(problem: &str) -> Response {
    let error = json!({"error": {"message": problem, "type": "BadRequestError", "param": null, "code": 400}});
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (headers, format!("data: {error}\n\ndata: [DONE]\n\n")).into_response()
}

/// Returns true if the core must end at this request: always with `VLLM_DOUBLE_DIES`, and with `VLLM_DOUBLE_DIE_ONCE` unless its
/// file exists.
fn dies() -> bool {
    let once = std::env::var_os("VLLM_DOUBLE_DIE_ONCE");
    let is_first = |path: std::ffi::OsString| {
        let made = std::fs::File::options()
            .write(true)
            .create_new(true)
            .open(path);
        made.is_ok()
    };
    number("VLLM_DOUBLE_DIES", 0) == 1 || once.is_some_and(is_first)
}

/// vLLM's error message after its core has ended.
const FAREWELL: &str =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";

/// Responds with 500 and exits shortly after with status 0, as vLLM does when its core has ended.
fn end() -> Response {
    begin_end();
    error(
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalServerError",
        FAREWELL,
    )
}

fn begin_end() {
    let process = std::process::id();
    println!(
        "(EngineCore pid={process}) ERROR 01-01 00:00:00 [core.py:1512] RuntimeError: the core is dead on purpose"
    );
    println!(
        "(APIServer pid={process}) ERROR 01-01 00:00:00 [async_llm.py:906] AsyncLLM output_handler failed."
    );
    println!(
        "(APIServer pid={process}) ERROR 01-01 00:00:00 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
    );
    // Delayed like the real server, which stops its workers first.
    std::thread::spawn(move || {
        std::thread::park_timeout(std::time::Duration::from_millis(700));
        eprintln!("INFO:     Shutting down");
        eprintln!("INFO:     Finished server process [{process}]");
        std::process::exit(0);
    });
}

/// Counts a request until it is dropped.
struct RequestGuard(Arc<Server>);

impl RequestGuard {
    fn begin(server: Arc<Server>, prompt_tokens: u64) -> RequestGuard {
        server.numbers.running.fetch_add(1, Ordering::Relaxed);
        server
            .numbers
            .prompt_tokens
            .fetch_add(prompt_tokens, Ordering::Relaxed);
        RequestGuard(server)
    }

    /// With `VLLM_DOUBLE_FREEZES_AFTER` the core freezes after this number of tokens, while the server still responds.
    async fn token(&self) {
        let last = number("VLLM_DOUBLE_FREEZES_AFTER", u64::MAX);
        if self.0.numbers.tokens.load(Ordering::Relaxed) >= last {
            return std::future::pending().await;
        }
        let pause = milliseconds("VLLM_DOUBLE_TOKEN_MS", 0);
        if !pause.is_zero() {
            sleep(pause).await;
        }
        self.0.numbers.tokens.fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self) {
        self.0.numbers.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.numbers.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client that disconnects drops the stream, which stops the work. With `VLLM_DOUBLE_DIES_AFTER` the core ends after this number
/// of streamed tokens, and the stream ends with vLLM's error event.
fn stream_of(response: DoubleResponse, counted: RequestGuard) -> Response {
    let last = number("VLLM_DOUBLE_DIES_AFTER", u64::MAX);
    let steps = stream::unfold(
        (response, counted, 0_u64),
        move |(response, counted, step)| async move {
            let data = if step >= last {
                match step - last {
                    0 => {
                        begin_end();
                        json!({"error": {"message": FAREWELL, "type": "InternalServerError", "param": null, "code": 500}})
                            .to_string()
                    }
                    1 => "[DONE]".to_owned(),
                    _ => return None,
                }
            } else if step < response.tokens {
                counted.token().await;
                response.piece(step)
            } else {
                let left = usize::try_from(step - response.tokens).unwrap_or(usize::MAX);
                let Some(last) = response.ending().into_iter().nth(left) else {
                    counted.done();
                    return None;
                };
                last
            };
            let event = Ok::<_, Infallible>(Bytes::from(format!("data: {data}\n\n")));
            Some((event, (response, counted, step + 1)))
        },
    );
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (headers, Body::from_stream(steps)).into_response()
}

fn values(query: Option<&str>, name: &str) -> Vec<String> {
    let pairs = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
        .collect()
}

async fn fall_asleep(State(server): Shared, RawQuery(query): RawQuery) -> Response {
    if !server.flags.sleep {
        return failed("AssertionError: sleep mode is not enabled; start with --enable-sleep-mode");
    }
    let level = values(query.as_deref(), "level")
        .pop()
        .unwrap_or_else(|| "1".to_owned());
    let Some(level) = level.parse::<u8>().ok().filter(|level| *level <= 2) else {
        return error(
            StatusCode::UNPROCESSABLE_ENTITY,
            "BadRequestError",
            "level is 0, 1 or 2",
        );
    };
    match server.parked.sleep(level, &server.gpu) {
        Ok(()) => {
            log::line("It took 0.100000 seconds to fall asleep.");
            Json(json!({"status": "sleeping", "level": level})).into_response()
        }
        Err(problem) => failed(&problem),
    }
}

async fn wake_up(State(server): Shared, RawQuery(query): RawQuery) -> Response {
    let tags = values(query.as_deref(), "tags");
    log::line(&format!("wake up the engine with tags: {tags:?}"));
    match server.parked.wake(&tags, &server.gpu) {
        Ok(awake) => {
            let status = if awake { "awake" } else { "sleeping" };
            Json(json!({"status": status, "tags": tags})).into_response()
        }
        Err(problem) => failed(&problem),
    }
}

async fn is_sleeping(State(server): Shared) -> Json<Value> {
    Json(json!({"is_sleeping": server.parked.is_asleep()}))
}

async fn collective_rpc(State(server): Shared, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    match request["method"].as_str() {
        Some("reload_weights") => {
            server.parked.reload();
            Json(json!({"results": [null]})).into_response()
        }
        Some(other) => error(StatusCode::BAD_REQUEST, "BadRequestError", other),
        None => error(
            StatusCode::BAD_REQUEST,
            "BadRequestError",
            "Missing 'method' in request body",
        ),
    }
}
