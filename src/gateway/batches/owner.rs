//! The holder of files and batches, and its present rights.

use crate::auth::sign_on::Person;
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
/// The key is revoked, has expired or may not use models any more, the groups of the person may not use the route any more, or requests
/// without a key are no longer accepted.
pub(super) fn user_of(
    holder: &str,
    person: Option<&BatchPerson>,
    endpoint: &str,
    app: &App,
) -> Result<User, String> {
    if let Some(person) = person {
        return user_of_person(holder, person, endpoint, app);
    }
    present_rights::user_of(holder, endpoint, "batch", app)
}

fn user_of_person(
    holder: &str,
    person: &BatchPerson,
    endpoint: &str,
    app: &App,
) -> Result<User, String> {
    let BatchPerson {
        subject,
        name,
        groups,
    } = person;
    let oidc = app.oidc.as_ref();
    let oidc = oidc.ok_or_else(|| format!("{name} can no longer sign on (auth.oidc)"))?;
    let identity = oidc.remembered(subject, name, groups);
    let identity = identity.map_err(|error| error.to_string())?;
    let person = Person::of_batch(identity, endpoint);
    let user =
        User::of_signed_on(person, false, app).map_err(|failure| failure.body.error.message)?;
    // The same subject at another issuer is another person.
    if user.account.id() == holder {
        Ok(user)
    } else {
        Err(format!("the holder {holder} is unknown"))
    }
}
