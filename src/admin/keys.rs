//! API keys: list, create, change, revoke. A key's text is returned once, when it is created.

use axum::Json;
use axum::extract::State;

use super::key_requests::{ChangeKeyRequest, KeyQuery, NewKeyRequest, RevokeQuery};
use api_types::dto::{KeyList, KeyRole, KeyView, NewKey, RevokeResponse};
use api_types::error::{ErrorKind, Failure};
use api_types::paths::without_folders;
use gateway::auth::{Admin, Reader};
use gateway::credentials::rights::{By, KeyRefusal};
use gateway::fields::{Body, Nothing, Params};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use pool::KeyId;
use store::{KeyUse, Role, StoreError};

/// List keys
///
/// All keys that are not revoked, without their secret parts.
///
/// Administrators only.
#[utoipa::path(
    get, path = "/admin/keys", tag = "admin: keys", operation_id = "list_keys", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The keys", body = KeyList, example = json!({"keys": [{
            "id": "k3", "name": "course 4711", "role": "user", "prefix": "mp-Ab3xY9",
            "created_at": "2026-01-10T08:00:00.000Z", "last_used_at": "2026-01-31T20:14:59.000Z",
            "expires_at": "2026-07-09T08:00:00.000Z", "models": ["tiny-*"], "routes": [],
            "limits": {"requests_per_minute": 60, "tokens_per_minute": null, "concurrent_requests": 4, "tokens_per_day": null},
            "log_prompts": false
        }]})),
        AdminErrors,
    )
)]
pub(crate) async fn list(State(app): State<App>, _: Reader, _: Params<Nothing>) -> Json<KeyList> {
    let keys = app.keys.all();
    Json(KeyList {
        keys: keys
            .iter()
            .filter(|key| !key.revoked)
            .map(KeyView::from_record)
            .collect(),
    })
}

/// Create a key
///
/// The key is only shown in this response. A new key has no more rights than the key that creates it: its routes and models are
/// among that key's, its limits are not higher, and it does not expire later.
///
/// Administrators only.
#[utoipa::path(
    post, path = "/admin/keys", tag = "admin: keys", operation_id = "create_key", security(("admin_key" = [])),
    request_body(content = NewKeyRequest, example = json!({"name": "course 4711", "role": "user", "expires": "180d", "models": ["tiny-*"], "limits": {"requests_per_minute": 60, "concurrent_requests": 4}})),
    responses(
        (status = 200, description = "The key, shown once", body = NewKey,
            example = json!({"id": "k3", "name": "course 4711", "role": "user", "key": "mp-…"})),
        AdminErrors,
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<NewKeyRequest>,
) -> Result<Json<NewKey>, Failure> {
    let role = match request.role {
        KeyRole::Admin => Role::Admin,
        KeyRole::User => Role::User,
        KeyRole::Viewer => Role::Viewer,
    };
    let expires = request
        .expires
        .map(|expires| app.handle.clock().wall() + expires);
    let allowed = KeyUse {
        models: request.models,
        routes: request.routes,
        limits: request.limits,
        log_prompts: request.log_prompts,
    };
    let (record, key) = app
        .keys
        .create(by(&app, &admin), &request.name, role, allowed, expires)
        .await
        .map_err(|refusal| refused("the key", refusal))?;
    tracing::info!(admin = admin.name, key = %record.id, name = record.name, role = role.name(), "key made");
    Ok(Json(NewKey {
        id: record.id.to_string(),
        name: record.name,
        role: role.name(),
        key,
    }))
}

/// Change a key
///
/// Changes the name, the models and routes, the limits or the expiry. A missing field stays as it is; null clears it. The key
/// may never have more rights than the key that changes it.
///
/// Administrators only.
#[utoipa::path(
    patch, path = "/admin/keys", tag = "admin: keys", operation_id = "change_key", security(("admin_key" = [])),
    params(KeyQuery),
    request_body(content = ChangeKeyRequest, example = json!({"limits": {"requests_per_minute": 60}, "models": ["tiny-*"]})),
    responses(
        (status = 200, description = "The key as it is now", body = KeyView, example = json!({
            "id": "k3", "name": "course 4711", "role": "user", "prefix": "mp-Ab3xY9",
            "created_at": "2026-01-10T08:00:00.000Z", "last_used_at": "2026-01-31T20:14:59.000Z",
            "expires_at": "2026-07-09T08:00:00.000Z", "models": ["tiny-*"], "routes": [],
            "limits": {"requests_per_minute": 60, "tokens_per_minute": null, "concurrent_requests": 4, "tokens_per_day": null},
            "log_prompts": false
        })),
        AdminErrors,
    )
)]
pub(crate) async fn change(
    State(app): State<App>,
    admin: Admin,
    Params(KeyQuery { id }): Params<KeyQuery>,
    Body(change): Body<ChangeKeyRequest>,
) -> Result<Json<KeyView>, Failure> {
    let now = app.handle.clock().wall();
    let changed = app
        .keys
        .change(by(&app, &admin), id, |key| {
            key.name = change.name.unwrap_or(std::mem::take(&mut key.name));
            if let Some(expires) = change.expires {
                key.expires = expires.map(|expires| now + expires);
            }
            let allowed = &mut key.allowed;
            allowed.models = change.models.unwrap_or(std::mem::take(&mut allowed.models));
            allowed.routes = change.routes.unwrap_or(std::mem::take(&mut allowed.routes));
            if let Some(limits) = change.limits {
                let own = allowed.limits.unwrap_or_default();
                allowed.limits = limits.map(|limits| limits.over(own));
            }
            allowed.log_prompts = change.log_prompts.unwrap_or(allowed.log_prompts);
        })
        .await
        .map_err(|refusal| refused(&id.to_string(), refusal))?
        .ok_or_else(|| unknown(id))?;
    tracing::info!(admin = admin.name, key = %id, "key changed");
    Ok(Json(KeyView::from_record(&changed)))
}

fn unknown(id: KeyId) -> Failure {
    Failure::not_found(format!(
        "there is no key {id}; `admin-client keys list` shows all keys"
    ))
}

/// Revoke a key
///
/// The key stops working immediately. The last valid admin key for all routes cannot be revoked, nor a key with more rights than
/// the key that revokes it. The key of the request itself is only revoked with `confirm=true`; otherwise the response is a 409.
///
/// Administrators only.
#[utoipa::path(
    delete, path = "/admin/keys", tag = "admin: keys", operation_id = "revoke_key", security(("admin_key" = [])),
    params(RevokeQuery),
    responses(
        (status = 200, description = "The key is revoked", body = RevokeResponse,
            example = json!({"id": "k3", "revoked": true})),
        AdminErrors,
    )
)]
pub(crate) async fn revoke(
    State(app): State<App>,
    admin: Admin,
    Params(query): Params<RevokeQuery>,
) -> Result<Json<RevokeResponse>, Failure> {
    let id = query.id;
    let confirmed = query.confirm.unwrap_or(false);
    let revoked = app.keys.revoke(by(&app, &admin), id, confirmed).await;
    if !revoked.map_err(|refusal| refused(&id.to_string(), refusal))? {
        return Err(unknown(id));
    }
    tracing::info!(admin = admin.name, key = %id, "key revoked");
    Ok(Json(RevokeResponse {
        id: id.to_string(),
        revoked: true,
    }))
}

fn by<'a>(app: &App, admin: &'a Admin) -> By<'a> {
    By {
        holder: &admin.holder,
        default: app.limits.default_limit(),
    }
}

fn refused(what: &str, refusal: KeyRefusal) -> Failure {
    match refusal {
        KeyRefusal::Store(fault) => not_saved(fault),
        KeyRefusal::ViewerOfSome => {
            Failure::invalid(Some("models".to_owned()), refusal.to_string())
        }
        KeyRefusal::LastAdmin => Failure::conflict("last_admin_key", format!("{what}: {refusal}")),
        KeyRefusal::OwnKey(_) => Failure::conflict("own_key", format!("{what}: {refusal}")),
        KeyRefusal::Beyond(beyond) => beyond.into(),
        KeyRefusal::HolderGone => Failure::forbidden("invalid_api_key", refusal.to_string()),
    }
}

/// The response says what to do; the log names the file.
fn not_saved(fault: StoreError) -> Failure {
    tracing::error!(%fault, "the keys could not be changed");
    let message = without_folders(&format!(
        "the change could not be stored, so nothing was changed: {fault}"
    ));
    Failure::new(ErrorKind::Unavailable, "not_saved", message)
}
