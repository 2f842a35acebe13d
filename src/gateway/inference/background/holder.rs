//! The holder of a background response, and its present rights.

use crate::auth::{User, present_rights};
use crate::state::App;
use api_types::error::Failure;

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
/// As [`present_rights::user_of`].
pub(super) fn user_of(holder: &str, app: &App) -> Result<User, String> {
    present_rights::user_of(holder, ROUTE, "response", app)
}
