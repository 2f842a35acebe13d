//! The holder of files and batches, and its present rights.

use std::net::IpAddr;

use crate::auth::User;
use crate::auth::sight::matches_any;
use crate::state::App;
use api_types::error::Failure;
use config::InferenceAuth;
use pool::KeyId;
use store::Role;

/// Returns the holder's id.
///
/// # Errors
/// 403 for people who have signed on: a batch outlasts their session.
pub(super) fn holder(user: &User) -> Result<String, Failure> {
    let id = user.account.id();
    if id.starts_with("person:") {
        return Err(Failure::forbidden(
            "key_required",
            "files and batches need an API key, because they outlast a session; create one with `admin-client keys create NAME --role user`",
        ));
    }
    Ok(id)
}

/// The holder with its present rights. `endpoint` is the route of its requests.
///
/// # Errors
/// The key is revoked, has expired or may not use models any more, or requests without a key are no longer accepted.
pub(super) fn user_of(holder: &str, endpoint: &str, app: &App) -> Result<User, String> {
    if let Some(id) = holder.strip_prefix("key:") {
        let id = id.parse().map(KeyId).map_err(|_| unknown(holder))?;
        let key = app.keys.find_id(id);
        let key = key.filter(|key| key.role != Role::Viewer);
        let key = key.ok_or("the key of this batch was revoked or has expired")?;
        let routes = &key.allowed.routes;
        if !routes.is_empty() && !matches_any(routes, endpoint) {
            return Err(format!("the key of this batch may not use {endpoint}"));
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

fn unknown(holder: &str) -> String {
    format!("the holder {holder} is unknown")
}
