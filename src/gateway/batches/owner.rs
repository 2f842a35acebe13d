//! The holder of files and batches, and its present rights.

use crate::auth::{User, present_rights};
use crate::open_batches::BatchPerson;
use crate::state::App;

/// The holder's id.
pub(super) fn holder(user: &User) -> String {
    user.account.id()
}

/// The person who creates a batch, if the user has signed on.
pub(super) fn person(user: &User) -> Option<BatchPerson> {
    user.sight.person().map(BatchPerson::from)
}

/// The holder with its present rights. `person` is the holder if it is a person, and `endpoint` the route of its requests.
///
/// # Errors
/// As [`present_rights::user_of`].
pub(super) fn user_of(
    holder: &str,
    person: Option<&BatchPerson>,
    endpoint: &str,
    app: &App,
) -> Result<User, String> {
    present_rights::user_of((holder, person), endpoint, "batch", app)
}
