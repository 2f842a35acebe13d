//! API keys: list, make, revoke. A key's text leaves here once, in the answer to its making.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use utoipa::IntoParams;

use super::fields::{Body, Fields, Nothing, Params, Strict};
use crate::controller::{KeyRecord, Role, StoreFault};
use crate::http::auth::Admin;
use crate::http::dto::{KeyList, KeyRole, KeyView, NewKey, NewKeyRequest, RevokeAnswer};
use crate::http::error::Failure;
use crate::http::openapi::AdminErrors;
use crate::http::state::App;
use crate::pool::{KeyId, Time};

const NAME_MAX: usize = 100;

impl Strict for NewKeyRequest {
    fn read(fields: &mut Fields) -> Result<NewKeyRequest, Failure> {
        let name = fields.needed_text("name", "\"course 4711\"")?;
        if name.chars().count() > NAME_MAX || name.chars().any(char::is_control) {
            let message = format!(
                "name: allowed are 1 to {NAME_MAX} characters, none of them a control character"
            );
            return Err(Failure::invalid(Some("name".to_owned()), message));
        }
        let role = fields.choice(
            "role",
            &[("admin", KeyRole::Admin), ("user", KeyRole::User)],
        )?;
        let role = role.ok_or_else(|| {
            Failure::invalid(
                Some("role".to_owned()),
                "role: is missing; allowed: one of admin, user",
            )
        })?;
        Ok(NewKeyRequest {
            name,
            role,
            expires: fields.length("expires")?,
        })
    }
}

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RevokeQuery {
    /// The key's id, as the list shows it.
    #[param(value_type = String, example = "k3")]
    id: KeyId,
}

impl Strict for RevokeQuery {
    fn read(fields: &mut Fields) -> Result<RevokeQuery, Failure> {
        let text = fields.needed_text("id", "?id=k3")?;
        let digits = text.strip_prefix('k').unwrap_or(&text);
        let unread = || {
            Failure::invalid(
                Some("id".to_owned()),
                "id: is no key's id; they look like k3",
            )
        };
        Ok(RevokeQuery {
            id: KeyId(digits.parse().map_err(|_| unread())?),
        })
    }
}

/// List keys
///
/// The keys that are not revoked. The keys themselves cannot be shown again.
#[utoipa::path(
    get, path = "/admin/keys", tag = "keys", operation_id = "list_keys", security(("admin_key" = [])),
    responses(
        (status = 200, description = "The keys", body = KeyList, example = json!({"keys": [{
            "id": "k3", "name": "course 4711", "role": "user", "prefix": "mp-Ab3xY9",
            "created_at": "2026-01-10T08:00:00.000Z", "last_used_at": "2026-01-31T20:14:59.000Z",
            "expires_at": "2026-07-09T08:00:00.000Z"
        }]})),
        AdminErrors,
    )
)]
pub async fn list(State(app): State<App>, _: Admin, _: Params<Nothing>) -> Json<KeyList> {
    let keys = app.keys.all();
    Json(KeyList {
        keys: keys
            .iter()
            .filter(|key| !key.revoked)
            .map(KeyView::of)
            .collect(),
    })
}

/// Make a key
///
/// The answer shows the key; nothing ever shows it again.
#[utoipa::path(
    post, path = "/admin/keys", tag = "keys", operation_id = "create_key", security(("admin_key" = [])),
    request_body(content = NewKeyRequest, example = json!({"name": "course 4711", "role": "user", "expires": "180d"})),
    responses(
        (status = 200, description = "The key, shown once", body = NewKey,
            example = json!({"id": "k3", "name": "course 4711", "role": "user", "key": "mp-…"})),
        AdminErrors,
    )
)]
pub async fn create(
    State(app): State<App>,
    admin: Admin,
    Body(request): Body<NewKeyRequest>,
) -> Result<Json<NewKey>, Failure> {
    let role = match request.role {
        KeyRole::Admin => Role::Admin,
        KeyRole::User => Role::User,
    };
    let expires = request
        .expires
        .map(|expires| app.handle.clock().now() + expires);
    let (record, key) = app
        .keys
        .create(&request.name, role, expires)
        .await
        .map_err(not_saved)?;
    tracing::info!(admin = admin.name, key = %record.id, name = record.name, role = role.name(), "key made");
    Ok(Json(NewKey {
        id: record.id.to_string(),
        name: record.name,
        role: role.name(),
        key,
    }))
}

/// Revoke a key
///
/// It is refused from now on. The last valid admin key cannot be revoked.
#[utoipa::path(
    delete, path = "/admin/keys", tag = "keys", operation_id = "revoke_key", security(("admin_key" = [])),
    params(RevokeQuery),
    responses(
        (status = 200, description = "The key is revoked", body = RevokeAnswer,
            example = json!({"id": "k3", "revoked": true})),
        AdminErrors,
    )
)]
pub async fn revoke(
    State(app): State<App>,
    admin: Admin,
    Params(RevokeQuery { id }): Params<RevokeQuery>,
) -> Result<Json<RevokeAnswer>, Failure> {
    let unknown =
        || Failure::not_found(format!("there is no key {id}; GET /admin/keys lists them"));
    if is_last_admin(&app.keys.all(), id, app.handle.clock().now()) {
        let message = format!("{id} is the last valid admin key; make another one first");
        return Err(Failure::conflict("last_admin_key", message));
    }
    if !app.keys.revoke(id).await.map_err(not_saved)? {
        return Err(unknown());
    }
    tracing::info!(admin = admin.name, key = %id, "key revoked");
    Ok(Json(RevokeAnswer {
        id: id.to_string(),
        revoked: true,
    }))
}

fn is_last_admin(keys: &Arc<Vec<KeyRecord>>, id: KeyId, now: Time) -> bool {
    let mut admins = keys
        .iter()
        .filter(|key| key.role == Role::Admin && key.is_valid(now))
        .map(|key| key.id);
    admins.next() == Some(id) && admins.next().is_none()
}

/// The answer names no statement and no file; the log does.
fn not_saved(fault: StoreFault) -> Failure {
    tracing::error!(%fault, "the keys could not be changed");
    let message =
        "the store could not keep the change, so nothing was changed; the service's log says why";
    Failure::new(
        axum::http::StatusCode::SERVICE_UNAVAILABLE,
        "server_error",
        "not_saved",
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::hash_key;

    fn key(id: u64, role: Role, revoked: bool) -> KeyRecord {
        KeyRecord {
            id: KeyId(id),
            name: format!("key {id}"),
            role,
            prefix: "mp-".to_owned(),
            hash: hash_key("x"),
            created: Time(0),
            last_used: None,
            expires: None,
            revoked,
        }
    }

    #[test]
    fn the_last_valid_admin_key_is_known() {
        let keys = Arc::new(vec![
            key(1, Role::Admin, true),
            key(2, Role::Admin, false),
            key(3, Role::User, false),
        ]);
        assert!(is_last_admin(&keys, KeyId(2), Time(1)));
        assert!(!is_last_admin(&keys, KeyId(3), Time(1)));
        let two = Arc::new(vec![key(1, Role::Admin, false), key(2, Role::Admin, false)]);
        assert!(!is_last_admin(&two, KeyId(1), Time(1)));
    }

    #[test]
    fn a_key_needs_a_name_and_a_role() {
        let read = |json: &str| NewKeyRequest::read(&mut Fields::of_json(json.as_bytes()).unwrap());
        assert!(read(r#"{"name":"a","role":"admin","expires":"30d"}"#).is_ok());
        for (json, field) in [
            (r#"{"role":"admin"}"#, "name"),
            (r#"{"name":"a"}"#, "role"),
            (r#"{"name":"a","role":"root"}"#, "role"),
            (r#"{"name":"a\u0000","role":"user"}"#, "name"),
            (r#"{"name":"a","role":"user","expires":"3000d"}"#, "expires"),
        ] {
            assert_eq!(
                read(json).expect_err(json).body.error.param.as_deref(),
                Some(field),
                "{json}"
            );
        }
    }
}
