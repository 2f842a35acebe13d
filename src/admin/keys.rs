//! API keys: list, create, change, revoke. A key's text is returned once, when it is created.

use axum::Json;
use axum::extract::State;

use super::key_requests::{ChangeKeyRequest, KeyQuery, NewKeyRequest, RevokeQuery};
use api_types::dto::{KeyList, KeyRole, KeyView, NewKey, RevokeResponse};
use api_types::error::{ErrorKind, Failure};
use api_types::paths::without_folders;
use gateway::auth::{Manager, Overseer};
use gateway::credentials::rights::KeyRefusal;
use gateway::fields::{Body, Nothing, Params};
use gateway::openapi::AdminErrors;
use gateway::state::App;
use gateway::to_its_end::to_its_end;
use pool::KeyId;
use store::{KeyRecord, KeyUse, Role, StoreError};

/// The work that continues if the client leaves, because a stored change must be in force.
const CHANGE: &str = "the change of a key";

/// List keys
///
/// All keys that are not revoked, without their secret parts. Administrators of a group see the keys of their group and of the groups
/// below it.
///
/// Administrators, viewers and administrators of a group.
#[utoipa::path(
    get, path = "/admin/keys", tag = "admin: keys", operation_id = "list_keys", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The keys", body = KeyList, example = json!({"keys": [{
            "id": "k3", "name": "course 4711", "role": "user", "group": "lab", "prefix": "mp-Ab3xY9",
            "created_at": "2026-01-10T08:00:00.000Z", "last_used_at": "2026-01-31T20:14:59.000Z",
            "expires_at": "2026-07-09T08:00:00.000Z", "models": ["tiny-*"], "routes": [],
            "limits": {"requests_per_minute": 60, "tokens_per_minute": null, "concurrent_requests": 4, "tokens_per_day": null},
            "log_prompts": false
        }]})),
        AdminErrors,
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    overseer: Overseer,
    _: Params<Nothing>,
) -> Json<KeyList> {
    let (keys, groups) = (app.keys.all(), app.keys.groups());
    let shown = keys.iter().filter(|key| !key.revoked).filter_map(|key| {
        let group = groups.name_of(key);
        let is_covered = match (&overseer.scope, &group) {
            (None, _) => true,
            (Some(scope), Some(group)) => scope.covers(group),
            (Some(_), None) => false,
        };
        is_covered.then(|| KeyView::new(key, group))
    });
    Json(KeyList {
        keys: shown.collect(),
    })
}

/// Create a key
///
/// The key is only shown in this response. A new key has no more rights than the key that creates it: its routes and models are
/// among that key's, its limits are not higher, and it does not expire later. Administrators of a group create keys of their group and
/// of the groups below it: with the role `user`, or `group-admin` for a group below.
///
/// Administrators, and administrators of a group.
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
    admin: Manager,
    Body(request): Body<NewKeyRequest>,
) -> Result<Json<NewKey>, Failure> {
    to_its_end(CHANGE, created(app, admin, request)).await
}

async fn created(
    app: App,
    admin: Manager,
    request: NewKeyRequest,
) -> Result<Json<NewKey>, Failure> {
    admin.only_pool("log_prompts", request.log_prompts)?;
    let role = match request.role {
        KeyRole::Admin => Role::Admin,
        KeyRole::User => Role::User,
        KeyRole::Viewer => Role::Viewer,
        KeyRole::GroupAdmin => Role::GroupAdmin,
    };
    let own_group = || Some(admin.of_group()?.scope.group.name.to_string());
    let expires = request
        .expires
        .map(|expires| app.handle.clock().wall() + expires);
    let allowed = KeyUse {
        models: request.models,
        routes: request.routes,
        limits: request.limits,
        log_prompts: request.log_prompts,
        group: request.group.or_else(own_group),
    };
    let (record, key) = app
        .keys
        .create(admin.by(&app), &request.name, role, allowed, expires)
        .await
        .map_err(|refusal| refused("the key", refusal))?;
    tell_pool(&app, &record);
    tracing::info!(admin = admin.name(), key = %record.id, name = record.name, role = role.name(), "key made");
    Ok(Json(NewKey {
        id: record.id.to_string(),
        name: record.name,
        role: role.name(),
        key,
    }))
}

/// Change a key
///
/// Changes the name, the models and routes, the limits, the group or the expiry. A missing field stays as it is; null clears it. The key
/// may never have more rights than the key that changes it. Administrators of a group may change the keys that they may create.
///
/// Administrators, and administrators of a group.
#[utoipa::path(
    patch, path = "/admin/keys", tag = "admin: keys", operation_id = "change_key", security(("admin_key" = [])),
    params(KeyQuery),
    request_body(content = ChangeKeyRequest, example = json!({"limits": {"requests_per_minute": 60}, "models": ["tiny-*"]})),
    responses(
        (status = 200, description = "The key as it is now", body = KeyView, example = json!({
            "id": "k3", "name": "course 4711", "role": "user", "group": "lab", "prefix": "mp-Ab3xY9",
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
    admin: Manager,
    Params(KeyQuery { id }): Params<KeyQuery>,
    Body(change): Body<ChangeKeyRequest>,
) -> Result<Json<KeyView>, Failure> {
    to_its_end(CHANGE, changed(app, admin, id, change)).await
}

async fn changed(
    app: App,
    admin: Manager,
    id: KeyId,
    change: ChangeKeyRequest,
) -> Result<Json<KeyView>, Failure> {
    admin.only_pool("log_prompts", change.log_prompts.is_some())?;
    let now = app.handle.clock().wall();
    let changed = app
        .keys
        .change(admin.by(&app), id, |key| {
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
            allowed.group = change.group.unwrap_or(std::mem::take(&mut allowed.group));
        })
        .await
        .map_err(|refusal| refused(&id.to_string(), refusal))?
        .ok_or_else(|| unknown(id))?;
    tell_pool(&app, &changed);
    tracing::info!(admin = admin.name(), key = %id, "key changed");
    let group = app.keys.groups().name_of(&changed);
    Ok(Json(KeyView::new(&changed, group)))
}

/// The pool learns the group of a key before its first request.
fn tell_pool(app: &App, key: &KeyRecord) {
    drop(app.keys.groups().of_key(key, &app.handle));
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
/// Administrators of a group may revoke the keys that they may create.
///
/// Administrators, and administrators of a group.
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
    admin: Manager,
    Params(query): Params<RevokeQuery>,
) -> Result<Json<RevokeResponse>, Failure> {
    to_its_end(CHANGE, revoked(app, admin, query)).await
}

async fn revoked(
    app: App,
    admin: Manager,
    query: RevokeQuery,
) -> Result<Json<RevokeResponse>, Failure> {
    let id = query.id;
    let confirmed = query.confirm.unwrap_or(false);
    let revoked = app.keys.revoke(admin.by(&app), id, confirmed).await;
    if !revoked.map_err(|refusal| refused(&id.to_string(), refusal))? {
        return Err(unknown(id));
    }
    tracing::info!(admin = admin.name(), key = %id, "key revoked");
    Ok(Json(RevokeResponse {
        id: id.to_string(),
        revoked: true,
    }))
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
        KeyRefusal::NoSuchGroup(_) => {
            Failure::invalid(Some("group".to_owned()), refusal.to_string())
        }
        KeyRefusal::TooManyKeys { .. } => {
            Failure::conflict("too_many_keys", format!("{what}: {refusal}"))
        }
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
