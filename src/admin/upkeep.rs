//! Manual cleanup, reset, reload, and the current configuration.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use utoipa::ToSchema;

use super::load::refused;
use super::order_origin::OrderOrigin;
use super::order_wait::{outcome, still_draining};
use api_types::dto::{
    self, CleanupMode, CleanupResponse, ConfigOrigins, EmptyRequest, EveningView, ReloadResponse,
    ResetResponse,
};
use api_types::error::Failure;
use config::{Config, EveningMode};
use gateway::auth::{Admin, Reader};
use gateway::fields::{Body, Fields, Nothing, Params, Strict};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::{CleanupScope, Command, Outcome, ReplicaId};

/// Cleanup request. The body is optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(example = json!({"preview": true}))]
pub(crate) struct CleanupRequest {
    /// Lists the replicas without unloading them.
    #[schema(value_type = Option<bool>, default = false)]
    pub preview: bool,
    /// Defaults to `evening.mode` of the configuration.
    pub mode: Option<CleanupMode>,
}

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
/// Runs the evening cleanup now (E1): drains and unloads every replica, or only the idle ones. Until the morning, always-hot models
/// are not protected (E2). The response is sent when the replicas are gone. With `preview: true` nothing changes.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/cleanup", tag = "admin: upkeep", operation_id = "clean_up", security(("admin_key" = [])),
    request_body(content = Option<CleanupRequest>, example = json!({"preview": true, "mode": "all"})),
    responses(
        (status = 200, description = "The removed replicas, or those that would be removed", body = CleanupResponse, example = json!({
            "preview": false,
            "replicas": [{"replica": "r3", "model": "tiny-chat", "priority": 1, "in_flight": 2,
                "bytes": 17179869184_u64}],
            "unloaded": ["r3"], "reopen_at": "2026-02-01T06:00:00.000Z"
        })),
        AdminErrors,
    )
)]
pub(crate) async fn cleanup(
    State(app): State<App>,
    admin: Admin,
    origin: OrderOrigin,
    Body(request): Body<CleanupRequest>,
) -> Result<Response, Failure> {
    let config = app.config();
    let scope = scope_of(&config, &request);
    let before = app.handle.snapshot();
    let now = dto::moment(app.handle.clock().now());
    let reopen_at = EveningView::from_config(&config, true, now).next_reopen_at;
    if request.preview {
        let response = CleanupResponse::preview(scope, &before, reopen_at);
        return Ok(Json(response).into_response());
    }
    tracing::info!(admin = admin.name, ?scope, "cleanup ordered");
    let command = cleanup_command(&app, &request);
    let by_mcp = origin.by_mcp;
    let terms = origin.terms(admin.by, None);
    let mut ordered = app.handle.order_on(command, terms)?;
    match outcome(by_mcp, &mut ordered).await? {
        None => {
            let snapshot = app.handle.snapshot();
            Ok(still_draining(ordered.order, &snapshot, |_| true))
        }
        Some(Outcome::Cleaned { replicas }) => {
            let response = CleanupResponse::done(&replicas, &before, reopen_at);
            Ok(Json(response).into_response())
        }
        Some(other) => Err(refused(&app, "the cleanup", other, false)),
    }
}

fn scope_of(config: &Config, request: &CleanupRequest) -> CleanupScope {
    match (request.mode, config.evening.mode) {
        (Some(CleanupMode::All), _) | (None, EveningMode::All) => CleanupScope::All,
        (Some(CleanupMode::Idle), _) | (None, EveningMode::Idle) => CleanupScope::Idle,
    }
}

/// The command for a cleanup that begins now.
pub(crate) fn cleanup_command(app: &App, request: &CleanupRequest) -> Command {
    let config = app.config();
    Command::Cleanup {
        scope: scope_of(&config, request),
        drain: config.unload_drain(),
        begun: None,
    }
}

/// Unload everything and forget failures
///
/// Quarantined and cooling-down models may be loaded again, and load orders are forgotten.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/reset", tag = "admin: upkeep", operation_id = "reset_pool", security(("admin_key" = [])),
    request_body(content = Option<EmptyRequest>, description = "Nothing, or an empty object", example = json!({})),
    responses(
        (status = 200, description = "The pool is empty", body = ResetResponse,
            example = json!({"unloaded": ["r3", "r4"]})),
        AdminErrors,
    )
)]
pub async fn reset(
    State(app): State<App>,
    admin: Admin,
    _: Body<Nothing>,
) -> Result<Json<ResetResponse>, Failure> {
    tracing::info!(admin = admin.name, "reset ordered");
    let ordered = app.handle.order(Command::Reset, Some(admin.by))?;
    match ordered.settled().await? {
        Outcome::Cleaned { replicas } => Ok(Json(ResetResponse {
            unloaded: replicas.iter().map(ReplicaId::to_string).collect(),
        })),
        other => Err(refused(&app, "the reset", other, false)),
    }
}

/// Show the configuration
///
/// The configuration in force, with its defaults and without secrets.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/config", tag = "admin: upkeep", operation_id = "show_config", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The configuration", body = Object, example = json!({
            "server": {"listen": "127.0.0.1:8080", "base_path": "/llm"}, "pool": {"keep_hot": "10m"}
        })),
        AdminErrors,
    )
)]
pub async fn config(State(app): State<App>, _: Reader, _: Params<Nothing>) -> Json<Value> {
    Json(app.config().effective_json())
}

/// Show where the configuration comes from
///
/// For each value that differs from its default: the line of the configuration file, or the environment variable, that sets it.
///
/// Administrators and viewers only.
#[utoipa::path(
    get, path = "/admin/config/origins", tag = "admin: upkeep", operation_id = "show_config_origins", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The origins", body = ConfigOrigins, example = json!({
            "file": "config/model-pool.yaml",
            "origins": {"pool.keep_hot": {"line": 12}, "server.listen": {"variable": "MODEL_POOL__SERVER__LISTEN"}}
        })),
        AdminErrors,
    )
)]
pub(crate) async fn config_origins(
    State(app): State<App>,
    _: Reader,
    _: Params<Nothing>,
) -> Json<ConfigOrigins> {
    Json(ConfigOrigins::from_config(&app.config()))
}

/// Reload the configuration
///
/// Reads the configuration file, with environment variables taking precedence, the model files and the reference. The configuration
/// is checked first: nothing is changed if it is wrong. Keys that a running service can change are applied (`applied`); the others
/// are named (`needs_restart`). Only models that have changed are touched. A model file that cannot be used is listed in `broken`
/// and changes nothing: the last good version of its model is served if there is one. The certificate of `server.tls` is read again
/// too.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/reload", tag = "admin: upkeep", operation_id = "reload_pool", security(("admin_key" = [])),
    request_body(content = Option<EmptyRequest>, description = "Nothing, or an empty object", example = json!({})),
    responses(
        (status = 200, description = "The changes", body = ReloadResponse, example = json!({
            "applied": [{"key": "pool.keep_hot", "from": "10m", "to": "30m"}],
            "needs_restart": [{"key": "server.listen", "from": "127.0.0.1:8080", "to": "0.0.0.0:8080"}],
            "unchanged": 88,
            "added": ["org/new-model"], "changed": ["tiny-chat"], "removed": [], "broken": [], "warnings": []
        })),
        AdminErrors,
    )
)]
pub async fn reload(
    State(app): State<App>,
    admin: Admin,
    _: Body<Nothing>,
) -> Result<Json<ReloadResponse>, Failure> {
    let reloaded = app.reload.reload(&admin.name).await?;
    Ok(Json(ReloadResponse::new(reloaded, &app.handle.broken())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleanup_without_a_body_is_not_a_preview() {
        let read = |json: &str| CleanupRequest::read(&mut Fields::parse(json.as_bytes()).unwrap());
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
