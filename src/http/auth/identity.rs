//! Who sends a request, and what they may do: users of models and administrators.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::auth::actor::{self, Actor};
use crate::auth::caller::{bearer, from_loopback};
use crate::auth::cross_site;
use crate::auth::rights::Holder;
use crate::auth::sight::{Sight, matches_any};
use crate::auth::sign_on::Person;
use crate::edge::ClientAddress;
use crate::error::Failure;
use crate::state::App;
use access::limits::{Bucket, place_of};
use config::{GrantRole, InferenceAuth};
use pool::KeyId;
use store::{KeyRecord, Role};

/// Somebody who may use models. `key` is 0 for people without a key.
#[derive(Clone, Debug)]
pub struct User {
    pub key: KeyId,
    /// Whose use is counted, and what they may have.
    pub bucket: Bucket,
    /// Which models are for them.
    pub sight: Sight,
}

impl User {
    fn of_key(key: KeyRecord, app: &App) -> User {
        User {
            key: key.id,
            bucket: Bucket {
                id: format!("key:{}", key.id.0),
                words: format!("the key {} ({})", key.id, key.name),
                limit: key.allowed.limits.unwrap_or(app.limits.default_limit()),
            },
            sight: Sight::of_patterns(key.allowed.models),
        }
    }

    fn of_signed_on(person: Person, app: &App) -> Result<User, Failure> {
        person.needs(GrantRole::User)?;
        let (key, name) = (person.identity.key, &person.identity.name);
        Ok(User {
            key,
            bucket: Bucket {
                id: format!("person:{:x}", key.0),
                words: name.to_owned(),
                limit: app.limits.default_limit(),
            },
            sight: Sight::of_person(person),
        })
    }

    /// Who has no key, if it is no page of somebody else's that asks by their browser.
    fn anonymous(parts: &Parts, app: &App) -> Result<User, Failure> {
        cross_site::check(parts, app)?;
        let client = parts.extensions.get::<ClientAddress>();
        let peer = client.map_or_else(|| "unknown".to_owned(), |it| place_of(it.address));
        Ok(User {
            key: KeyId(0),
            bucket: Bucket {
                words: format!("the address {peer}, which has no key,"),
                id: format!("address:{peer}"),
                limit: app.limits.anonymous_limit(),
            },
            sight: Sight::default(),
        })
    }
}

/// Somebody who may steer the pool.
#[derive(Clone, Debug)]
pub struct Admin {
    pub name: String,
    /// Whose rights bound what they may give to others.
    pub holder: Holder,
}

impl Admin {
    fn of_signed_on(person: Person) -> Result<Admin, Failure> {
        person.needs(GrantRole::Admin)?;
        Ok(Admin {
            name: person.identity.name.clone(),
            holder: Holder::Person(person.identity),
        })
    }
}

/// The route as keys name it: without the base path.
fn route_of<'a>(parts: &'a Parts, app: &App) -> &'a str {
    let path = parts.uri.path();
    let base = app.base();
    path.strip_prefix(base).unwrap_or(path)
}

/// A key that is for some routes is refused on the others.
fn on_its_routes(key: &KeyRecord, parts: &Parts, app: &App) -> Result<(), Failure> {
    let (routes, route) = (&key.allowed.routes, route_of(parts, app));
    if routes.is_empty() || matches_any(routes, route) {
        return Ok(());
    }
    Err(Failure::forbidden(
        "route_not_allowed",
        format!(
            "the key {}… is for {} and not for {route}",
            key.prefix,
            routes.join(", ")
        ),
    ))
}

impl FromRequestParts<App> for User {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<User, Failure> {
        if let Some(person) = Person::of(bearer(&parts.headers), parts, app).await? {
            return User::of_signed_on(person, app);
        }
        let anonymous = match app.config().auth.inference {
            InferenceAuth::Open => true,
            InferenceAuth::Loopback => from_loopback(parts),
            InferenceAuth::Key => false,
        };
        // A wrong key is told, also where none is needed: its owner thinks that it counts. OpenAI's
        // clients insist on some key, so that any other text than one of ours passes where none is
        // needed.
        match bearer(&parts.headers) {
            Some(text) => match app.keys.find(text) {
                Some(key) => {
                    on_its_routes(&key, parts, app)?;
                    Ok(User::of_key(key, app))
                }
                None if anonymous && !text.starts_with("mp-") => User::anonymous(parts, app),
                None => Err(Failure::unauthorized_key()),
            },
            None if anonymous => User::anonymous(parts, app),
            None => Err(Failure::unauthorized(
                "an API key is needed: send it as `Authorization: Bearer mp-…`; an administrator makes one with `admin-client keys create NAME --role user`",
            )),
        }
    }
}

impl FromRequestParts<App> for Admin {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Admin, Failure> {
        if let Some(person) = Person::of(bearer(&parts.headers), parts, app).await? {
            return Admin::of_signed_on(person);
        }
        let text = bearer(&parts.headers).ok_or_else(|| {
            let file = app.config().admin_key_file();
            Failure::unauthorized(format!(
                "an admin key is needed: send it as `Authorization: Bearer mp-…`; the first one was written to {} on the server",
                file.display()
            ))
        })?;
        let key = app.keys.find(text).ok_or_else(|| {
            Failure::forbidden("invalid_api_key", "this key is unknown, expired or revoked")
        })?;
        actor::tell(parts, || Actor {
            key: Some(key.id),
            subject: None,
            name: key.name.clone(),
            is_admin: key.role == Role::Admin,
        });
        match key.role {
            Role::Admin => {
                on_its_routes(&key, parts, app)?;
                let holder = Holder::Key(key.id);
                Ok(Admin {
                    name: key.name,
                    holder,
                })
            }
            Role::User => Err(Failure::forbidden(
                "not_an_admin",
                format!("the key {}… may use models, not steer the pool", key.prefix),
            )),
        }
    }
}

impl Failure {
    fn unauthorized_key() -> Failure {
        let mut failure = Failure::unauthorized("this API key is unknown, expired or revoked");
        failure.body.error.code = Some("invalid_api_key");
        failure
    }
}
