//! The present rights of the holder of a background response.

use crate::auth::{User, present_rights};
use crate::open_batches::BatchPerson;
use crate::state::App;

/// The route of a background request, as keys name it.
const ROUTE: &str = "/v1/responses";

/// The holder with its present rights. `person` describes the holder as it is stored, if the holder has signed on.
///
/// # Errors
/// As [`present_rights::user_of`].
pub(super) fn user_of(holder: &str, person: Option<&str>, app: &App) -> Result<User, String> {
    let person: Option<BatchPerson> = person
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| format!("the person who created this response cannot be read: {error}"))?;
    present_rights::user_of((holder, person.as_ref()), ROUTE, "response", app)
}
