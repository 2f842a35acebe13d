//! The holder of a background response, and its present rights.

use std::net::IpAddr;

use crate::auth::User;
use crate::auth::sight::matches_any;
use crate::state::App;
use api_types::error::Failure;
use config::InferenceAuth;
use pool::KeyId;
use store::Role;

/// The route of a background request, as keys name it.
const ROUTE: &str = "/v1/responses";

/// Returns the holder's id.
///
/// # Errors
/// 403 for people who have signed on, because a response outlasts their session.
pub(super) fn id_of(user: &User) -> Result<String, Failure> {
    let id = user.account.id();
    if id.starts_with("person:") {
        return Err(Failure::forbidden(
            "key_required",
            "background responses need an API key, because they outlast a session; create one with `admin-client keys create NAME --role user`",
        ));
    }
    Ok(id)
}

/// The holder with its present rights.
///
/// # Errors
/// The key is revoked, has expired or may not use the route any more, or requests without a key are no longer accepted.
pub(super) fn user_of(holder: &str, app: &App) -> Result<User, String> {
    if let Some(id) = holder.strip_prefix("key:") {
        let id = id.parse().map(KeyId);
        let key = id.ok().and_then(|id| app.keys.find_id(id));
        let key = key.filter(|key| key.role != Role::Viewer);
        let key = key.ok_or("the key of this response was revoked or has expired")?;
        let routes = &key.allowed.routes;
        if !routes.is_empty() && !matches_any(routes, ROUTE) {
            return Err(format!("the key of this response may not use {ROUTE}"));
        }
        return Ok(User::of_key(key, app));
    }
    let address = holder.strip_prefix("address:");
    let address: Option<IpAddr> = address.and_then(|text| text.parse().ok());
    let is_allowed = match app.config().auth.inference {
        InferenceAuth::Open => true,
        InferenceAuth::Loopback => address.is_some_and(|address| address.is_loopback()),
        InferenceAuth::Key => false,
    };
    if is_allowed {
        Ok(User::at(address, app))
    } else {
        Err("requests without a key are no longer accepted (auth.inference)".to_owned())
    }
}
