//! The evening cleanup by hand, reset, reload, and the configuration as it is in force.

use axum::Json;
use axum::extract::State;
use serde_json::Value;

use super::fields::{Body, Fields, Nothing, Params, Strict};
use super::load::gone;
use crate::auth::Admin;
use crate::dto::{
    CleanupAnswer, CleanupMode, CleanupRequest, EmptyRequest, ReloadAnswer, ResetAnswer,
};
use crate::error::Failure;
use crate::openapi::AdminErrors;
use crate::state::App;
use config::EveningMode;
use pool::{CleanupScope, Command, ReplicaId};

impl Strict for CleanupRequest {
    const MAY_BE_EMPTY: bool = true;

    fn read(fields: &mut Fields) -> Result<CleanupRequest, Failure> {
        Ok(CleanupRequest {
            preview: fields.flag("preview")?.unwrap_or(false),
            mode: fields.choice(
                "mode",
                &[("all", CleanupMode::All), ("idle", CleanupMode::Idle)],
            )?,
        })
    }
}

/// Empty the pool
///
/// The evening cleanup, now (E1): drains and unloads every replica, or only the idle ones. Until the
/// morning always-hot models are not protected (E2). Answers when the replicas are gone.
#[utoipa::path(
    post, path = "/admin/cleanup", tag = "upkeep", operation_id = "cleanup", security(("admin_key" = [])),
    request_body(content = Option<CleanupRequest>, example = json!({"preview": true, "mode": "all"})),
    responses(
        (status = 200, description = "What is gone, or what would go", body = CleanupAnswer, example = json!({
            "preview": false,
            "replicas": [{"replica": "r3", "model": "tiny-chat", "priority": 1, "in_flight": 2,
                "bytes": 17179869184_u64}],
            "unloaded": ["r3"]
        })),
        AdminErrors,
    )
)]
pub async fn cleanup(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<CleanupRequest>,
) -> Result<Json<CleanupAnswer>, Failure> {
    let scope = match (request.mode, app.config.evening.mode) {
        (Some(CleanupMode::All), _) | (None, EveningMode::All) => CleanupScope::All,
        (Some(CleanupMode::Idle), _) | (None, EveningMode::Idle) => CleanupScope::Idle,
    };
    let before = app.handle.snapshot();
    if request.preview {
        return Ok(Json(CleanupAnswer::preview(scope, &before)));
    }
    tracing::info!(admin = admin.name, ?scope, "cleanup ordered");
    let drain = app.config.unload_drain();
    let cleanup = Command::Cleanup {
        scope,
        drain,
        begun: None,
    };
    let replicas = gone(&app, cleanup, "the cleanup").await?;
    Ok(Json(CleanupAnswer::done(&replicas, &before)))
}

/// Unload everything and forget failures
///
/// Quarantined and cooling models may be loaded again, and no load is remembered.
#[utoipa::path(
    post, path = "/admin/reset", tag = "upkeep", operation_id = "reset", security(("admin_key" = [])),
    request_body(content = Option<EmptyRequest>, description = "Nothing, or an empty object", example = json!({})),
    responses(
        (status = 200, description = "The pool is empty", body = ResetAnswer,
            example = json!({"unloaded": ["r3", "r4"]})),
        AdminErrors,
    )
)]
pub async fn reset(
    State(app): State<App>,
    admin: Admin,
    _: Body<Nothing>,
) -> Result<Json<ResetAnswer>, Failure> {
    tracing::info!(admin = admin.name, "reset ordered");
    let replicas = gone(&app, Command::Reset, "the reset").await?;
    Ok(Json(ResetAnswer {
        unloaded: replicas.iter().map(ReplicaId::to_string).collect(),
    }))
}

/// Show the configuration
///
/// As it is in force, defaults filled in. It holds no secrets.
#[utoipa::path(
    get, path = "/admin/config", tag = "upkeep", operation_id = "show_config", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The configuration", body = Object, example = json!({
            "server": {"listen": "127.0.0.1:8080", "base_path": "/llm"}, "pool": {"keep_hot": "10m"}
        })),
        AdminErrors,
    )
)]
pub async fn config(State(app): State<App>, _: Admin, _: Params<Nothing>) -> Json<Value> {
    Json(app.config.effective_json())
}

/// Read the catalogue again
///
/// Model files and the reference. Only what changed is touched; nothing is changed if a file is wrong.
/// The certificate of `server.tls` is read again too.
#[utoipa::path(
    post, path = "/admin/reload", tag = "upkeep", operation_id = "reload", security(("admin_key" = [])),
    request_body(content = Option<EmptyRequest>, description = "Nothing, or an empty object", example = json!({})),
    responses(
        (status = 200, description = "What is different now", body = ReloadAnswer, example = json!({
            "added": ["org/new-model"], "changed": ["tiny-chat"], "removed": [], "warnings": []
        })),
        AdminErrors,
    )
)]
pub async fn reload(
    State(app): State<App>,
    admin: Admin,
    _: Body<Nothing>,
) -> Result<Json<ReloadAnswer>, Failure> {
    // The certificate is read whatever becomes of the model files.
    let edge = std::sync::Arc::clone(&app.edge);
    let certificate = tokio::task::spawn_blocking(move || edge.reload()).await;
    let (changes, warnings) = app.handle.reload().await?;
    let mut answer = ReloadAnswer::of(changes, &warnings);
    answer.warnings.extend(certificate.ok().flatten());
    let ReloadAnswer {
        added,
        changed,
        removed,
        ..
    } = &answer;
    tracing::info!(
        admin = admin.name,
        ?added,
        ?changed,
        ?removed,
        "catalogue reloaded"
    );
    Ok(Json(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleanup_without_a_body_is_no_preview() {
        let read =
            |json: &str| CleanupRequest::read(&mut Fields::of_json(json.as_bytes()).unwrap());
        assert_eq!(read("{}").unwrap(), CleanupRequest::default());
        let all = read(r#"{"preview":true,"mode":"idle"}"#).unwrap();
        assert_eq!(
            all,
            CleanupRequest {
                preview: true,
                mode: Some(CleanupMode::Idle)
            }
        );
        let failure = read(r#"{"mode":"some"}"#).expect_err("no mode");
        assert!(failure.body.error.message.contains("one of all, idle"));
    }
}
