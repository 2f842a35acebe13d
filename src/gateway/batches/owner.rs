//! The holder of files and batches, and its present rights.

use std::net::IpAddr;

use crate::auth::User;
use crate::auth::sight::matches_any;
use crate::auth::sign_on::Person;
use crate::open_batches::BatchPerson;
use crate::state::App;
use config::InferenceAuth;
use pool::KeyId;
use store::Role;

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
        Err(unknown(holder))
    }
}

fn unknown(holder: &str) -> String {
    format!("the holder {holder} is unknown")
}
