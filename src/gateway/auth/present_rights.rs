//! The present rights of a caller whose work outlasts its connection: a batch, or a response in the background.

use std::net::IpAddr;

use super::User;
use super::sight::matches_any;
use super::sign_on::Person;
use crate::open_batches::BatchPerson;
use crate::state::App;
use config::InferenceAuth;
use pool::KeyId;
use store::Role;

/// The holder with its present rights. `person` is the holder if it is a person, `endpoint` is the route of its requests, and `work`
/// names what it holds.
///
/// # Errors
/// The key is revoked, has expired or may not use the route any more, the groups of the person may not use the route any more, or
/// requests without a key are no longer accepted.
pub(crate) fn user_of(
    (holder, person): (&str, Option<&BatchPerson>),
    endpoint: &str,
    work: &'static str,
    app: &App,
) -> Result<User, String> {
    if let Some(person) = person {
        return user_of_person(holder, person, endpoint, app);
    }
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
    if holder.starts_with("person:") {
        return Err(format!("the person who created this {work} is unknown"));
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
    let person = Person::remembered(identity, endpoint);
    let user =
        User::of_signed_on(person, false, app).map_err(|failure| failure.body.error.message)?;
    // The same subject at another issuer is another person.
    if user.account.id() == holder {
        Ok(user)
    } else {
        Err(format!("the holder {holder} is unknown"))
    }
}
