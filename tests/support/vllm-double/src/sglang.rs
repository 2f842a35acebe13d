//! SGLang's routes where they differ from vLLM's: health, metrics and adapters, with its formats and messages.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::log;
use crate::routes::{Server, Shared};

pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/health_generate", get(|| async { StatusCode::OK }))
        .route("/metrics", get(metrics))
        .route("/load_lora_adapter", post(load))
        .route("/unload_lora_adapter", post(unload))
}

async fn metrics() -> &'static str {
    "sglang:num_running_reqs 0.0\nsglang:num_queue_reqs 0.0\nsglang:token_usage 0.0\n"
}

/// `POST /load_lora_adapter`. Every failure is 400 with `success: false`.
async fn load(State(server): Shared, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (Some(name), Some(path)) = (request["lora_name"].as_str(), request["lora_path"].as_str())
    else {
        let problem = json!({"detail": [{"type": "missing", "msg": "Field required"}]});
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(problem)).into_response();
    };
    if !server.flags.takes_adapters {
        return failed("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.");
    }
    if !std::path::Path::new(path)
        .join("adapter_config.json")
        .is_file()
    {
        return failed(&format!(
            "Failed to load LoRA adapter {name}: {path} has no adapter_config.json"
        ));
    }
    let mut adapters = server.adapters();
    let most = usize::try_from(server.flags.max_loras).unwrap_or(0);
    if adapters.contains(name) {
        return failed(&format!(
            "LoRA with name {name} already exists. Loaded LoRAs: {adapters:?}"
        ));
    }
    // SGLang would evict the least recently used adapter; the pool must decide that itself.
    if adapters.len() >= most {
        return failed(&format!(
            "{most} adapters are loaded, and another would require evicting an adapter"
        ));
    }
    adapters.insert(name.to_owned());
    log::line(&format!(
        "loaded adapter {name} ({} of {most})",
        adapters.len()
    ));
    Json(json!({"rid": null, "success": true, "error_message": null, "loaded_adapters": {name: path}}))
        .into_response()
}

/// `POST /unload_lora_adapter`.
async fn unload(State(server): Shared, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = request["lora_name"].as_str().unwrap_or_default();
    let mut adapters = server.adapters();
    if !adapters.remove(name) {
        return failed(&format!(
            "LoRA with name {name} does not exist. Loaded LoRAs: {adapters:?}"
        ));
    }
    log::line(&format!("unloaded adapter {name}"));
    Json(json!({"rid": null, "success": true, "error_message": null, "loaded_adapters": {}}))
        .into_response()
}

fn failed(message: &str) -> Response {
    let body =
        json!({"rid": null, "success": false, "error_message": message, "loaded_adapters": {}});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}
