//! `GET /api/ps`: the caller's loaded models and their expiry. Does not keep a model loaded.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::cards::{Cards, details};
use super::listing::digests;
use api_types::dto;
use api_types::error::Failure;
use catalog::Entry;
use config::Provider;
use dialect::ollama::tagged;
use gateway::auth::User;
use gateway::openapi::OllamaErrors;
use gateway::state::App;
use pool::{ModelView, ReplicaState, Span, Time};

/// A duration that Ollama's clients show as forever.
const FOR_EVER: Span = Span::from_secs(100 * 365 * 24 * 3600);

/// List the loaded models (Ollama)
///
/// `size` is the memory reserved for all replicas, `size_vram` the part of it on GPUs, and `expires_at` the end of keep-hot. This
/// keeps no model loaded.
///
/// Every key may call this.
#[utoipa::path(get, path = "/api/ps", tag = "ollama", operation_id = "ollama_ps", security(("user_key" = [])),
    responses((status = 200, description = "The models that are loaded or loading", body = Object,
        example = json!({"models": [{
        "name": "tiny-chat:latest", "model": "tiny-chat:latest", "size": 20971520, "size_vram": 0,
        "digest": "5bc0f5a7b1f6d0b3e0a1c2d3e4f5061728394a5b6c7d8e9f0011223344556677",
        "details": {"parent_model": "", "format": "safetensors", "family": "llama", "families": ["llama"]},
        "expires_at": "2026-01-01T00:10:00.000Z", "context_length": 512
    }]})), OllamaErrors))]
pub(super) async fn ps(
    State(app): State<App>,
    user: User,
    Extension(cards): Extension<Arc<Cards>>,
) -> Result<Json<Value>, Failure> {
    let snapshot = app.handle.snapshot();
    let now = app.handle.clock().now();
    let on_gpus = snapshot.provider != Provider::Host;
    let mut loaded: Vec<(Arc<Entry>, Loaded)> = Vec::new();
    for model in &snapshot.pool.models {
        let Some(facts) = snapshot.models.get(&model.model) else {
            continue;
        };
        if let Some(state) = Loaded::new(model, now)
            && user.sight.may_use_base(&facts.entry)
        {
            loaded.push((Arc::clone(&facts.entry), state));
        }
    }
    loaded.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let entries: Vec<Arc<Entry>> = loaded.iter().map(|(entry, _)| Arc::clone(entry)).collect();
    let digests = digests(&app, &entries);
    let read = move |cards: &Cards| {
        let rows = loaded.iter().zip(&digests).map(|((entry, state), digest)| {
            let name = tagged(&entry.name);
            let vram = if on_gpus { state.bytes } else { 0 };
            json!({"name": name, "model": name, "size": state.bytes, "digest": digest,
                "details": details(&cards.card(entry), ""), "expires_at": dto::at(state.expires), "size_vram": vram,
                "context_length": entry.recipe.context().unwrap_or(0)})
        });
        json!({"models": rows.collect::<Vec<Value>>()})
    };
    Ok(Json(cards.read(read).await?))
}

/// Memory and expiry of a loaded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loaded {
    bytes: u64,
    expires: Time,
}

impl Loaded {
    fn new(model: &ModelView, now: Time) -> Option<Loaded> {
        let is_there = |state: ReplicaState| {
            matches!(
                state,
                ReplicaState::Launching | ReplicaState::Ready | ReplicaState::Draining
            )
        };
        let replicas = model
            .replicas
            .iter()
            .filter(|replica| is_there(replica.state));
        let replicas: Vec<_> = replicas.collect();
        if replicas.is_empty() {
            return None;
        }
        let shares = replicas.iter().flat_map(|replica| &replica.shares);
        // Models that are busy, loading or always hot do not expire.
        let is_kept = model.protected || model.over.expires.is_some_and(|expires| expires > now);
        let in_use = if is_kept { FOR_EVER } else { model.keep_hot };
        let ends = replicas
            .iter()
            .map(|replica| replica.expires.unwrap_or(now + in_use));
        Some(Loaded {
            bytes: shares.map(|share| share.bytes.0).sum(),
            expires: ends.max().unwrap_or(now).min(now + FOR_EVER),
        })
    }
}
