//! The present rights of a caller whose work outlasts its connection: a batch, or a response in the background.

use std::net::IpAddr;

use super::User;
use super::sight::matches_any;
use crate::state::App;
use config::InferenceAuth;
use pool::KeyId;
use store::Role;

/// The holder, a key or an address, with its present rights. `endpoint` is the route of its requests, and `work` names what it holds.
///
/// # Errors
/// The key is revoked, has expired or may not use the route any more, or requests without a key are no longer accepted.
pub(crate) fn user_of(
    holder: &str,
    endpoint: &str,
    work: &'static str,
    app: &App,
) -> Result<User, String> {
    if let Some(id) = holder.strip_prefix("key:") {
        let id = id.parse().map(KeyId);
        let id = id.map_err(|_| format!("the holder {holder} is unknown"))?;
        let key = app.keys.find_id(id);
        let key = key.filter(|key| key.role != Role::Viewer);
        let key =
            key.ok_or_else(|| format!("the key of this {work} was revoked or has expired"))?;
        let routes = &key.allowed.routes;
        if !routes.is_empty() && !matches_any(routes, endpoint) {
            return Err(format!("the key of this {work} may not use {endpoint}"));
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
