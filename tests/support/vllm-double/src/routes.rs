//! vLLM's routes: health, models, adapters, metrics, and the sleep routes if enabled. `completions.rs` has the chats and
//! completions, `sglang.rs` SGLang's routes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::completions::{chat, text};
use crate::flags::{Flags, Form};
use crate::gpu::Gpu;
use crate::metrics::Numbers;
use crate::sleep::SleepState;
use crate::{log, number, sglang};

pub struct Server {
    pub flags: Flags,
    gpu: Arc<Gpu>,
    pub numbers: Numbers,
    pub parked: SleepState,
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
    pub fn is_adapter(&self, model: &str) -> bool {
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

pub fn error(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": status.as_u16()}});
    (status, Json(body)).into_response()
}

pub fn failed(message: &str) -> Response {
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
