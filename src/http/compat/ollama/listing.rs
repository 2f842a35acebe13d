//! `GET /api/tags`, the models that the caller may use, and the API version. Listing loads nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::cards::{Cards, details};
use api_types::dto;
use api_types::error::Failure;
use catalog::{Entry, ModelCard};
use dialect::ollama::tagged;
use gateway::auth::User;
use gateway::openapi::OllamaErrors;
use gateway::state::App;
use pool::Time;

/// The Ollama version that these routes implement. Clients check it before using newer features.
const VERSION: &str = "0.15.4";

/// List the models (Ollama)
///
/// The models that the key may use. Nothing is loaded for this.
///
/// Every key may call this.
#[utoipa::path(get, path = "/api/tags", tag = "ollama", operation_id = "ollama_tags", security(("user_key" = [])),
    responses((status = 200, description = "The models", body = Object, example = json!({"models": [{
        "name": "tiny-chat:latest", "model": "tiny-chat:latest", "modified_at": "2026-01-01T00:00:00.000Z",
        "size": 1490944, "digest": "5bc0f5a7b1f6d0b3e0a1c2d3e4f5061728394a5b6c7d8e9f0011223344556677",
        "details": {"parent_model": "", "format": "safetensors", "family": "llama", "families": ["llama"],
            "parameter_size": "745K", "quantization_level": "F16"}
    }]})), OllamaErrors))]
pub(super) async fn tags(
    State(app): State<App>,
    user: User,
    Extension(cards): Extension<Arc<Cards>>,
) -> Result<Json<Value>, Failure> {
    let entries = app.handle.entries();
    let digests = digests(&app, &entries);
    let started = app.started_unix_seconds;
    let read = move |cards: &Cards| {
        let mut rows = Vec::new();
        for (entry, digest) in entries.iter().zip(&digests) {
            let has_base = user.sight.may_use_base(entry);
            let adapters: Vec<&String> =
                (entry.adapters.iter().filter(|name| user.sight.has(name))).collect();
            if !has_base && adapters.is_empty() {
                continue;
            }
            let card = cards.card(entry);
            if has_base {
                rows.push(row(&entry.name, digest, &card, started, ""));
            }
            let parent = tagged(&entry.name);
            let parent = if has_base { parent.as_str() } else { "" };
            for name in adapters {
                rows.push(row(name, digest, &card, started, parent));
            }
        }
        cards.keep(&entries);
        json!({"models": rows})
    };
    Ok(Json(cards.read(read).await?))
}

/// Show the version (Ollama)
///
/// The version of Ollama's API, and the version of this program.
///
/// Everybody may call this.
#[utoipa::path(get, path = "/api/version", tag = "ollama", operation_id = "ollama_version",
    responses((status = 200, description = "Two versions", body = Object,
        example = json!({"version": "0.15.4", "model_pool": "0.1.0"}))))]
pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": VERSION, "model_pool": env!("CARGO_PKG_VERSION")}))
}

/// A digest per entry, computed from its document and the size of its weights.
pub(super) fn digests(app: &App, entries: &[Arc<Entry>]) -> Vec<String> {
    let snapshot = app.handle.snapshot();
    let weights: BTreeMap<&str, Option<u64>> = snapshot
        .models
        .values()
        .map(|facts| (facts.entry.name.as_str(), facts.weights))
        .collect();
    let digest = |entry: &Arc<Entry>| {
        let weights = weights.get(entry.name.as_str()).copied().flatten();
        entry.digest(weights)
    };
    entries.iter().map(digest).collect()
}

/// The modification time of the model's files, or the start of the service if it is unknown.
pub(super) fn modified_at(card: &ModelCard, started_unix_seconds: u64) -> String {
    let since = card
        .modified
        .and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
    let milliseconds = since.and_then(|duration| u64::try_from(duration.as_millis()).ok());
    dto::at(Time(milliseconds.unwrap_or(started_unix_seconds * 1000)))
}

fn row(name: &str, digest: &str, card: &ModelCard, started: u64, parent: &str) -> Value {
    let name = tagged(name);
    json!({
        "name": name, "model": name, "modified_at": modified_at(card, started),
        // Clients require a number; 0 stands for weights of unknown size.
        "size": card.bytes.unwrap_or(0),
        "digest": digest,
        "details": details(card, parent),
    })
}
